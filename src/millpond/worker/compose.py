"""Steps to closures: each step becomes one function that calls the next.

Takes the plan and a stage, gives `Push` functions; nothing is interpreted per record. An
exception of a user's function is wrapped once, here, with the step it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import floor, inf, isfinite
from typing import Any, Protocol

from millpond.arguments.duration import EARLIEST_MS, LATEST_MS, as_int64, moment
from millpond.arguments.windows import Counted, Session, Sliding, TimeWindow
from millpond.connectors.topic import TimestampType, Topic
from millpond.errors import FutureTimestampError, IgnoreMessage, MillpondError, shown
from millpond.program.clocks import ClockPoint
from millpond.program.layouts import Layout
from millpond.program.plan import Edge
from millpond.program.steps import (
    Aggregate,
    Callback,
    Distinct,
    Emit,
    Fold,
    KeyBy,
    Late,
    Map,
    Merge,
    Read,
    Step,
    UpdateState,
    Watermark,
    Window,
    Write,
)
from millpond.state.codec import Codec
from millpond.state.cursor import Cursor
from millpond.state.key_context import KeyContext
from millpond.state.layout import MOST_BYTES
from millpond.state.migrate import Lifts, MigratingState
from millpond.state.view import State
from millpond.wire.any_value import copy_value
from millpond.worker.agg import RunningTotals
from millpond.worker.combine import Combiner
from millpond.worker.count_window import CountedWindows
from millpond.worker.drop_duplicates import distinct
from millpond.worker.emit import Emitter, Push, StepFailure
from millpond.worker.schedule import Schedule, TimerWatcher
from millpond.worker.session_window import Sessions
from millpond.worker.sliding_window import SlidingWindows
from millpond.worker.time_window import TimeWindows, WindowLogic
from millpond.worker.update_state import TableUpdate

__all__ = ["Composer", "Finisher"]


class Composer:
    """Builds the functions of one stage."""

    def __init__(
        self,
        children: Callable[[Step], Iterable[Step]],
        emitters: Callable[[Step], list[Emitter | Combiner]],
        writers: dict[Step, Emitter],
        context: KeyContext,
        schedule: Schedule,
        points: dict[Step, ClockPoint],
        weigh: Callable[[], int],
        lifts: dict[str, Lifts],
        layouts: dict[str, list[Layout]],
        stepping: Callable[[Step, Push], Push],
        finishers: list[Finisher],
    ) -> None:
        self._stepping = stepping
        self._children = children
        self._lifts = lifts
        self._layouts = layouts
        self._emitters = emitters
        self._writers = writers
        self._context = context
        self._schedule = schedule
        self._points = points
        self._weigh = weigh
        self._made: dict[Step, Push] = {}
        self.windows: list[WindowLogic] = []
        self._finishers = finishers
        self._merges: dict[Step, Push] = {}

    def reading(self, read: Read) -> Push:
        """Return the function that takes the records of a source."""
        extract, give = read.source.timestamp_extractor, self._below(read)
        return give if extract is None else _extracted(read, extract, self.clocked(read, give))

    def arriving(self, edge: Edge) -> Push:
        """Return the function that takes the records of an edge."""
        if edge.combines is None:
            return _fan_out([], [self._push(step) for step in edge.enter], edge.after)
        self._push(edge.combines)
        return self._merges[edge.combines]

    def clocked(self, step: Step, give: Push) -> Push:
        """Tell the time by each record that comes by a step; set aside what is too far ahead."""
        return _clocked(self._points[step], step, self._schedule, self._context, give)

    def _below(self, step: Step) -> Push:
        """Return the function that hands on what a step gives."""
        sinks = [emitter.push() for emitter in self._emitters(step)]
        children = [child for child in self._children(step) if not isinstance(child, Late)]
        give = _fan_out(sinks, [self._push(child) for child in children], step)
        if isinstance(step, Window) and step in self._points:
            return self.clocked(step, give)
        return give

    def _push(self, step: Step) -> Push:
        """Return the function of a step and all that follows it in the stage."""
        if step not in self._made:
            self._made[step] = self._stepping(step, self._make(step, self._below(step)))
        return self._made[step]

    def _make(self, step: Step, give: Push) -> Push:
        if isinstance(step, Map):
            return self._map(step, give)
        if isinstance(step, Fold):
            return _fold(step, self._state_of(step), self._context.codec, give)
        if isinstance(step, Aggregate):
            return self._aggregate(step, give)
        if isinstance(step, Window):
            return self._window(step, give)
        if isinstance(step, Distinct):
            return distinct(step, self._state_of(step), self._context.codec, give)
        if isinstance(step, UpdateState):
            update = TableUpdate(step, self._context, give)
            self._finishers.append(update)
            return update.push
        return self._make_stateless(step, give)

    def _make_stateless(self, step: Step, give: Push) -> Push:
        if isinstance(step, Watermark):
            stamped = self.clocked(step, give)
            return stamped if step.on is None else _stamped(step, step.on, stamped)
        if isinstance(step, KeyBy):
            return _key_by(step, give)
        if isinstance(step, Write):
            return _write(step, self._writers[step], give)
        if isinstance(step, Emit):
            return _emit(self._writers[step].push(), give)
        assert isinstance(step, Merge | Late), step
        return give

    def _state_of(self, step: Step) -> State:
        timed = isinstance(step, Map) and step.on_timer is not None
        ttl_ms = step.within_ms if isinstance(step, Distinct) else getattr(step, "ttl_ms", None)
        clock = self._schedule.clock_of(step) if step.is_stateful else None
        lifts = self._lifts.get(step.store)
        make = State if lifts is None else partial(MigratingState, lifts=lifts)
        return make(
            self._context,
            step.store,
            clock=clock,
            ttl_ms=ttl_ms,
            owner=step.name if timed else None,
            keeps_longest=isinstance(step, Aggregate),  # a late record does not shorten its life
        )

    def _map(self, step: Map, give: Push) -> Push:
        if step.kind == "timestamp":
            give = self.clocked(step, give)
        state = self._state_of(step)
        if step.kind == "apply" and step.callback.takes_state and not step.callback.takes_metadata:
            push = _apply_stateful(step, step.callback.function, state, give)
        elif step.kind == "expand":
            call = _adapted(step.callback, state)
            push = _expand(step, call, give, self._context.cursor, self._weigh)
        else:
            push = _MAPS[step.kind](step, _adapted(step.callback, state), give)
        return push if step.on_timer is None else self._timed(step, state, give, push)

    def _timed(self, step: Map, state: State, give: Push, push: Push) -> Push:
        """Let the timers of a step fire by the clocks, and by the records of their key."""
        clock = self._schedule.clock_of(step)
        timers, wall = (
            TimerWatcher(step, state, self._context, clock, give, kind)
            for kind in ("event", "processing")
        )
        self._schedule.watchers += [timers, wall]
        return timers.before(push, self._schedule.lateness_of(step))

    def _aggregate(self, step: Aggregate, give: Push) -> Push:
        state, layouts = self._state_of(step), self._layouts.get(step.store, ())
        totals = RunningTotals(step, self._context, state, give, layouts)
        if step.emit == "record":
            return totals.push
        self._merges[step] = totals.merge
        self._finishers.append(totals)
        return totals.push_quietly

    def _window(self, step: Window, give: Push) -> Push:
        late = [self._push(child) for child in self._children(step) if isinstance(child, Late)]
        give_late = _fan_out([], late, step) if late else None
        clock = self._schedule.clock_of(step)
        layouts = self._layouts.get(step.store, ())
        ways = (give, give_late)
        logic = _LOGIC[type(step.kind)](step, self._context, clock, *ways, layouts)
        self.windows.append(logic)
        if step.closing == "watermark":
            self._schedule.watchers.append(logic)
        if isinstance(logic, TimeWindows):
            self._merges[step] = logic.merge
        return logic.push


# The number of items of one record after which their bytes are counted first; then after twice as
# many, and so on.
_FIRST_LOOK = 512


class Finisher(Protocol):
    """A step that has something to do after the last record of a batch."""

    def forget(self, index: int) -> None:
        """Take back what the record of an index did."""

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the index of a record, and what is to be done in its name."""


_LOGIC: dict[type, type[WindowLogic]] = {
    TimeWindow: TimeWindows,
    Sliding: SlidingWindows,
    Session: Sessions,
    Counted: CountedWindows,
}


def _clocked(
    point: ClockPoint, step: Step, schedule: Schedule, context: KeyContext, give: Push
) -> Push:
    number, ahead = point.number, point.clocking.max_future_ms
    seen, cursor = schedule.seen, context.cursor
    # A window may start a little before its records. What is above the range and guarded is said
    # to be of the future.
    least = -inf if isinstance(step, Window) else EARLIEST_MS
    most = inf if isinstance(step, Window) or point.is_guarded else LATEST_MS

    def tell(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        if not least <= timestamp <= most:
            raise StepFailure(step, _out_of_range(timestamp))
        if ahead is not None and timestamp > context.now + ahead:
            if point.is_guarded:
                raise StepFailure(step, too_far_ahead(timestamp, context.now, ahead))
        elif timestamp > seen.get(number, _NEVER):
            seen[number] = timestamp
        before = cursor.at_time(timestamp)
        give(value, key, timestamp, headers)
        cursor.at_time(before)

    return tell


_NEVER = -(2**63) - 1


def _out_of_range(timestamp: int) -> MillpondError:
    return MillpondError(
        f"the record's time, {timestamp}, is not in the years 1 to 9999.\n"
        "Fix: correct the producer, or what gives the time: milliseconds since 1970, not micro- "
        "or nanoseconds."
    )


def too_far_ahead(timestamp: int, now: int, ahead: int) -> FutureTimestampError:
    """Return what is said of a record from the future."""
    return FutureTimestampError(
        f"the record's time, {timestamp}, is {timestamp - now} ms ahead of the wall clock, more "
        f"than the {ahead} ms that max_future allows; it would close everybody's windows.\n"
        "Fix: correct the producer's clock or the timestamp extractor (are its numbers "
        "milliseconds?), or raise max_future."
    )


def _extracted(read: Read, extract: Callable[..., Any], give: Push) -> Push:
    """Give each record the time that the topic's extractor finds in it."""

    def stamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            extracted = extract(value, headers, timestamp, TimestampType.CREATE_TIME)
            timestamp = _checked_timestamp(extracted, "timestamp_extractor")
        except Exception as error:
            _failed(read, error)
            return
        give(value, key, timestamp, headers)

    return stamp


def _stamped(step: Step, on: Callable[[Any], Any], give: Push) -> Push:
    """Give each record the time that a function finds in its value."""

    def stamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            found = on(value)
            is_number = type(found) is int and as_int64(found) == found
            timestamp = found if is_number else moment(found, "the time of a record")
        except Exception as error:
            _failed(step, error)
            return
        give(value, key, timestamp, headers)

    return stamp


def _fan_out(sinks: list[Push], nexts: list[Push], step: Step) -> Push:
    """Emitters encode at once, so they share the value; each branch but the last gets a copy."""
    pushes = [*sinks, *nexts]
    if len(pushes) == 1:
        return pushes[0]
    if not pushes:
        return _nothing
    *copied, last = nexts or [_nothing]

    def give_all(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        for sink in sinks:
            sink(value, key, timestamp, headers)
        for branch in copied:
            try:
                copy = copy_value(value)
            except Exception as error:
                raise StepFailure(step, error) from error
            branch(copy, key, timestamp, headers)
        last(value, key, timestamp, headers)

    return give_all


def _nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    pass


def _adapted(callback: Callback, state: State) -> Callable[[Any, Any, int, Any], Any]:
    """Return the user's function with the one signature the engine calls."""
    function = callback.function
    if callback.takes_state and callback.takes_metadata:
        return lambda value, key, timestamp, headers: function(
            value, key, timestamp, headers, state
        )
    if callback.takes_state:
        return lambda value, key, timestamp, headers: function(value, state)
    if callback.takes_metadata:
        return function
    return lambda value, key, timestamp, headers: function(value)


Call = Callable[[Any, Any, int, Any], Any]


def _apply(step: Map, call: Call, give: Push) -> Push:
    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = call(value, key, timestamp, headers)
        except Exception as error:
            _failed(step, error)
            return
        give(result, key, timestamp, headers)

    return apply


def _apply_stateful(step: Map, function: Callable[..., Any], state: State, give: Push) -> Push:
    """The commonest step of all, without the call in between."""

    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = function(value, state)
        except Exception as error:
            _failed(step, error)
            return
        give(result, key, timestamp, headers)

    return apply


def _update(step: Map, call: Call, give: Push) -> Push:
    def update(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            call(value, key, timestamp, headers)
        except Exception as error:
            _failed(step, error)
            return
        give(value, key, timestamp, headers)

    return update


def _filter(step: Map, call: Call, give: Push) -> Push:
    def keep(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            wanted = bool(call(value, key, timestamp, headers))
        except Exception as error:
            _failed(step, error)
            return
        if wanted:
            give(value, key, timestamp, headers)

    return keep


def _expand(step: Map, call: Call, give: Push, cursor: Cursor, weigh: Callable[[], int]) -> Push:
    def expand(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            results = _items(call(value, key, timestamp, headers))
        except Exception as error:
            _failed(step, error)
            return
        # As `Cursor.children`, in place: a generator took a tenth of an expansion to two items.
        before = cursor.path
        number, look = 0, _FIRST_LOOK
        while True:
            try:
                item = next(results)
            except StopIteration:
                break
            except Exception as error:
                _failed(step, error)
                break
            cursor.path = (before or b"") + number.to_bytes(5, "big")
            give(item, key, timestamp, headers)
            number += 1
            if number == look:
                look *= 2
                if (found := weigh()) > MOST_BYTES:
                    raise StepFailure(step, _too_much(number, found))
        cursor.path = before

    return expand


def _failed(step: Step, error: Exception) -> None:
    """Wrap what a user's function raised; `IgnoreMessage` ends the record here, like a filter."""
    if not isinstance(error, IgnoreMessage):
        raise StepFailure(step, error) from error


def _too_much(items: int, found: int) -> MillpondError:
    return MillpondError(
        f"one record gave {items:,} items or more, which take {found:,} bytes with its key and "
        f"headers; {MOST_BYTES:,} bytes are the most.\n"
        "Fix: give fewer items, or make the key and the headers of the record smaller before."
    )


def _items(results: Any) -> Iterator[Any]:
    if not isinstance(results, Iterable):
        msg = f"with expand=True the function must return several values, got {shown(results)}."
        raise MillpondError(msg + "\nFix: return a list of them.")
    return iter(results)


def _set_timestamp(step: Map, call: Call, give: Push) -> Push:
    def set_timestamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            stamp = _checked_timestamp(call(value, key, timestamp, headers), "set_timestamp()")
        except Exception as error:
            _failed(step, error)
            return
        give(value, key, stamp, headers)

    return set_timestamp


def _set_headers(step: Map, call: Call, give: Push) -> Push:
    def set_headers(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = call(value, key, timestamp, headers)
        except Exception as error:
            _failed(step, error)
            return
        give(value, key, timestamp, new)

    return set_headers


_MAPS: dict[str, Callable[[Map, Call, Push], Push]] = {
    "apply": _apply,
    "update": _update,
    "filter": _filter,
    "timestamp": _set_timestamp,
    "headers": _set_headers,
}


def _fold(step: Fold, state: State, codec: Codec, give: Push) -> Push:
    function, initial = step.function, step.initial
    start: Callable[[], Any]
    if callable(initial):
        start = initial
    else:
        encoded = codec.encode(initial)
        start = lambda: codec.decode(encoded)  # noqa: E731 - a fresh copy each time
    missing = object()

    def fold(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            before = state.get("", missing)
            result = function(key, value, start() if before is missing else before)
            output, after = result if type(result) is tuple else _pair(result)
            if after is None:
                state.delete("")
            else:
                state.set("", after)
        except Exception as error:
            _failed(step, error)
            return
        give(output, key, timestamp, headers)

    return fold


def _pair(result: Any) -> tuple[Any, Any]:
    """Return what a fold gave, if it is an output and a state."""
    try:
        output, after = result
    except (TypeError, ValueError):
        msg = (
            f"the function must return (output, new state), got {shown(result)}.\n"
            "Fix: return output, state."
        )
        raise MillpondError(msg) from None
    return output, after


def _key_by(step: KeyBy, give: Push) -> Push:
    function = step.function
    if step.field is not None:
        return _key_by_field(step, step.field, give)

    def key_by(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = function(value)
        except Exception as error:
            _failed(step, error)
            return
        give(value, new, timestamp, headers)

    return key_by


def _key_by_field(step: KeyBy, name: str, give: Push) -> Push:
    """The commonest key of all, without the calls in between."""

    def key_by(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = value[name]
        except Exception:
            try:
                new = step.function(value)
            except Exception as better:
                raise StepFailure(step, better) from better
        give(value, new, timestamp, headers)

    return key_by


def _write(step: Write, emitter: Emitter, give: Push) -> Push:
    if step.choose is None:
        return _emit(emitter.push(), give)
    choose = step.choose

    def write(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            topic = choose(value, key, timestamp, headers)
            if not isinstance(topic, Topic):
                raise _not_a_topic(topic)
        except Exception as error:
            raise StepFailure(step, error) from error
        emitter.add((value, topic), key, timestamp, headers, topic.name)
        give(value, key, timestamp, headers)

    return write


def _emit(add: Push, give: Push) -> Push:
    if give is _nothing:
        return add

    def emit(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        add(value, key, timestamp, headers)
        give(value, key, timestamp, headers)

    return emit


def _checked_timestamp(moment: Any, what: str) -> int:
    """Return a timestamp that is an int, or say what is wrong."""
    if type(moment) is float and isfinite(moment):
        moment = floor(moment)
    if type(moment) is int and as_int64(moment) == moment:
        return moment
    msg = (
        f"{what} must give a number of milliseconds, got {shown(moment)}.\n"
        "Fix: int(moment.timestamp() * 1000) for a datetime, int(seconds * 1000) for seconds."
    )
    raise MillpondError(msg)


def _not_a_topic(given: Any) -> MillpondError:
    return MillpondError(
        f"the function given to to_topic() must return a topic, got {shown(given)}.\n"
        "Fix: make the topics with app.topic(...) and return one of them."
    )
