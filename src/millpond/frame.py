"""The face: `StreamingDataFrame`. Each method checks its arguments, makes one step, returns.

Names, arguments and in-place rules are those of Quix Streams. In place: `update`, `to_topic`,
`print`, `fill`, `drop`, `sink` and `sdf[...] = ...`. Every other method gives a new frame and
leaves this one as it was; a frame that nobody keeps is a branch that still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, overload

from millpond.aggregations import Aggregation
from millpond.aggregations.user_defined import Aggregator, Collector, as_aggregation
from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import function_name, here
from millpond.arguments.duration import Duration, milliseconds, wait
from millpond.arguments.hints import missing, public
from millpond.arguments.joins import Direction, Emission, How
from millpond.arguments.user_functions import check_function, named
from millpond.arguments.windows import Clocking, Counted, Session, Sliding, TimeWindow, WindowKind
from millpond.column import Column, Evaluate, field
from millpond.connectors.protocols import Sink
from millpond.connectors.sinks import as_sink, sink_name
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, MillpondError, shown
from millpond.options import (
    ExpandFunction,
    ExpandMetadataFunction,
    ExpandMetadataStateFunction,
    ExpandStateFunction,
    LateCallback,
    MetadataFunction,
    MetadataStateFunction,
    StateFunction,
    TimerFunction,
    TopicFunction,
    ValueFunction,
    WindowCallback,
)
from millpond.program.graph import Graph, clocking_above, corrected_above
from millpond.program.steps import (
    Aggregate,
    Callback,
    Distinct,
    Emit,
    Fold,
    KeyBy,
    Map,
    MapKind,
    Merge,
    Step,
    UpdateState,
    Watermark,
    Write,
)
from millpond.record import Record
from millpond.state.codec import Codec
from millpond.windowed import Callbacks, WindowDefinition
from millpond.wire.any_value import copy_value

if TYPE_CHECKING:
    from millpond.joined import JoinedFrame, OnMerge
    from millpond.table import Table

__all__ = ["StreamingDataFrame", "clocking"]

_INHERITED: Any = object()

_A_WEEK = timedelta(days=7)

_WINDOW_FIRST = (
    "define a window first: sdf.tumbling_window(10_000).{0}().final(); or running totals: "
    "sdf.agg(total=Sum())."
)
_GIVEN_ALREADY = "sdf is no window any more: go on with sdf.apply(...) or sdf.to_topic(...)."

# Windows that one record may belong to: a day in steps of a second has 86,400. Each of them is a
# value of state that the record changes, so with many more one record takes minutes.
_MOST_WINDOWS = 100_000

# What people ask of a frame that it does not have.
_LOOKUP = "join_table() brings the row of a table to each record."

_HINTS = {
    "join_lookup": _LOOKUP,
    **{
        word: _WINDOW_FIRST.format(word)
        for word in ("sum", "count", "mean", "min", "max", "reduce", "collect")
    },
    **dict.fromkeys(("final", "current", "late"), _GIVEN_ALREADY),
    "map": "sdf.apply(function).",
    "flat_map": "sdf.apply(function, expand=True).",
    "groupby": "sdf.group_by(key).",
    "merge": "sdf.concat(other).",
    "union": "sdf.concat(other).",
    "compose": "run_local(sdf, records) of millpond.testing runs it without a broker.",
    "register_store": "apply(function, stateful=True) makes the store that it needs.",
    "stream_id": "app.explain() shows the names under which state is kept.",
    "topics": "app.explain() shows what is read.",
}


class StreamingDataFrame:
    """A stream of records and what is done with them. Made by `Application.dataframe()`.

    A function given to `apply`, `update` or `filter` is called with the value; with
    `stateful=True` with (value, state); with `metadata=True` with (value, key, timestamp,
    headers); with both with (value, key, timestamp, headers, state).

    >>> from millpond.testing import frame, run_local
    >>> sdf = frame()
    >>> sdf = sdf[sdf["price"] > 10]
    >>> sdf["total"] = sdf["price"] * sdf["pieces"]
    >>> orders = [{"price": 4, "pieces": 2}, {"price": 12, "pieces": 3}]
    >>> run_local(sdf[["total"]], orders)
    [{'total': 36}]
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, head: Step, ttl_ms: int | None = None) -> None:
        self._graph = graph
        self._head = head
        self._ttl_ms = ttl_ms
        """How long state lives that says nothing else; None: forever."""

    def __bool__(self) -> bool:
        msg = (
            f"a frame has no truth value of its own: {self._head} ({here()}).\n"
            "Fix: sdf[(sdf['a'] > 1) & (sdf['b'] > 1)] for and, | for or, ~ for not; "
            "'frame is None' where you ask whether there is one."
        )
        raise ConfigError(msg)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a frame", name, public(StreamingDataFrame), _HINTS)

    # --- functions of a record --------------------------------------------------------------

    @overload
    def apply(
        self,
        func: ValueFunction,
        *,
        stateful: Literal[False] = False,
        expand: Literal[False] = False,
        metadata: Literal[False] = False,
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: ExpandFunction,
        *,
        stateful: Literal[False] = False,
        expand: Literal[True],
        metadata: Literal[False] = False,
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: StateFunction,
        *,
        stateful: Literal[True],
        expand: Literal[False] = False,
        metadata: Literal[False] = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: ExpandStateFunction,
        *,
        stateful: Literal[True],
        expand: Literal[True],
        metadata: Literal[False] = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: MetadataFunction,
        *,
        stateful: Literal[False] = False,
        expand: Literal[False] = False,
        metadata: Literal[True],
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: ExpandMetadataFunction,
        *,
        stateful: Literal[False] = False,
        expand: Literal[True],
        metadata: Literal[True],
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: MetadataStateFunction,
        *,
        stateful: Literal[True],
        expand: Literal[False] = False,
        metadata: Literal[True],
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    @overload
    def apply(
        self,
        func: ExpandMetadataStateFunction,
        *,
        stateful: Literal[True],
        expand: Literal[True],
        metadata: Literal[True],
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    def apply(
        self,
        func: Callable[..., Any],
        *,
        stateful: bool = False,
        expand: bool = False,
        metadata: bool = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame:
        """Replace each value by what a function returns for it; None is a value like any other.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([1, 2])).apply(lambda value: value * 10))
        [10, 20]

        Args:
            func: The function.
            stateful: Also pass the state of the record's key.
            expand: The function returns an iterable; each item becomes a record.
            metadata: Also pass key, timestamp and headers.
            on_timer: A function of (key, state, timer), called when a timer that `func` set
                with `state.set_timer` fires; what it returns continues, None does not.
        """
        kind: MapKind = "expand" if expand else "apply"
        return self._map(kind, func, stateful, metadata, on_timer)

    @overload
    def update(
        self,
        func: ValueFunction,
        *,
        stateful: Literal[False] = False,
        metadata: Literal[False] = False,
    ) -> StreamingDataFrame: ...

    @overload
    def update(
        self,
        func: StateFunction,
        *,
        stateful: Literal[True],
        metadata: Literal[False] = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    @overload
    def update(
        self,
        func: MetadataFunction,
        *,
        stateful: Literal[False] = False,
        metadata: Literal[True],
    ) -> StreamingDataFrame: ...

    @overload
    def update(
        self,
        func: MetadataStateFunction,
        *,
        stateful: Literal[True],
        metadata: Literal[True],
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame: ...

    def update(
        self,
        func: Callable[..., Any],
        *,
        stateful: bool = False,
        metadata: bool = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame:
        """Call a function that may change the value; in place. What it returns is ignored.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> sdf = frame(ListSource([{"a": 1}]))
        >>> run_local(sdf.update(lambda value: value.update(b=2)))
        [{'a': 1, 'b': 2}]

        Args:
            func: The function.
            stateful: Also pass the state of the record's key.
            metadata: Also pass key, timestamp and headers.
            on_timer: As in `apply`.
        """
        return self._here(self._map("update", func, stateful, metadata, on_timer))

    @overload
    def filter(
        self,
        func: ValueFunction,
        *,
        stateful: Literal[False] = False,
        metadata: Literal[False] = False,
    ) -> StreamingDataFrame: ...

    @overload
    def filter(
        self,
        func: StateFunction,
        *,
        stateful: Literal[True],
        metadata: Literal[False] = False,
    ) -> StreamingDataFrame: ...

    @overload
    def filter(
        self,
        func: MetadataFunction,
        *,
        stateful: Literal[False] = False,
        metadata: Literal[True],
    ) -> StreamingDataFrame: ...

    @overload
    def filter(
        self,
        func: MetadataStateFunction,
        *,
        stateful: Literal[True],
        metadata: Literal[True],
    ) -> StreamingDataFrame: ...

    def filter(
        self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False
    ) -> StreamingDataFrame:
        """Keep the records for which a function returns something true.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([1, 2, 3])).filter(lambda value: value > 1))
        [2, 3]

        Args:
            func: The function.
            stateful: Also pass the state of the record's key.
            metadata: Also pass key, timestamp and headers.
        """
        return self._map("filter", func, stateful, metadata)

    def stateful_map(
        self,
        name: str,
        function: Callable[[Any, Any, Any], tuple[Any, Any]],
        initial: Any = None,
    ) -> StreamingDataFrame:
        """Call `function(key, value, state) -> (output, new state)` for each record.

        A new state of None drops the key's state; the next call sees the initial one.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> def add(key, value, total):
        ...     return total + value, total + value
        >>> run_local(frame(ListSource([1, 2, 3])).stateful_map("sum", add, initial=0))
        [1, 3, 6]

        Args:
            name: The name under which the state is kept.
            function: The function.
            initial: The state of a key that has none: a value, or a function that makes one.
        """
        _check_store(name, "stateful_map")
        check_function(function, 3, "stateful_map")
        refuse_async(initial, "stateful_map(initial=...)")
        return self._then(
            Fold(
                parents=(self._head,),
                call_site=here(),
                name=name,
                function=function,
                initial=initial,
                ttl_ms=self._ttl_ms,
            )
        )

    def set_timestamp(self, func: Callable[[Any, Any, int, Any], int]) -> StreamingDataFrame:
        """Give each record the timestamp that `func(value, key, timestamp, headers)` returns.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame().set_timestamp(lambda value, key, timestamp, headers: value["at"])
        >>> sdf = sdf.apply(lambda value, key, timestamp, headers: timestamp, metadata=True)
        >>> run_local(sdf, [{"at": 5}, {"at": 7}])
        [5, 7]

        Args:
            func: A function that returns milliseconds since 1970.
        """
        return self._map("timestamp", func, False, True)

    def set_headers(self, func: Callable[[Any, Any, int, Any], Any]) -> StreamingDataFrame:
        """Give each record the headers that `func(value, key, timestamp, headers)` returns.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame().set_headers(lambda value, key, timestamp, headers: [("from", b"shop")])
        >>> sdf = sdf.apply(lambda value, key, timestamp, headers: headers, metadata=True)
        >>> run_local(sdf, [1])
        [[('from', b'shop')]]

        Args:
            func: A function that returns (name, bytes) pairs, a dict, or None.
        """
        return self._map("headers", func, False, True)

    # --- keys -------------------------------------------------------------------------------

    def group_by(
        self,
        key: str | Callable[[Any], Any],
        name: str | None = None,
        value_deserializer: Any = "json",
        key_deserializer: Any = "json",
        value_serializer: Any = "json",
        key_serializer: Any = "json",
    ) -> StreamingDataFrame:
        """Give each record a new key; state that follows belongs to it. Use it as often as needed.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> def count(value, state):
        ...     state.set("n", state.get("n", 0) + 1)
        ...     return value["user"], state.get("n")
        >>> sdf = frame(ListSource([{"user": "a"}, {"user": "b"}, {"user": "a"}]))
        >>> run_local(sdf.group_by("user").apply(count, stateful=True))
        [('a', 1), ('b', 1), ('a', 2)]

        Args:
            key: A field of the value, or a function of the value.
            name: The name under which state is kept. Default: the field, or the function's name.
            value_deserializer: Not needed here; there is no topic in between.
            key_deserializer: Not needed here.
            value_serializer: Not needed here.
            key_serializer: Not needed here.
        """
        if isinstance(key, str):
            column, function = key, _Field(key)
            name = name or column
        else:
            check_function(key, 1, "group_by")
            function = key  # type: ignore[assignment]
            name = name or function_name(key)
            if name == "lambda":
                msg = (
                    "group_by() with a lambda needs a name, because state is kept under it.\n"
                    'Fix: group_by(lambda value: ..., name="something").'
                )
                raise ConfigError(msg)
        step = KeyBy(
            parents=(self._head,),
            call_site=here(),
            name=name,
            function=function,
            field=key if isinstance(key, str) else None,
        )
        return self._then(step)

    key_by = group_by
    """Another name for `group_by`."""

    # --- time -------------------------------------------------------------------------------

    def watermark(
        self,
        lateness: Duration = 0,
        *,
        on: str | Callable[[Any], Any] | None = None,
        max_future: Duration | None = _INHERITED,
        idle_after: Duration | None = None,
    ) -> StreamingDataFrame:
        """Set the watermark of the stream: its largest timestamp minus the lateness.

        Windows close and timers fire when the watermark has passed them.

        >>> from millpond.testing import frame, run_local
        >>> minutes = frame().watermark(lateness=30_000).tumbling_window(60_000).count().final()
        >>> clicks = [("ann", 1, 5_000), ("bob", 1, 70_000), ("ann", 1, 50_000), ("bob", 1, 95_000)]
        >>> [window["value"] for window in run_local(minutes, clicks, batches=1)]
        [2]

        Args:
            lateness: How late records may come and still be on time.
            on: A field of the value, or a function of it, that has the record's time:
                milliseconds since 1970, or a `datetime`. Default: the record's timestamp.
            max_future: How far ahead of the wall clock a record's time may be. A record that is
                further ahead becomes a dead letter and moves no clock. Default: that of the source
                (one hour for a topic, no limit for a list), the loosest of several; None: no limit.
            idle_after: After that time without a record, the watermark follows the wall clock, so
                that the last windows close. Default: it waits for the next record.
        """
        if on is not None and not isinstance(on, str):
            check_function(on, 1, "watermark(on=...)")
        if max_future is _INHERITED:
            max_future = clocking_above(self._head).max_future_ms
        settings = clocking(lateness, max_future, idle_after)
        function = _Field(on) if isinstance(on, str) else on
        parents, site = (self._head,), here()
        return self._then(
            Watermark(
                parents=parents, call_site=site, name="watermark", clocking=settings, on=function
            )
        )

    def agg(
        self,
        *,
        emit: Literal["record", "batch"] = "record",
        name: str = "agg",
        **aggregations: Aggregation | Aggregator | Collector,
    ) -> StreamingDataFrame:
        """Keep running totals per key, over everything so far; late records count like others.

        >>> from millpond import Count, Sum
        >>> from millpond.testing import frame, run_local
        >>> totals = frame().agg(n=Count(), total=Sum("ms"))
        >>> run_local(totals, [("ann", {"ms": 5}), ("bob", {"ms": 1}), ("ann", {"ms": 7})])
        [{'n': 1, 'total': 5}, {'n': 1, 'total': 1}, {'n': 2, 'total': 12}]

        Args:
            emit: "record": the totals after each record; "batch": each changed key once a
                batch, as Spark's update mode does.
            name: The name under which the totals are kept.
            **aggregations: `Count()`, `Sum("amount")`, ...: each name is a field of the result.
        """
        for word, given in (("emit", emit), ("name", name)):
            if isinstance(given, Aggregation):
                msg = f"{word}= is an option of agg(), so no result can have that name."
                raise ConfigError(msg + "\nFix: choose another name for the field.")
        if emit not in ("record", "batch") or not aggregations:
            msg = f"agg() takes aggregations and emit='record' or 'batch', got emit={shown(emit)}."
            raise ConfigError(msg + "\nFix: agg(n=Count(), total=Sum('amount')).")
        _check_store(name, "agg")
        checked = {field: as_aggregation(given, field) for field, given in aggregations.items()}
        step = Aggregate(
            parents=(self._head,),
            call_site=here(),
            name=name,
            aggregations=checked,
            emit=emit,
            ttl_ms=self._ttl_ms,
        )
        return self._then(step)

    def tumbling_window(
        self,
        duration_ms: Duration,
        grace_ms: Duration = 0,
        name: str | None = None,
        on_late: LateCallback | None = None,
        before_update: WindowCallback | None = None,
        after_update: WindowCallback | None = None,
        corrections_ms: Duration = 0,
    ) -> WindowDefinition:
        """Cut time into windows of one length, one after the other, aligned to 1970.

        >>> from millpond import Count
        >>> from millpond.testing import frame, run_local
        >>> minutes = frame().tumbling_window(60_000).agg(clicks=Count()).final()
        >>> run_local(minutes, [("ann", "/", 5_000), ("ann", "/tea", 50_000), ("ann", "/", 60_000)])
        [{'clicks': 2, 'start': 0, 'end': 60000}]

        Args:
            duration_ms: Their length: milliseconds or a `timedelta`.
            grace_ms: How long a window waits for late records after its end.
            name: The beginning of the name under which it is kept; the lengths follow. Needed
                where two windows of the same lengths have the same key.
            on_late: Called for each late record with (value, key, timestamp, late_by_ms, start,
                end, name, topic, partition, offset); if it returns True, the record is logged.
            before_update: Called with (aggregated, value, key, timestamp, headers); True closes
                the window at once, without the value.
            after_update: Likewise, with the value.
            corrections_ms: How long after its closing a late record reopens a window; every result
                has a `"revision"` then: 0, and one more for each correction.
        """
        duration = milliseconds(duration_ms, "duration_ms")
        kind = TimeWindow(
            duration,
            duration,
            wait(grace_ms, "grace_ms"),
            wait(corrections_ms, "corrections_ms"),
        )
        return self._window(kind, name, Callbacks(on_late, before_update, after_update))

    def hopping_window(
        self,
        duration_ms: Duration,
        step_ms: Duration,
        grace_ms: Duration = 0,
        name: str | None = None,
        on_late: LateCallback | None = None,
        before_update: WindowCallback | None = None,
        after_update: WindowCallback | None = None,
        corrections_ms: Duration = 0,
    ) -> WindowDefinition:
        """Cut time into windows of one length, one every `step_ms`, so that they overlap.

        >>> from millpond.testing import frame, run_local
        >>> hops = frame().hopping_window(120_000, 60_000).count().final()
        >>> run_local(hops, [("ann", "/", 70_000), ("ann", "/", 130_000), ("ann", "/", 180_000)])
        [{'start': 0, 'end': 120000, 'value': 1}, {'start': 60000, 'end': 180000, 'value': 2}]

        Args:
            duration_ms: Their length: milliseconds or a `timedelta`.
            step_ms: The time from the start of one window to the start of the next.
            grace_ms: As in `tumbling_window`, like all that follow.
            name: The beginning of the name under which it is kept.
            on_late: Called for each late record.
            before_update: Called before a window is changed.
            after_update: Called after a window was changed.
            corrections_ms: How long after its closing a late record reopens a window.
        """
        duration = milliseconds(duration_ms, "duration_ms")
        step = milliseconds(step_ms, "step_ms")
        if step > duration:
            msg = f"step_ms ({step}) is longer than duration_ms ({duration}): records between two "
            raise ConfigError(msg + "windows would be lost.\nFix: step_ms <= duration_ms.")
        if duration // step > _MOST_WINDOWS:
            msg = f"each record would belong to {duration // step:,} windows; {_MOST_WINDOWS:,} is "
            raise ConfigError(msg + "the most.\nFix: a longer step_ms, or sliding_window().")
        kind = TimeWindow(
            duration,
            step,
            wait(grace_ms, "grace_ms"),
            wait(corrections_ms, "corrections_ms"),
        )
        return self._window(kind, name, Callbacks(on_late, before_update, after_update))

    def sliding_window(
        self,
        duration_ms: Duration,
        grace_ms: Duration = 0,
        name: str | None = None,
        on_late: LateCallback | None = None,
    ) -> WindowDefinition:
        """Make for each record the window that ends with it, both ends included.

        >>> from millpond.testing import frame, run_local
        >>> last_minute = frame().sliding_window(60_000).count().current()
        >>> clicks = [("ann", "/", 0), ("ann", "/", 60_000), ("ann", "/", 70_000)]
        >>> [(window["end"], window["value"]) for window in run_local(last_minute, clicks)]
        [(0, 1), (60000, 2), (70000, 2)]

        Args:
            duration_ms: Their length: milliseconds or a `timedelta`.
            grace_ms: How long a window waits for late records after its end.
            name: The beginning of the name under which it is kept.
            on_late: Called for each late record; see `tumbling_window`.
        """
        duration = milliseconds(duration_ms, "duration_ms")
        kind = Sliding(duration, wait(grace_ms, "grace_ms"))
        return self._window(kind, name, Callbacks(on_late))

    def session_window(
        self,
        inactivity_gap_ms: Duration,
        grace_ms: Duration = 0,
        name: str | None = None,
        on_late: LateCallback | None = None,
    ) -> WindowDefinition:
        """Group records with no longer pause between them than the gap.

        `start` is the time of the first record, `end` is 1 ms after the last one.

        >>> from millpond.testing import frame, run_local
        >>> visits = frame().session_window(60_000).count().final()
        >>> run_local(visits, [("ann", "/", 0), ("ann", "/tea", 40_000), ("ann", "/", 200_000)])
        [{'start': 0, 'end': 40001, 'value': 2}]

        Args:
            inactivity_gap_ms: The longest pause within a session: milliseconds or a `timedelta`.
            grace_ms: How much longer a session waits for late records.
            name: The beginning of the name under which it is kept.
            on_late: Called for each late record; see `tumbling_window`.
        """
        gap = milliseconds(inactivity_gap_ms, "inactivity_gap_ms")
        kind = Session(gap, wait(grace_ms, "grace_ms"))
        return self._window(kind, name, Callbacks(on_late))

    def tumbling_count_window(self, count: int, name: str | None = None) -> WindowDefinition:
        """Make windows of `count` records of a key, one after the other.

        >>> from millpond.testing import frame, run_local
        >>> pairs = frame().tumbling_count_window(2).sum().final()
        >>> run_local(pairs, [("ann", n, n * 10) for n in (1, 2, 3, 4)])
        [{'start': 10, 'end': 20, 'value': 3}, {'start': 30, 'end': 40, 'value': 7}]

        Args:
            count: The number of records of a window.
            name: The beginning of the name under which it is kept.
        """
        return self._window(Counted(_number(count, "count", 1)), name, Callbacks())

    def hopping_count_window(
        self, count: int, step: int, name: str | None = None
    ) -> WindowDefinition:
        """Make windows of `count` records of a key, one every `step` records.

        >>> from millpond.testing import frame, run_local
        >>> sums = frame().hopping_count_window(3, step=2).sum().final()
        >>> [window["value"] for window in run_local(sums, [1, 2, 3, 4, 5])]
        [6, 12]

        Args:
            count: The number of records of a window.
            step: The number of records from the start of one window to the start of the next.
            name: The beginning of the name under which it is kept.
        """
        kind = Counted(_number(count, "count", 1), _number(step, "step", 1))
        if step > count:
            msg = f"step ({step}) is larger than count ({count}): records would be lost."
            raise ConfigError(msg + "\nFix: step <= count.")
        return self._window(kind, name, Callbacks())

    def sliding_count_window(self, count: int, name: str | None = None) -> WindowDefinition:
        """Make after each record a window of the last `count` records of its key.

        >>> from millpond.testing import frame, run_local
        >>> moving = frame().sliding_count_window(2).mean().final()
        >>> [window["value"] for window in run_local(moving, [1, 2, 6])]
        [1.5, 4.0]

        Args:
            count: The number of records of a window.
            name: The beginning of the name under which it is kept.
        """
        return self._window(Counted(_number(count, "count", 1), 1), name, Callbacks())

    def drop_duplicates(
        self,
        on: str | Sequence[str] | Callable[[Any], Any] | None = None,
        within: Duration | None = None,
        *,
        per_key: bool = False,
        name: str = "drop_duplicates",
    ) -> StreamingDataFrame:
        """Keep the first of records that are the same: equal numbers are, and dicts in any order.

        >>> from millpond.testing import frame, run_local
        >>> payments = [("ann", {"id": 1}), ("bob", {"id": 1}), ("ann", {"id": 2})]
        >>> run_local(frame().drop_duplicates(on="id"), payments)
        [{'id': 1}, {'id': 2}]

        Args:
            on: A field, a list of fields, or a function of the value that says what is the
                same. Default: the whole value.
            within: How long a record is remembered, by the time of the stream. Default: forever,
                so that state grows with every new one.
            per_key: Records are the same only if they also have the same key. Then they do not
                move to another worker.
            name: The name under which what was seen is kept.
        """
        _check_store(name, "drop_duplicates")
        same = _same_by(on)
        ttl_ms = None if within is None else milliseconds(within, "within")
        if per_key:
            return self._then(self._distinct(name, same, ttl_ms))
        carried = self._renamed(_with_key, "key and value", takes_metadata=True)
        moved = carried._then(
            KeyBy(parents=(carried._head,), call_site=here(), name=name, function=_OfPair(same))
        )
        kept = moved._then(moved._distinct(name, _nothing, ttl_ms))
        back = KeyBy(parents=(kept._head,), call_site=here(), name="key", function=_pair_key)
        return kept._then(back)._renamed(_pair_value, "value", takes_metadata=False)

    def _renamed(
        self, function: Callable[..., Any], name: str, *, takes_metadata: bool
    ) -> StreamingDataFrame:
        """Return `apply` of a function of our own, under a name for people."""
        callback = Callback(function, takes_metadata=takes_metadata)
        parents, site = (self._head,), here()
        return self._then(
            Map(parents=parents, call_site=site, name=name, kind="apply", callback=callback)
        )

    def _distinct(self, name: str, same: Any, ttl_ms: int | None) -> Distinct:
        return Distinct(
            parents=(self._head,), call_site=here(), name=name, on=same, within_ms=ttl_ms
        )

    def update_state(
        self,
        function: Callable[[Any, Any], Any],
        name: str = "table",
        emit: Literal["changes", "all"] = "changes",
        *,
        tables: Literal["arrow", "pandas"] = "arrow",
        schema: Any = None,
    ) -> StreamingDataFrame:
        """Call `function(batch, state) -> state` with tables, once per key group and batch.

        The batch has the fields of the values, and `_key` and `_timestamp`. The state has the
        columns that the function gave it; it holds the rows of all keys of one key group.

        >>> import pyarrow as pa
        >>> from millpond.testing import frame, run_local
        >>> def largest(batch, state):
        ...     rows = pa.concat_tables([batch.select(["user", "ms"]), state])
        ...     found = rows.group_by("user").aggregate([("ms", "max")])
        ...     return found.rename_columns(["user", "ms"])
        >>> schema = pa.schema([("user", pa.string()), ("ms", pa.int64())])
        >>> tables = frame().group_by("user").update_state(largest, "largest", schema=schema)
        >>> run_local(tables, [{"user": "ann", "ms": 5}, {"user": "ann", "ms": 3}])
        [{'user': 'ann', 'ms': 5}]

        Args:
            function: The function.
            name: The name under which the state is kept.
            emit: "changes": rows that were not there before go on; "all": all rows of the state.
            tables: "arrow" for `pyarrow.Table`, "pandas" for `pandas.DataFrame`.
            schema: An Arrow schema, for the empty state of the first call. Default: no columns.
        """
        _check_store(name, "update_state")
        check_function(function, 2, "update_state", ["batch", "state"])
        if emit not in ("changes", "all") or tables not in ("arrow", "pandas"):
            msg = (
                "update_state() takes emit='changes' or 'all' and tables='arrow' or 'pandas', got "
                f"{shown((emit, tables))}."
            )
            raise ConfigError(msg + '\nFix: update_state(function, "name").')
        step = UpdateState(
            parents=(self._head,),
            call_site=here(),
            name=name,
            function=function,
            emit=emit,
            tables=tables,
            schema=schema,
            key_field=_key_field(self._head),
        )
        return self._then(step)

    def _window(self, kind: WindowKind, name: str | None, callbacks: Callbacks) -> WindowDefinition:
        if name is not None:
            _check_store(name, "a window")
        for word in ("on_late", "before_update", "after_update"):
            function = getattr(callbacks, word)
            if function is not None and not callable(function):
                msg = f"{word} must be a function, got {shown(function)} ({here()})."
                raise ConfigError(msg + "\nFix: pass the function itself.")
        corrected = corrected_above(self._head)
        if corrected is not None:
            msg = (
                f"this window ({here()}) would count results twice: the window at "
                f"{corrected.call_site} has corrections_ms, so it gives a result again when a late "
                "record changes it."
            )
            fix = 'keep one result of each window before: sdf[sdf["revision"] == 0], the first'
            raise ConfigError(f"{msg}\nFix: {fix}; or grace_ms instead of corrections_ms there.")
        return WindowDefinition(kind, name, callbacks, self._head, self._then, self._graph)

    # --- fields -----------------------------------------------------------------------------

    @overload
    def __getitem__(self, item: str) -> Column: ...

    @overload
    def __getitem__(self, item: list[str] | Column | StreamingDataFrame) -> StreamingDataFrame: ...

    def __getitem__(self, item: Any) -> Column | StreamingDataFrame:
        if isinstance(item, str):
            return Column(lambda value, *rest: field(value, item), item, self)
        if isinstance(item, list):
            names = list(item)
            return self.apply(
                named(lambda value: {n: field(value, n) for n in names}, f"select {names}")
            )
        if isinstance(item, Column | StreamingDataFrame):
            column = self._column(item)
            return self._then(self._of_column("filter", column, column._evaluate))
        msg = (
            f"sdf[...] takes a field, a list of fields, or a condition; got {shown(item)}.\n"
            'Fix: sdf["a"], sdf[["a", "b"]] or sdf[sdf["a"] > 1].'
        )
        raise ConfigError(msg)

    def __setitem__(self, name: Any, item: Any) -> None:
        if isinstance(item, Column | StreamingDataFrame):
            column = self._column(item)
            evaluate = column._evaluate
            assign = lambda value, *rest: _assign(value, name, evaluate(value, *rest))  # noqa: E731
            text = f"{name} = {column._text}"
            self._here(self._then(self._of_column("update", column, assign, text)))
        else:
            self.update(
                named(
                    lambda value: _assign(value, name, copy_value(item)),
                    f"{name} = {shown(item, 30)}",
                )
            )

    def contains(self, keys: str | list[str]) -> Column:
        """Return a column: whether the value has a field, or all of several fields.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf.contains("user")], [{"user": "ann"}, {"page": "/"}])
        [{'user': 'ann'}]

        Args:
            keys: The name of a field, or a list of names.
        """
        names = [keys] if isinstance(keys, str) else list(keys)
        return Column(
            lambda value, *rest: all(name in value for name in names),
            f"contains {names}",
            self,
        )

    def fill(self, *columns: str, **mapping: Any) -> StreamingDataFrame:
        """Put None, or the given value, into fields that are missing or None; in place.

        Values that are no dicts stay as they are.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([{"a": 1}])).fill("b", c=0))
        [{'a': 1, 'b': None, 'c': 0}]

        Args:
            *columns: Names of fields that get None.
            **mapping: Names of fields, with the value that each gets.
        """
        if not columns and not mapping:
            msg = 'fill() needs fields to fill.\nFix: sdf.fill("a", b=0).'
            raise ConfigError(msg)
        wanted = {**dict.fromkeys(columns), **mapping}

        def fill(value: Any) -> None:
            if not isinstance(value, dict):
                return
            for name, instead in wanted.items():
                if value.get(name) is None:
                    value[name] = copy_value(instead)

        return self.update(fill)

    def drop(
        self, columns: str | list[str], errors: Literal["raise", "ignore"] = "raise"
    ) -> StreamingDataFrame:
        """Remove fields from the value; in place.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().drop("secret"), [{"user": "ann", "secret": 1}])
        [{'user': 'ann'}]

        Args:
            columns: The name of a field, or a list of names.
            errors: "raise": a record without one of the fields fails. "ignore": it does not.
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        if errors not in ("raise", "ignore"):
            msg = (
                f"drop() takes fields and errors='raise' or 'ignore'; got {shown((names, errors))}."
            )
            raise ConfigError(msg + '\nFix: sdf.drop("a", errors="ignore").')
        if not names:
            return self

        def drop(value: Any) -> None:
            for name in names:
                if errors == "raise":
                    field(value, name)
                value.pop(name, None)

        return self.update(drop)

    # --- outputs ----------------------------------------------------------------------------

    def to_topic(
        self,
        topic: Topic | TopicFunction,
        key: Callable[[Any], Any] | None = None,
    ) -> StreamingDataFrame:
        """Write each record to a topic; in place, records also continue.

        >>> from millpond import Application
        >>> from millpond.testing import run_local
        >>> app = Application(consumer_group="shop")
        >>> sdf = app.dataframe(app.topic("orders")).to_topic(app.topic("copies"))
        >>> [(r.key, r.value) for r in run_local(sdf, [("ann", {"n": 1})]).topics["copies"]]
        [(b'ann', b'{"n":1}')]

        Args:
            topic: The topic, or a function of (value, key, timestamp, headers) that returns one.
            key: A function of the value that gives the key to write. Default: the record's key.
        """
        if isinstance(topic, Topic):
            name, choose = topic.name, None
        elif isinstance(topic, str):
            msg = f"to_topic() takes a topic, not its name, got {topic!r} ({here()})."
            raise ConfigError(msg + f'\nFix: sdf.to_topic(app.topic("{topic}")).')
        else:
            check_function(topic, 4, "to_topic")
            name, choose = function_name(topic), topic
        if key is not None:
            check_function(key, 1, "to_topic(key=...)")
        fixed = topic if isinstance(topic, Topic) else None
        return self._here(
            self._then(
                Write(
                    parents=(self._head,),
                    call_site=here(),
                    name=name,
                    topic=fixed,
                    choose=choose,
                    key=key,
                )
            )
        )

    def print(
        self, pretty: bool = True, metadata: bool = False, limit: int | None = 100
    ) -> StreamingDataFrame:
        """Show values in the terminal of the driver; in place, records also continue.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().print().filter(lambda value: value > 1), [1, 2]).printed
        [1, 2]

        Args:
            pretty: Show long values on several lines, and in colours where the terminal has them.
            metadata: Show dicts that also have `_key`, `_timestamp`, `_headers`, `_topic`,
                `_partition` and `_offset`.
            limit: How many values of each batch are shown; a line says how many more there are.
                None: all.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            msg = f"limit must be an int of 0 or more, or None, got {shown(limit)} ({here()})."
            raise ConfigError(msg + "\nFix: limit=100; limit=None shows all.")
        options = {"pretty": pretty, "metadata": metadata, "limit": limit}
        return self._here(self._emit("print", "print", 0, options))

    def sink(
        self, sink: Sink | Callable[[list[Record], str], Any], name: str | None = None
    ) -> None:
        """Pass each batch to a Python sink on the driver; no step can follow.

        >>> from millpond import ListSink
        >>> from millpond.testing import frame, run_local
        >>> sdf, results = frame(), ListSink()
        >>> sdf.apply(lambda value: value * 2).sink(results)
        >>> _ = run_local(sdf, [1, 2])
        >>> results
        [2, 4]

        Args:
            sink: A `ListSink`, any object with `write(batch)`, or a function of
                (records, delivery_id).
            name: The name of the sink, part of the ids of its deliveries. Default: the name of the
                function or the class. Keep it when the program changes.
        """
        made = as_sink(sink)
        if made is not sink:  # a function
            check_function(sink, 2, "sink", ["records", "delivery_id"])
        taken = [s.name for s in self._graph.steps if isinstance(s, Emit) and s.kind == "sink"]
        name = sink_name(sink, name, taken)
        self._graph.sinks.append(made)
        self._emit("sink", name, len(self._graph.sinks) - 1, {})

    def concat(self, other: StreamingDataFrame) -> StreamingDataFrame:
        """Return a frame with the records of both frames.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> small = sdf[sdf["n"] < 10].apply(lambda value: "small")
        >>> large = sdf[sdf["n"] >= 10].apply(lambda value: "large")
        >>> run_local(small.concat(large), [{"n": 50}, {"n": 5}])
        ['large', 'small']

        Args:
            other: A frame of the same application.
        """
        if not isinstance(other, StreamingDataFrame) or other._graph is not self._graph:
            msg = f"concat() takes a frame of the same application, got {shown(other)}."
            raise ConfigError(msg + "\nFix: make both with app.dataframe(...).")
        parents = (self._head, other._head)
        return self._then(Merge(parents=parents, call_site=here(), name="concat"))

    def join_interval(
        self,
        right: StreamingDataFrame,
        how: How = "inner",
        on_merge: OnMerge = "raise",
        grace_ms: Duration = 0,
        name: str | None = None,
        backward_ms: Duration = 0,
        forward_ms: Duration = 0,
        *,
        emit: Emission = "watermark",
    ) -> JoinedFrame:
        """Return every pair of records of one key whose times are near enough, once.

        A left record of time t meets the right ones from `t - backward_ms` to `t + forward_ms`.
        The order in which they come does not matter. The time of a pair is the later of the two.

        >>> from millpond.testing import frame, run_local
        >>> orders = frame()
        >>> paid = orders[orders["kind"] == "paid"]
        >>> both = orders[orders["kind"] == "order"].join_interval(
        ...     paid, on_merge=lambda order, paid: paid["at"] - order["at"], forward_ms=60_000
        ... )
        >>> order, payment = {"kind": "order", "at": 5}, {"kind": "paid", "at": 9}
        >>> run_local(both, [("o1", order, 5), ("o1", payment, 9)])
        [4]

        Args:
            right: The other frame.
            how: "inner": pairs. "left", "right", "outer": also records of that side, or of both,
                that met none, with None for the other.
            on_merge: What a pair is: a function of (left, right); or the fields of both in one
                dict, where of a field that both have, the left or the right one stays
                ("keep-left", "keep-right") or the record fails ("raise").
            grace_ms: How much later than the watermark a record may be. Later ones are not
                joined; see `late()`.
            name: The name under which records are kept; "join" by default. Needed for a second join
                of records that have the same key scope.
            backward_ms: How much earlier than the left record the right one may be: milliseconds
                or a `timedelta`; negative: it must be so much later.
            forward_ms: How much later it may be; negative: it must be so much earlier.
            emit: When a record that met none is given. "watermark": when none that is in time can
                come any more. "now": at once, and its pairs later, as Quix Streams does.
        """
        from millpond import joined

        return joined.join_interval(
            self, right, how, on_merge, grace_ms, name, backward_ms, forward_ms, emit
        )

    def join_asof(
        self,
        right: StreamingDataFrame,
        how: Literal["inner", "left"] = "inner",
        on_merge: OnMerge = "raise",
        grace_ms: Duration = _A_WEEK,
        name: str | None = None,
        *,
        direction: Direction = "backward",
        tolerance: Duration | None = None,
        emit: Emission = "watermark",
    ) -> JoinedFrame:
        """Return each record with the right record of its key that is nearest in time.

        By default that is the last one at its time or before. A record waits until the watermark
        has passed it, so the order in which records come does not matter. It keeps its time and
        its headers.

        >>> from millpond.testing import frame, run_local
        >>> both = frame()
        >>> prices, sales = both[both.contains("price")], both[both.contains("sold")]
        >>> run_local(
        ...     sales.join_asof(prices),
        ...     [("tea", {"sold": 3}, 20), ("tea", {"price": 2}, 10), ("tea", {"price": 4}, 30)],
        ... )
        [{'sold': 3, 'price': 2}]

        Args:
            right: The other frame.
            how: "inner": records that met one. "left": also those that met none, with None.
            on_merge: What a pair is; see `join_interval`.
            grace_ms: How much older than a record the right one may be, without a `tolerance`.
            name: The name under which records are kept; "join" by default. Needed for a second join
                of records that have the same key scope.
            direction: "backward": the last right record at the record's time or before;
                "forward": the first at its time or after; "nearest": whichever is nearer.
            tolerance: How far from the record the right one may be, instead of `grace_ms`:
                milliseconds or a `timedelta`. "forward" and "nearest" need it.
            emit: "watermark": as above. "now": a record meets what is there when it comes, as in
                Quix Streams.
        """
        from millpond import joined

        return joined.join_asof(
            self, right, how, on_merge, grace_ms, name, direction, tolerance, emit
        )

    def as_table(self, *, history: Duration | None = None, name: str | None = None) -> Table:
        """Return the last value of each key as a table, which other frames can be joined with.

        A value of None deletes the row. A change that is older than the row does not replace it.

        >>> from millpond import Sum
        >>> from millpond.testing import LocalEngine, frame
        >>> both = frame()
        >>> totals = both[both.contains("paid")].agg(paid=Sum("paid")).as_table(name="totals")
        >>> asked = both[both.contains("ask")].join_table(totals, on="ask")
        >>> engine = LocalEngine(asked[["paid"]])
        >>> engine.feed([("ann", {"paid": 2}), ("ann", {"paid": 3}), ("bob", {"ask": "ann"})])
        >>> engine.run()
        [{'paid': 5}]

        Args:
            history: How long it is known how rows were, see `Application.table`.
            name: The name of the table. Default: that of the topic or source.
        """
        from millpond.table import as_table

        return as_table(self, history, name)

    def join_table(
        self,
        table: Table,
        on: str | Callable[[Any], Any] | None = None,
        how: Literal["inner", "left"] = "inner",
        on_merge: OnMerge = "raise",
        name: str | None = None,
        *,
        wait_for_table: bool = True,
        broadcast: bool = False,
    ) -> JoinedFrame:
        """Return each record with the row that a table has for it.

        A record keeps its key, its time and its headers. Of a table with history it meets the row
        as it was at its own time; otherwise the row as it is when the record comes.

        >>> from millpond.testing import LocalEngine, frame
        >>> both = frame()
        >>> customers = both[both.contains("name")].as_table(name="customers")
        >>> orders = both[both.contains("customer")]
        >>> engine = LocalEngine(orders.join_table(customers, on="customer"))
        >>> engine.feed([("c1", {"name": "Ann"}), ("o1", {"customer": "c1"})])
        >>> engine.run()
        [{'customer': 'c1', 'name': 'Ann'}]

        Args:
            table: The table.
            on: The field that has the key of the row, or a function of the value that returns it.
                Default: the key of the record.
            how: "inner": records that have a row. "left": also those that have none, with None.
            on_merge: What a record and its row become; see `join_interval`.
            name: The name under which the table is kept for this join. Default: its own.
            wait_for_table: Whether records wait, at each start, until the table has been read to
                where it ended then.
            broadcast: Whether each of some copies has the whole table, and records are dealt out
                evenly. For a small table, and keys that have most of the records.
        """
        from millpond.table import join_table

        return join_table(
            self, table, on, how, on_merge, name, wait_for_table=wait_for_table, broadcast=broadcast
        )

    def connect(
        self,
        right: StreamingDataFrame,
        on_left: Callable[..., Any],
        on_right: Callable[..., Any],
        *,
        metadata: bool = False,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame:
        """Call a function for the records of each side, with one state for both.

        For what no join can say. Each function is called with the value and the state of the key,
        as in `apply(function, stateful=True)`.

        >>> from millpond.testing import frame, run_local
        >>> both = frame()
        >>> rules, clicks = both[both.contains("limit")], both[both.contains("ms")]
        >>> def learn(rule, state):
        ...     state.set("limit", rule["limit"])
        ...     return "limit set"
        >>> def judge(click, state):
        ...     return "slow" if click["ms"] > state.get("limit", 100) else "fast"
        >>> records = [("ann", {"ms": 70}), ("ann", {"limit": 50}), ("ann", {"ms": 70})]
        >>> run_local(clicks.connect(rules, judge, learn), records)
        ['fast', 'limit set', 'slow']

        Args:
            right: The other frame.
            on_left: The function for the records of this frame.
            on_right: The function for those of the other.
            metadata: Whether both are called with (value, key, timestamp, headers, state).
            on_timer: Called with (key, state, timer) for timers that either has set.
        """
        from millpond import joined

        return joined.connect(self, right, on_left, on_right, metadata, on_timer)

    def test(
        self,
        value: Any,
        key: Any = b"key",
        timestamp: int = 0,
        headers: Any = None,
        ctx: Any = None,
        topic: Topic | None = None,
    ) -> list[tuple[Any, Any, int, Any]]:
        """Process one record without Spark; return (value, key, timestamp, headers) of what comes.

        State is kept from one call to the next, as long as the program is the same.
        `millpond.testing.run_local` can do more: many records, batches, failures, clocks.

        >>> from millpond.testing import frame
        >>> frame().apply(lambda value: value + 1).test(1, key="ann", timestamp=5)
        [(2, 'ann', 5, None)]

        Args:
            value: The value.
            key: Its key.
            timestamp: Its time in milliseconds.
            headers: Its headers.
            ctx: Not needed here.
            topic: Which topic it is from, where the program reads several.
        """
        from millpond.testing.engine import test_record

        name = None if topic is None else topic.name
        return test_record(self, (key, value, timestamp, headers), name)

    # --- making steps -----------------------------------------------------------------------

    def _map(
        self,
        kind: MapKind,
        function: Callable[..., Any],
        stateful: bool,
        metadata: bool,
        on_timer: TimerFunction | None = None,
    ) -> StreamingDataFrame:
        verb = {"timestamp": "set_timestamp", "headers": "set_headers"}.get(kind, kind)
        check_function(function, 1 + 3 * metadata + stateful, verb)
        if on_timer is not None:
            check_function(on_timer, 3, "on_timer", ["key", "state", "timer"])
            if not stateful:
                msg = f"on_timer needs a stateful step: timers belong to a key's state ({here()})."
                raise ConfigError(msg + f"\nFix: {verb}(..., stateful=True, on_timer=...).")
        return self._then(
            Map(
                parents=(self._head,),
                call_site=here(),
                name=function_name(function),
                kind=kind,
                callback=Callback(function, takes_state=stateful, takes_metadata=metadata),
                on_timer=on_timer,
                ttl_ms=self._ttl_ms if stateful else None,
            )
        )

    def _of_column(self, kind: MapKind, column: Column, function: Evaluate, text: str = "") -> Map:
        callback = Callback(function, column._takes_state, column._takes_metadata)
        return Map(
            parents=(self._head,),
            call_site=here(),
            name=text or column._text,
            kind=kind,
            callback=callback,
        )

    def _emit(
        self, kind: Any, name: str, number: int, options: dict[str, Any]
    ) -> StreamingDataFrame:
        return self._then(
            Emit(
                parents=(self._head,),
                call_site=here(),
                name=name,
                kind=kind,
                number=number,
                options=options,
            )
        )

    def _then(self, step: Step) -> StreamingDataFrame:
        return StreamingDataFrame(self._graph, self._graph.add(step), self._ttl_ms)

    def _here(self, other: StreamingDataFrame) -> StreamingDataFrame:
        self._head = other._head
        return self

    def _column(self, item: Column | StreamingDataFrame) -> Column:
        """Return a column of this frame, from a column or from `sdf.apply(...)`."""
        if isinstance(item, Column):
            if item._owner is not self:
                msg = (
                    f"column {item._text} was taken from another frame.\n"
                    'Fix: take it from the frame at the place of use: sdf[sdf["a"] > 1].'
                )
                raise ConfigError(msg)
            return item
        steps: list[Map] = []
        step = item._head
        while step is not self._head:
            if not isinstance(step, Map) or step.kind != "apply":
                msg = (
                    f"only sdf.apply(...) of this very frame can be used as a column, not {step} "
                    f"({step.call_site}).\nFix: use apply() on the same frame."
                )
                raise ConfigError(msg)
            steps.insert(0, step)
            step = step.parents[0]
        self._graph.use_as_expression(list(steps))
        return _column_of(steps, self)


class _Field:
    """A key taken from a field; a class so that plans can show it and workers unpickle it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        return field(value, self.name)


class _Fields:
    """Several fields of a value."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, value: Any) -> Any:
        return tuple(field(value, name) for name in self.names)


class _OfPair:
    """What makes records the same, as a key: its encoding, so that anything can be one."""

    def __init__(self, same: Callable[[Any], Any]) -> None:
        self.same = same

    def __call__(self, pair: Any) -> bytes:
        return _codec.encode_equal(self.same(pair[1]))


_codec = Codec()


def _column_of(steps: list[Map], owner: StreamingDataFrame) -> Column:
    callbacks = [step.callback for step in steps]

    def evaluate(value: Any, key: Any, timestamp: int, headers: Any, state: Any) -> Any:
        for callback in callbacks:
            metadata = (key, timestamp, headers) if callback.takes_metadata else ()
            states = (state,) if callback.takes_state else ()
            value = callback.function(value, *metadata, *states)
        return value

    # Without state the engine passes four arguments, so the fifth is given here.
    takes_state = any(callback.takes_state for callback in callbacks)
    whole: Evaluate = evaluate
    if not takes_state:
        whole = lambda v, k, t, h: evaluate(v, k, t, h, None)  # noqa: E731
    text = " ".join(str(step.name) for step in steps)
    return Column(whole, text, owner, takes_state=takes_state, takes_metadata=True)


def _assign(value: Any, name: Any, item: Any) -> None:
    try:
        value[name] = item
    except TypeError:
        msg = (
            f"field {name!r} cannot be set on a value of type {type(value).__name__}.\n"
            "Fix: columns need values that are dicts; use apply() for others."
        )
        raise MillpondError(msg) from None


def _check_store(name: Any, method: str) -> None:
    """Refuse what state cannot be kept under."""
    is_text = isinstance(name, str) and bool(name) and "\x1f" not in name and _is_utf8(name)
    if not is_text or name == "default":
        msg = f"{method} needs a name for its state, got {shown(name)}."
        raise ConfigError(msg + "\nFix: a text such as 'totals'.")


def _number(given: Any, what: str, least: int) -> int:
    if type(given) is not int or given < least:
        msg = f"{what} must be an int of {least} or more, got {shown(given)}."
        raise ConfigError(msg + f"\nFix: {what}=10.")
    return given


def _same_by(on: Any) -> Callable[[Any], Any]:
    """Return what says of a value which others are the same."""
    if on is None:
        return _whole
    if isinstance(on, str):
        return _Field(on)
    if isinstance(on, Sequence) and on and all(isinstance(name, str) for name in on):
        return _Fields(tuple(on))
    check_function(on, 1, "drop_duplicates(on=...)")
    return on  # type: ignore[no-any-return]


def _whole(value: Any) -> Any:
    return value


def _nothing(value: Any) -> Any:
    return None


def _with_key(value: Any, key: Any, timestamp: int, headers: Any) -> Any:
    return key, value


def _pair_key(pair: Any) -> Any:
    return pair[0]


def _pair_value(pair: Any) -> Any:
    return pair[1]


def clocking(
    lateness: Duration, max_future: Duration | None, idle_after: Duration | None
) -> Clocking:
    """Return how time is read, checked."""
    return Clocking(
        wait(lateness, "lateness"),
        None if max_future is None else milliseconds(max_future, "max_future", least=0),
        None if idle_after is None else milliseconds(idle_after, "idle_after"),
    )


def _key_field(step: Step) -> str | None:
    """Return the field that has the key, where it was chosen by its name."""
    while not isinstance(step, KeyBy):
        if len(step.parents) != 1:
            return None
        step = step.parents[0]
    return step.field


def _is_utf8(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()
