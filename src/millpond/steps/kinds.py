"""The kinds of step. A step knows its parents, never its children.

Takes what the face has checked; gives frozen data that is pickled to the workers. What must
stay on the driver (sinks, iterables) is not in a step: a step has the number or the name of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.callsite import CallSite
from millpond.connectors.serde import Deserializer
from millpond.connectors.topic import Topic

__all__ = [
    "Callback",
    "Emit",
    "Fold",
    "KeyBy",
    "Map",
    "MapKind",
    "Merge",
    "Read",
    "SourceInfo",
    "Step",
    "Write",
]

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
    kind: Literal["topic", "list", "rate", "files", "spark"]
    value_deserializer: Deserializer
    key_deserializer: Deserializer
    timestamp_extractor: Callable[..., int] | None = None


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
    def is_stateful(self) -> bool:
        return False

    @property
    def uses_metadata(self) -> bool:
        """Whether key, timestamp or headers are looked at or changed."""
        return False


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

    @property
    def verb(self) -> str:
        return {"timestamp": "set_timestamp", "headers": "set_headers"}.get(self.kind, self.kind)

    @property
    def is_stateful(self) -> bool:
        return self.callback.takes_state

    @property
    def uses_metadata(self) -> bool:
        return self.callback.takes_metadata or self.kind in ("timestamp", "headers")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fold(Step):
    """`stateful_map`: function(key, value, state) -> (output, new state)."""

    function: Callable[[Any, Any, Any], tuple[Any, Any]]
    initial: Any = None
    """A value, or a function without arguments that makes one."""

    @property
    def verb(self) -> str:
        return "stateful_map"

    @property
    def is_stateful(self) -> bool:
        return True

    @property
    def uses_metadata(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyBy(Step):
    """A new key for each record."""

    function: Callable[[Any], Any]

    @property
    def verb(self) -> str:
        return "group_by"


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
