"""Windows as the user builds them: `sdf.tumbling_window(...).agg(...).final()`.

Takes what was said step by step, checks it at each call, and at `current` or `final` makes one
step of it. Results are `{<name>: ..., "start": ms, "end": ms}`, as in Quix Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.aggregations import (
    Aggregation,
    Collect,
    Count,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)
from millpond.aggregations.user_defined import Aggregator, Collector, as_aggregation
from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import here
from millpond.arguments.hints import missing, public
from millpond.arguments.windows import Closing, Counted, TimeWindow, WindowKind
from millpond.errors import ConfigError, shown
from millpond.options import LateCallback, WindowCallback
from millpond.program.graph import Graph
from millpond.program.steps import Late, Step, Window

if TYPE_CHECKING:
    from millpond.frame import StreamingDataFrame

__all__ = ["WindowDefinition", "WindowedFrame"]

_TAKEN = ("start", "end", "revision")


_AGGREGATE_FIRST = (
    "say first what is aggregated: window.agg(n=Count()), or window.count(); then .{0}()."
)
_OUTPUT_FIRST = "a window becomes a frame by window.final() or window.current(); then .{0}(...)."
_ONE_AGG = "the window has its aggregations; give all of them to one agg(n=Count(), total=Sum())."
_FRAME = (
    "apply", "update", "filter", "to_topic", "print", "sink", "group_by", "concat", "set_timestamp",
    "set_headers", "fill", "drop", "contains", "watermark", "tumbling_window",
)  # fmt: skip
_OF_DEFINITION = {
    **{word: _AGGREGATE_FIRST.format(word) for word in ("final", "current", "late")},
    **{word: f"window.agg(n=Count()).final() gives a frame; then .{word}(...)." for word in _FRAME},
}
_OF_WINDOW = {
    **dict.fromkeys(("agg", "sum", "count", "mean", "min", "max", "reduce", "collect"), _ONE_AGG),
    **{word: _OUTPUT_FIRST.format(word) for word in _FRAME},
}


@dataclass(frozen=True)
class Callbacks:
    """The functions a window calls."""

    on_late: LateCallback | None = None
    before_update: WindowCallback | None = None
    after_update: WindowCallback | None = None


class WindowDefinition:
    """A window that has no aggregations yet. Made by `StreamingDataFrame.tumbling_window()` etc.

    >>> from millpond.testing import frame
    >>> window = frame().hopping_window(60_000, 10_000, grace_ms=5_000)
    >>> window.duration_ms, window.step_ms, window.grace_ms
    (60000, 10000, 5000)
    """

    def __init__(
        self,
        kind: WindowKind,
        name: str | None,
        callbacks: Callbacks,
        head: Step,
        then: Callable[[Step], StreamingDataFrame],
        graph: Graph,
    ) -> None:
        for option, function in vars(callbacks).items():
            refuse_async(function, f"{option}=")
        self._graph = graph
        self._kind = kind
        self._name = name
        self._callbacks = callbacks
        self._head = head
        self._then = then

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a window definition", name, public(WindowDefinition), _OF_DEFINITION)

    @property
    def duration_ms(self) -> int:
        """The length of its windows, in milliseconds.

        >>> from millpond.testing import frame
        >>> frame().tumbling_window(60_000).duration_ms
        60000
        """
        return self._length("duration_ms")

    @property
    def step_ms(self) -> int | None:
        """The time from the start of one window to the next; None where they do not overlap.

        >>> from millpond.testing import frame
        >>> frame().hopping_window(60_000, 10_000).step_ms
        10000
        """
        kind = self._kind
        if isinstance(kind, TimeWindow) and kind.step_ms != kind.duration_ms:
            return kind.step_ms
        return None

    @property
    def grace_ms(self) -> int:
        """How long a window waits for late records, in milliseconds.

        >>> from millpond.testing import frame
        >>> frame().tumbling_window(60_000, grace_ms=5_000).grace_ms
        5000
        """
        return self._length("grace_ms")

    @property
    def inactivity_gap_ms(self) -> int:
        """The longest pause within a session, in milliseconds.

        >>> from millpond.testing import frame
        >>> frame().session_window(60_000).inactivity_gap_ms
        60000
        """
        return self._length("gap_ms")

    def _length(self, name: str) -> int:
        found = getattr(self._kind, name, None)
        if found is None:
            msg = f"a window {self._kind} has no {name} ({here()})."
            raise ConfigError(msg + "\nFix: ask it for what it was made with.")
        return int(found)

    def agg(self, **aggregations: Aggregation | Aggregator | Collector) -> WindowedFrame:
        """Aggregate in several ways at once; each name becomes a field of the result.

        >>> from millpond import Count, Sum
        >>> from millpond.testing import frame, run_local
        >>> clicks = [("ann", {"ms": 5}, 10), ("ann", {"ms": 7}, 20), ("ann", {"ms": 1}, 9_000)]
        >>> window = frame().tumbling_window(5_000).agg(n=Count(), ms=Sum("ms"))
        >>> run_local(window.final(), clicks)
        [{'n': 2, 'ms': 12, 'start': 0, 'end': 5000}]

        Args:
            **aggregations: `Count()`, `Sum("amount")`, ...: each name is a field of the result.
        """
        if not aggregations:
            msg = "agg() needs at least one aggregation.\nFix: agg(n=Count(), total=Sum('amount'))."
            raise ConfigError(msg)
        if taken := [name for name in aggregations if name in _TAKEN]:
            msg = f"a result has a field {taken[0]!r} of its own.\nFix: choose another name."
            raise ConfigError(msg)
        checked = {name: as_aggregation(given, name) for name, given in aggregations.items()}
        return WindowedFrame(self, checked, self._store(), is_single=False)

    def count(self) -> WindowedFrame:
        """Count the records.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).count().final(), ["a", "b"])[0]["value"]
        2
        """
        return self._single("count", Count())

    def sum(self) -> WindowedFrame:
        """Add up the values, which must be numbers.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).sum().final(), [1, 2])[0]["value"]
        3
        """
        return self._single("sum", Sum())

    def mean(self) -> WindowedFrame:
        """Return the mean of the values, which must be numbers.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).mean().final(), [1, 2])[0]["value"]
        1.5
        """
        return self._single("mean", Mean())

    def min(self) -> WindowedFrame:
        """Return the smallest value.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).min().final(), [7, 2])[0]["value"]
        2
        """
        return self._single("min", Min())

    def max(self) -> WindowedFrame:
        """Return the largest value.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).max().final(), [7, 2])[0]["value"]
        7
        """
        return self._single("max", Max())

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merger: Callable[[Any, Any], Any] | None = None,
    ) -> WindowedFrame:
        """Fold the values: `initializer(first)`, then `reducer(so far, next)`.

        With a `merger`, a function of two states, records are combined before they move.

        >>> from millpond.testing import frame, run_local
        >>> window = frame().tumbling_count_window(3).reduce(
        ...     lambda longest, text: max(longest, text, key=len), lambda first: first
        ... )
        >>> run_local(window.final(), ["a", "pond", "of"])[0]["value"]
        'pond'

        Args:
            reducer: Takes the state and a value, returns the next state.
            initializer: Takes the first value, returns the first state.
            merger: Takes the states of an earlier and a later run of records, returns that of both.
        """
        return self._single("reduce", Reduce(reducer, initializer, merger))

    def collect(self) -> WindowedFrame:
        """Collect the values in a list, in the order of their timestamps.

        >>> from millpond.testing import frame, run_local
        >>> run_local(frame().tumbling_count_window(2).collect().final(), ["a", "b"])[0]["value"]
        ['a', 'b']
        """
        return self._single("collect", Collect())

    def _single(self, word: str, aggregation: Aggregation) -> WindowedFrame:
        store = f"{self._store()}_{word}"
        return WindowedFrame(self, {"value": aggregation}, store, is_single=True)

    def _store(self) -> str:
        return f"{self._name}_{self._kind.store}" if self._name else self._kind.store


class WindowedFrame:
    """A window with its aggregations. Made by `WindowDefinition.agg()` and similar methods.

    Its outputs are `final()`, `current()` and `late()`.

    >>> from millpond.testing import frame, run_local
    >>> window = frame().tumbling_window(60_000).count()
    >>> counts, late = window.final(), window.late()
    >>> records = [("ann", "/", 5_000), ("ann", "/", 70_000), ("ann", "/tea", 6_000)]
    >>> run = run_local(counts.concat(late), records, batches=1)
    >>> run[0]["value"], run[1]["value"], run[1]["late_by_ms"]
    (1, '/tea', 64000)
    """

    def __init__(
        self,
        definition: WindowDefinition,
        aggregations: dict[str, Aggregation],
        store: str,
        *,
        is_single: bool,
    ) -> None:
        self._definition = definition
        self._aggregations = aggregations
        self._store = store
        self._is_single = is_single
        self._step: Window | None = None
        self._number = definition._graph.open_window(f"{definition._kind} ({here()})")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a window", name, public(WindowedFrame), _OF_WINDOW)

    @property
    def name(self) -> str:
        """The name under which its state is kept.

        >>> from millpond.testing import frame
        >>> frame().tumbling_window(60_000, name="fast").count().name
        'fast_tumbling_window_60000_count'
        """
        return self._store

    def final(self, closing_strategy: Closing = "watermark") -> StreamingDataFrame:
        """Give each window's result once, when it closes.

        >>> from millpond.testing import frame, run_local
        >>> totals = frame().tumbling_window(60_000).sum().final()
        >>> run_local(totals, [("ann", 1, 0), ("ann", 2, 59_999), ("ann", 5, 60_000)])
        [{'start': 0, 'end': 60000, 'value': 3}]

        Args:
            closing_strategy: "watermark": when the time of the stream has passed the window's
                end and grace, also for keys that went quiet. "key": when a later record of the
                same key has passed them.
        """
        return self._made("final", closing_strategy)

    def current(self, closing_strategy: Closing = "watermark") -> StreamingDataFrame:
        """Give a window's result each time a record changes it.

        >>> from millpond.testing import frame, run_local
        >>> totals = frame().tumbling_window(60_000).sum().current()
        >>> [window["value"] for window in run_local(totals, [("ann", 1, 0), ("ann", 2, 10)])]
        [1, 3]

        Args:
            closing_strategy: When a window is closed and later records are late; see `final`.
        """
        return self._made("current", closing_strategy)

    def late(self) -> StreamingDataFrame:
        """Return a frame of the records that came too late, each with the reason.

        Each is `{"value", "timestamp", "window", "start", "end", "late_by_ms", "closed_up_to"}`.

        >>> from millpond.testing import frame, run_local
        >>> window = frame().tumbling_window(60_000).count()
        >>> counts, late = window.final(), window.late()
        >>> records = [("ann", "/", 70_000), ("ann", "/tea", 6_000)]
        >>> [item["value"] for item in run_local(late, records, batches=1)]
        ['/tea']
        """
        if self._step is None:
            msg = f"late() was called before final() or current() ({here()})."
            raise ConfigError(msg + "\nFix: totals = window.final(); late = window.late().")
        return self._definition._then(
            Late(parents=(self._step,), call_site=here(), name=self._store)
        )

    def _made(self, emit: Any, closing: Any) -> StreamingDataFrame:
        kind, callbacks = self._definition._kind, self._definition._callbacks
        if isinstance(kind, Counted):
            closing = "key"
        if closing not in ("watermark", "key"):
            msg = f"closing_strategy is 'watermark' or 'key', got {shown(closing)} ({here()})."
            raise ConfigError(msg + "\nFix: leave it out for 'watermark'.")
        if closing == "key" and isinstance(kind, TimeWindow) and kind.corrections_ms:
            msg = f"corrections_ms needs closing_strategy='watermark' ({here()})."
            raise ConfigError(msg + "\nFix: leave closing_strategy out.")
        if self._step is not None:
            msg = f"this window has its {self._step.emit}() already ({self._step.call_site})."
            raise ConfigError(msg + "\nFix: define the window again, with another name=.")
        self._step = Window(
            parents=(self._definition._head,),
            call_site=here(),
            name=self._store,
            kind=kind,
            aggregations=self._aggregations,
            emit=emit,
            closing=closing,
            is_single=self._is_single,
            on_late=callbacks.on_late,
            before_update=callbacks.before_update,
            after_update=callbacks.after_update,
        )
        self._definition._graph.close_window(self._number)
        return self._definition._then(self._step)
