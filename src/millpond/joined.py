"""Joins as the user asks for them: `left.join_interval(right, ...)`.

Takes the arguments of the frame's methods, checks them, and makes the steps of the join.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from millpond.arguments.callsite import function_name, here
from millpond.arguments.duration import Duration, milliseconds, wait
from millpond.arguments.joins import AsOf, Direction, Emission, How, Interval, JoinKind, side_names
from millpond.arguments.user_functions import check_function, named
from millpond.errors import ConfigError, MillpondError, shown
from millpond.frame import StreamingDataFrame
from millpond.options import TimerFunction
from millpond.program.graph import Graph
from millpond.program.key_types import KeyType, key_field, key_type
from millpond.program.steps import Join, JoinSide, Late, Step

__all__ = [
    "JoinedFrame",
    "OnMerge",
    "check_field",
    "check_sides",
    "check_word",
    "connect",
    "join_asof",
    "join_interval",
    "join_step",
    "joined",
    "merger",
]

OnMerge = Literal["raise", "keep-left", "keep-right"] | Callable[[Any, Any], Any]


class JoinedFrame(StreamingDataFrame):
    """The records of a join. `late()` has those that came too late for it."""

    def __init__(
        self,
        graph: Graph,
        join: Join,
        ttl_ms: int | None = None,
        head: Step | None = None,
        report: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """Make a frame; `head` and `report` where the join has moved records to another key."""
        super().__init__(graph, join if head is None else head, ttl_ms)
        self._join = join
        self._report = report

    def late(self) -> StreamingDataFrame:
        """Return the records that came too late to be joined, with what made them late.

        Each is `{"value", "timestamp", "join", "side", "late_by_ms", "closed_up_to"}`.

        >>> from millpond.testing import LocalEngine, frame
        >>> clicks = frame()
        >>> late = clicks.join_interval(clicks, on_merge=max).late()
        >>> engine = LocalEngine(late.apply(lambda report: (report["side"], report["late_by_ms"])))
        >>> engine.feed([("ann", 1, 100)])
        >>> engine.run()
        [1]
        >>> engine.feed([("ann", 2, 40)])
        >>> engine.run()
        [1, ('left', 60), ('right', 60)]
        """
        late = Late(parents=(self._join,), call_site=here(), name=self._join.name)
        frame = StreamingDataFrame(self._graph, self._graph.add(late), self._ttl_ms)
        return frame if self._report is None else frame.apply(named(self._report, "late"))


def join_interval(
    left: StreamingDataFrame,
    right: Any,
    how: How,
    on_merge: OnMerge,
    grace_ms: Duration,
    name: str | None,
    backward_ms: Duration,
    forward_ms: Duration,
    emit: Emission,
) -> JoinedFrame:
    """Return the frame of an interval join."""
    check_word("how", how, ("inner", "left", "right", "outer"))
    check_word("emit", emit, ("watermark", "now"))
    backward, forward = _bound(backward_ms, "backward_ms"), _bound(forward_ms, "forward_ms")
    if backward + forward < 0:
        msg = (
            f"no time is within {-backward} to {forward} ms of a left record ({here()}): the "
            "interval ends before it begins."
        )
        raise ConfigError(
            f"{msg}\nFix: choose backward_ms and forward_ms so that their sum is 0 or more."
        )
    kind = Interval(how, backward, forward, wait(grace_ms, "grace_ms"), emit)
    return joined(left, right, kind, on_merge, name)


def join_asof(
    left: StreamingDataFrame,
    right: Any,
    how: Literal["inner", "left"],
    on_merge: OnMerge,
    grace_ms: Duration,
    name: str | None,
    direction: Direction,
    tolerance: Duration | None,
    emit: Emission,
) -> JoinedFrame:
    """Return the frame of an as-of join."""
    check_word("how", how, ("inner", "left"))
    check_word("direction", direction, ("backward", "forward", "nearest"))
    check_word("emit", emit, ("watermark", "now"))
    if direction != "backward" and (tolerance is None or emit == "now"):
        msg = f"direction={direction!r} looks for records that are still to come ({here()})."
        fix = "say how long a left record waits for them: tolerance=timedelta(minutes=1)"
        raise ConfigError(f"{msg}\nFix: {fix}; and leave emit out.")
    far = None if tolerance is None else milliseconds(tolerance, "tolerance", least=0)
    kind = AsOf(how, wait(grace_ms, "grace_ms"), direction, far, emit)
    return joined(left, right, kind, on_merge, name)


def connect(
    left: StreamingDataFrame,
    right: Any,
    on_left: Callable[..., Any],
    on_right: Callable[..., Any],
    metadata: bool,
    on_timer: TimerFunction | None,
) -> StreamingDataFrame:
    """Return the frame of what two functions make of the records of two frames."""
    check_sides(left, right)
    functions = (on_left, on_right)
    for side, function in zip(side_names, functions, strict=True):
        check_function(function, 2 + 3 * metadata, f"on_{side} of connect")
    frames: tuple[StreamingDataFrame, ...] = (left, right)
    sides = [
        frame.apply(named(lambda value, number=number: (number, value), f"{side} of connect"))
        for number, (side, frame) in enumerate(zip(side_names, frames, strict=True))
    ]

    def both(value: Any, *rest: Any) -> Any:
        number, content = value
        return functions[number](content, *rest)

    named(both, "+".join(map(function_name, functions)))
    records = sides[0].concat(sides[1])
    if metadata:
        return records.apply(both, stateful=True, metadata=True, on_timer=on_timer)
    return records.apply(both, stateful=True, on_timer=on_timer)


def check_sides(left: StreamingDataFrame, right: Any) -> None:
    """Refuse a side that is no frame, and keys that never meet."""
    if not isinstance(right, StreamingDataFrame) or right._graph is not left._graph:
        msg = f"a join takes a frame of the same application, got {shown(right)} ({here()})."
        raise ConfigError(msg + "\nFix: make both with app.dataframe(...).")
    one, other = [key_type(frame._head) for frame in (left, right)]
    if one is not None and other is not None and one.type is not other.type:
        msg = (
            f"the keys of {one.source!r} are {one.type.__name__}, and those of {other.source!r} "
            f"{other.type.__name__}, so no two are equal ({here()})."
        )
        raise ConfigError(f"{msg}\nFix: give both topics the same key_deserializer.")
    for frame, theirs in ((left, other), (right, one)):
        _check_no_bytes(key_field(frame._head), theirs)


def check_field(on: Any, table: StreamingDataFrame) -> None:
    """Refuse a field of records as the key of a table whose keys are bytes."""
    _check_no_bytes(on if isinstance(on, str) else None, key_type(table._head))


def _check_no_bytes(field: str | None, theirs: KeyType | None) -> None:
    if field is None or theirs is None or theirs.type is not bytes:
        return
    msg = (
        f"the keys of {theirs.source!r} are bytes. The join is by the field {field!r}, which JSON "
        f"never reads as bytes, so no two would be equal ({here()})."
    )
    fix = f"app.topic({theirs.source!r}, key_deserializer='str'), or whatever its keys are"
    function = f"lambda value: value[{field!r}]"
    raise ConfigError(
        f"{msg}\nFix: {fix}. If the field has bytes: {function} in place of its name."
    )


def joined(
    left: StreamingDataFrame, right: Any, kind: JoinKind, on_merge: OnMerge, name: str | None
) -> JoinedFrame:
    """Return the frame of a join."""
    check_sides(left, right)
    step = join_step(left, right, kind, merger(on_merge), name)
    return JoinedFrame(left._graph, step, left._ttl_ms)


def join_step(
    left: StreamingDataFrame,
    right: StreamingDataFrame,
    kind: JoinKind,
    merge: Callable[[Any, Any], Any],
    name: str | None,
) -> Join:
    """Add a join of two frames, and return its step."""
    types = [key_type(frame._head) for frame in (left, right)]
    if name is None:
        name = "join"
    if name == "default":
        msg = f"'default' is the store of functions ({here()})."
        raise ConfigError(f'{msg}\nFix: name="payments".')
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
        msg = f"the name of a join is a text without '/', got {shown(name)} ({here()})."
        raise ConfigError(msg + '\nFix: name="payments".')
    graph = left._graph
    sides: list[Step] = []
    for number, frame in enumerate((left, right)):
        meets = types[1 - number] if types[number] is None else None
        mine = types[number]
        side = JoinSide(
            parents=(frame._head,),
            call_site=here(),
            name=name,
            number=number,
            keys="" if mine is None else mine.type.__name__,
            meets=meets,
        )
        sides.append(graph.add(side))
    step = Join(parents=tuple(sides), call_site=here(), name=name, kind=kind, merge=merge)
    graph.add(step)
    return step


def check_word(what: str, given: Any, words: tuple[str, ...]) -> None:
    """Refuse what is none of some words."""
    if given not in words:
        listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
        msg = f"{what} is {listed}, got {shown(given)} ({here()})."
        raise ConfigError(f"{msg}\nFix: {what}={words[0]!r}.")


def _bound(given: Any, what: str) -> int:
    """Return a bound of an interval in milliseconds; it may be negative."""
    is_negative = (type(given) is int and given < 0) or (
        isinstance(given, timedelta) and given < timedelta()
    )
    return (
        -milliseconds(-given, what, least=0) if is_negative else milliseconds(given, what, least=0)
    )


# --- the record made of two ---------------------------------------------------------------------


def merger(on_merge: Any) -> Callable[[Any, Any], Any]:
    """Return the function that makes a record of two."""
    if callable(on_merge):
        check_function(on_merge, 2, "on_merge", ["left", "right"])
        return on_merge  # type: ignore[no-any-return]
    found = {"raise": _raise, "keep-left": _keep_left, "keep-right": _keep_right}.get(on_merge)
    if found is None:
        msg = (
            "on_merge is 'raise', 'keep-left', 'keep-right' or a function of (left, right), got "
            f"{shown(on_merge)} ({here()})."
        )
        raise ConfigError(
            msg + "\nFix: on_merge=lambda left, right: {**(left or {}), **(right or {})}."
        )
    return found


def _keep_left(left: Any, right: Any) -> dict[Any, Any]:
    fields = _fields(left)
    return {**fields, **{name: v for name, v in _fields(right).items() if name not in fields}}


def _keep_right(left: Any, right: Any) -> dict[Any, Any]:
    return {**_fields(left), **_fields(right)}


def _raise(left: Any, right: Any) -> dict[Any, Any]:
    one, other = _fields(left), _fields(right)
    if both := sorted(map(str, one.keys() & other.keys())):
        msg = f"both sides of the join have {', '.join(map(repr, both))}."
        raise MillpondError(f'{msg}\nFix: on_merge="keep-left", "keep-right" or a function.')
    return {**one, **other}


def _fields(value: Any) -> dict[Any, Any]:
    """Return the fields of a side; one that is not there has none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        msg = f"values that are no dicts cannot be put together: {shown(value)}."
        raise MillpondError(f"{msg}\nFix: on_merge=lambda left, right: (left, right).")
    return value
