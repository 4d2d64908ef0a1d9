"""The kinds of step. A step knows its parents, never its children.

Takes what the face has checked; gives frozen data that is pickled to the workers. What must
stay on the driver (sinks, iterables) is not in a step: a step has the number or the name of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.aggregations import Aggregation
from millpond.arguments.callsite import CallSite
from millpond.arguments.joins import JoinKind, side_names
from millpond.arguments.windows import HISTORY, Clocking, Closing, Sliding, TimeWindow, WindowKind
from millpond.connectors.protocols import SourceKind, SourceSettings
from millpond.connectors.serde import Deserializer
from millpond.connectors.topic import Topic

__all__ = [
    "Aggregate",
    "Callback",
    "Distinct",
    "Emit",
    "Fold",
    "Join",
    "JoinSide",
    "KeyBy",
    "Late",
    "Map",
    "MapKind",
    "Merge",
    "RUNNING",
    "Read",
    "SourceInfo",
    "Step",
    "TABLE",
    "UpdateState",
    "Watermark",
    "Window",
    "Write",
]

TABLE = "a table"
"""The settings of a step whose state is a table of each key group."""

RUNNING = "running totals"
"""The settings of `agg`."""

MapKind = Literal["apply", "expand", "update", "filter", "timestamp", "headers"]


@dataclass(frozen=True, slots=True)
class Callback:
    """A user's function and what it is called with besides the value."""

    function: Callable[..., Any]
    takes_state: bool = False
    takes_metadata: bool = False


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What workers must know of a source."""

    name: str
    kind: SourceKind
    value_deserializer: Deserializer
    key_deserializer: Deserializer
    timestamp_extractor: Callable[..., int] | None = None
    clocking: Clocking = HISTORY

    @classmethod
    def of(cls, settings: SourceSettings) -> SourceInfo:
        """Return what workers must know of these settings."""
        return cls(
            settings.name,
            settings.kind,
            settings.value_deserializer,
            settings.key_deserializer,
            settings.timestamp_extractor if isinstance(settings, Topic) else None,
            settings.clocking,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step:
    """One thing the user asked for. Steps are equal only to themselves."""

    parents: tuple[Step, ...] = ()
    call_site: CallSite
    name: str

    def __str__(self) -> str:
        return f"{self.verb} {self.name!r}"

    @property
    def verb(self) -> str:
        return type(self).__name__.lower()

    @property
    def where(self) -> str:
        """The step with the file and the line where it was written."""
        name = self.verb if self.verb == self.name else str(self)
        return f"{name} ({self.call_site})"

    @property
    def is_stateful(self) -> bool:
        return False

    @property
    def uses_metadata(self) -> bool:
        """Whether key, timestamp or headers are looked at or changed."""
        return False

    @property
    def uses_clock(self) -> bool:
        """Whether what it gives depends on the watermark: then no timestamp may be absurd."""
        return False

    @property
    def store(self) -> str:
        """The name under which a stateful step keeps its state."""
        return "default"

    @property
    def settings(self) -> str:
        """What must not change under a stateful step whose state is to be used again."""
        return ""

    @property
    def layout(self) -> dict[str, str]:
        """The fields of its states, in their order, each with the signature of what it keeps."""
        return {}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StatefulStep(Step):
    """A step that keeps state of its own, under its name."""

    @property
    def is_stateful(self) -> bool:
        return True

    @property
    def store(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Read(Step):
    """Records of a source."""

    source: SourceInfo

    @property
    def uses_metadata(self) -> bool:
        return self.source.timestamp_extractor is not None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Map(Step):
    """A function of one record: apply, expand, update, filter, set_timestamp, set_headers."""

    kind: MapKind
    callback: Callback
    on_timer: Callable[[Any, Any, Any], Any] | None = None
    ttl_ms: int | None = None

    @property
    def verb(self) -> str:
        return {"timestamp": "set_timestamp", "headers": "set_headers"}.get(self.kind, self.kind)

    @property
    def is_stateful(self) -> bool:
        return self.callback.takes_state

    @property
    def uses_metadata(self) -> bool:
        takes = self.callback.takes_metadata or self.kind in ("timestamp", "headers")
        return takes or self.on_timer is not None

    @property
    def uses_clock(self) -> bool:
        return self.on_timer is not None or self.ttl_ms is not None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fold(StatefulStep):
    """`stateful_map`: function(key, value, state) -> (output, new state)."""

    function: Callable[[Any, Any, Any], tuple[Any, Any]]
    initial: Any = None
    """A value, or a function without arguments that makes one."""
    ttl_ms: int | None = None

    @property
    def verb(self) -> str:
        return "stateful_map"

    @property
    def uses_clock(self) -> bool:
        return self.ttl_ms is not None

    @property
    def uses_metadata(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyBy(Step):
    """A new key for each record."""

    function: Callable[[Any], Any]
    field: str | None = None
    """The field of the value that `function` takes, if that is all it does."""

    @property
    def verb(self) -> str:
        return "group_by"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Watermark(Step):
    """From here on the stream's time is read in this way."""

    clocking: Clocking
    on: Callable[[Any], Any] | None = None
    """Gives the time of a value; None: the record's timestamp."""

    @property
    def uses_metadata(self) -> bool:
        return True

    @property
    def uses_clock(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Aggregate(StatefulStep):
    """Running totals per key."""

    aggregations: dict[str, Aggregation]
    emit: Literal["record", "batch"] = "record"
    ttl_ms: int | None = None

    @property
    def verb(self) -> str:
        return "agg"

    @property
    def settings(self) -> str:
        return RUNNING

    @property
    def layout(self) -> dict[str, str]:
        return _signatures(self.aggregations)

    @property
    def uses_clock(self) -> bool:
        return self.ttl_ms is not None

    @property
    def can_combine(self) -> bool:
        """Whether records may be brought together before they move."""
        is_whole = self.emit == "batch" and self.ttl_ms is None
        return is_whole and all(a.is_mergeable for a in self.aggregations.values())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Window(StatefulStep):
    """Aggregates of the records of a key in a window."""

    kind: WindowKind
    aggregations: dict[str, Aggregation]
    emit: Literal["current", "final"]
    closing: Closing
    is_single: bool = False
    """Whether callbacks are given one value rather than a dict."""
    on_late: Callable[..., bool] | None = None
    before_update: Callable[..., bool] | None = None
    after_update: Callable[..., bool] | None = None

    @property
    def settings(self) -> str:
        corrected = getattr(self.kind, "corrections_ms", 0) > 0
        how = f"closed by {self.closing}" + (", corrected" if corrected else "")
        return f"{self.kind.store}, {how}"

    @property
    def layout(self) -> dict[str, str]:
        # A sliding window keeps records, from which any result can be made.
        return {} if isinstance(self.kind, Sliding) else _signatures(self.aggregations)

    @property
    def uses_metadata(self) -> bool:
        return True

    @property
    def uses_clock(self) -> bool:
        return self.closing == "watermark"

    @property
    def can_combine(self) -> bool:
        """Whether records may be brought together before they move."""
        return (
            type(self.kind) is TimeWindow
            and self.emit == "final"
            and self.closing == "watermark"
            and not self.kind.corrections_ms
            and not self.before_update
            and not self.after_update
            and all(a.is_mergeable for a in self.aggregations.values())
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JoinSide(Step):
    """The records of one side, on their way to a join."""

    number: int
    """0: the left side, 1: the right one."""
    keys: str = ""
    """The type of its keys, where a topic says it: rows that are kept have keys of that type."""
    meets: Any = None
    """The `KeyType` of the other side, where a `group_by` decides that of this one."""

    @property
    def verb(self) -> str:
        return f"{side_names[self.number]} of"

    @property
    def uses_metadata(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Join(StatefulStep):
    """The records of two sides that have the same key, brought together by their times."""

    kind: JoinKind
    merge: Callable[[Any, Any], Any]

    @property
    def settings(self) -> str:
        sides = [side for side in self.parents if isinstance(side, JoinSide) and side.keys]
        keys = ", ".join(f"{side_names[side.number]} {side.keys}" for side in sides)
        return self.kind.form + f", keys: {keys}" * bool(keys)

    @property
    def uses_metadata(self) -> bool:
        return True

    @property
    def uses_clock(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Late(Step):
    """The records that came too late for a window or a join."""

    @property
    def uses_metadata(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distinct(StatefulStep):
    """Records of which the same was not there before, under the key they have here."""

    on: Callable[[Any], Any] | None = None
    within_ms: int | None = None

    @property
    def verb(self) -> str:
        return "drop_duplicates"

    @property
    def uses_clock(self) -> bool:
        return self.within_ms is not None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UpdateState(StatefulStep):
    """A function of tables: function(batch, state) -> state, once per key group and batch."""

    function: Callable[[Any, Any], Any]
    emit: Literal["changes", "all"] = "changes"
    tables: Literal["arrow", "pandas"] = "arrow"
    schema: Any = None
    """The columns of a state that is empty yet, as an Arrow schema."""
    key_field: str | None = None
    """The field of a row that is its key."""

    @property
    def verb(self) -> str:
        return "update_state"

    @property
    def settings(self) -> str:
        return TABLE

    @property
    def uses_metadata(self) -> bool:
        return True


def _signatures(aggregations: dict[str, Aggregation]) -> dict[str, str]:
    return {name: str(a.signature) for name, a in aggregations.items()}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Merge(Step):
    """The records of several frames."""

    @property
    def verb(self) -> str:
        return "concat"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Write(Step):
    """Records to a topic; they also go on."""

    topic: Topic | None
    choose: Callable[..., Topic] | None = None
    key: Callable[[Any], Any] | None = None

    @property
    def verb(self) -> str:
        return "to_topic"

    @property
    def uses_metadata(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Emit(Step):
    """Records to the driver: printed, or given to a Python sink."""

    kind: Literal["print", "sink"]
    number: int = 0
    """Which of the driver's sinks."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        return self.kind

    @property
    def uses_metadata(self) -> bool:
        return True
