"""Windows of a key: which a record belongs to, when they close, what is late.

Takes records of a stage in which the state of their key is in view; gives results to the steps
after, and late records to `Late`. This module has what all windows share, and the windows of
fixed length; `session_window`, `sliding_window` and `count_window` have the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from millpond.aggregations import Collect
from millpond.arguments.windows import Counted, TimeWindow
from millpond.program.layouts import Layouts
from millpond.program.steps import Window
from millpond.state.key_context import KeyContext
from millpond.state.timers import StepClock
from millpond.state.view import State
from millpond.worker.emit import Push, StepFailure
from millpond.worker.schedule import Firing, never_ends
from millpond.worker.totals import Totals

__all__ = ["TimeWindows", "WindowLogic", "starts_of"]

logger = logging.getLogger("millpond")

Result = tuple[int, dict[str, Any]]
"""The timestamp of a result (the window's start; of a session its last record), and the result."""


class WindowLogic:
    """What all windows share: late records, results, callbacks."""

    def __init__(
        self,
        step: Window,
        context: KeyContext,
        clock: StepClock,
        give: Push,
        give_late: Push | None,
        layouts: Layouts,
    ) -> None:
        self.step = step
        by_arrival = isinstance(step.kind, Counted)
        self.totals = Totals(step.aggregations, by_arrival=by_arrival, layouts=layouts)
        self._fields = _in_order(step)
        self.context = context
        self.state = State(context, step.store)
        self.clock = clock.name
        self.step_clock = clock
        self.delay_ms = clock.delay_ms
        self.by_key = step.closing == "key"
        self.is_final = step.emit == "final"
        self.late_rows: list[int] = []
        """Records of this run that were late for every window they belong to."""
        self._cursor = context.cursor
        self._give = give
        self._give_late = give_late

    def push(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take a record."""
        try:
            results = self.take(value, key, timestamp, headers)
        except StepFailure:
            raise
        except Exception as error:
            raise StepFailure(self.step, error) from error
        self.give(results, key)

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> list[Result]:
        """Add a record to its windows and return what is to be given at once."""
        raise NotImplementedError

    def give(self, results: list[Result], key: Any) -> None:
        """Hand results on; where one record gives several, each has its own place."""
        cursor = self._cursor
        now = cursor.timestamp
        for timestamp, result in cursor.children(results) if len(results) > 1 else results:
            cursor.at_time(timestamp)
            self._give(result, key, timestamp, None)
        cursor.at_time(now)

    def result(self, start: int, end: int, states: list[Any]) -> Result:
        """Return a result and its timestamp; its fields are in the order of Quix Streams."""
        values = self.totals.result(states)
        if self.step.is_single:
            return start, {"start": start, "end": end, **values}
        return start, {**{name: values[name] for name in self._fields}, "start": start, "end": end}

    def is_triggered(
        self, callback: Callable[..., bool] | None, states: list[Any], record: tuple[Any, ...]
    ) -> bool:
        """Ask `before_update` or `after_update` whether a window is to close at once."""
        if callback is None:
            return False
        results = self.totals.result(states)
        shown = next(iter(results.values())) if self.step.is_single else results
        return bool(callback(shown, *record))

    def is_late(
        self, value: Any, key: Any, timestamp: int, start: int, end: int, closed: int
    ) -> None:
        """Say that a record came too late for a window: to `on_late`, and to `late()`."""
        late_by = closed - timestamp
        step = self.step
        place = self._cursor.context()
        where = (place.topic, place.partition, place.offset)
        if step.on_late is not None:
            facts = (value, key, timestamp, late_by, start, end, step.store, *where)
            if step.on_late(*facts):
                logger.warning(
                    "late by %s ms for window %s [%s, %s): %s[%s] offset %s",
                    *(late_by, step.store, start, end, *where),
                )
        if self._give_late is not None:
            report = {
                "value": value,
                "timestamp": timestamp,
                "window": step.store,
                "start": start,
                "end": end,
                "late_by_ms": late_by,
                "closed_up_to": closed,
            }
            self._give_late(report, key, timestamp, None)

    def note_late(self) -> None:
        """Count the record in hand as late: no window took it."""
        self.late_rows.append(self._cursor.index)

    # --- waiting for the clock --------------------------------------------------------------

    def due(self) -> list[Firing]:
        return []

    def next_due(self) -> int | None:
        return None

    def never_ends(self, key: Any) -> None:
        raise never_ends(self.step, key)

    def register(self, moment: int) -> None:
        """Have the key looked at when the step's clock shows a moment."""
        self.context.register(moment + self.delay_ms, self.clock)


def _in_order(step: Window) -> list[str]:
    """Return the names of a window's results: first what is aggregated, then what is collected."""
    aggregations = step.aggregations
    return sorted(aggregations, key=lambda name: isinstance(aggregations[name], Collect))


class TimeWindows(WindowLogic):
    """Tumbling and hopping windows. State: what `Totals` keeps, under each window's start.

    A window that has closed and may still be corrected is a tuple (revision, that). By key, the
    name "" has (latest timestamp of the key, start of the earliest window).
    """

    def __init__(self, step: Window, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, TimeWindow)
        self._kind = step.kind
        self._starts = starts_of(step.kind)

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> list[Result]:
        kind = self._kind
        if self.by_key:
            latest, earliest = self.state.get("", (timestamp, None))
            now = max(latest, timestamp)
            closed = now - kind.grace_ms
        else:
            earliest = now = None
            closed = self.step_clock.late_mark - kind.grace_ms
        given: list[Result] = []
        is_taken = False
        for start in self._starts(timestamp):
            end = start + kind.duration_ms
            if end > closed:
                is_taken = True
                self._update(start, end, (value, key, timestamp, headers), given)
                earliest = start if earliest is None else min(earliest, start)
            elif kind.corrections_ms and end + kind.corrections_ms > closed:
                is_taken = True
                given.append(self._correct(start, end, value, timestamp))
            else:
                self.is_late(value, key, timestamp, start, end, closed)
        if not is_taken:
            self.note_late()
        if self.by_key:
            given = self._close_by_key(now, earliest, closed - kind.duration_ms) + given
        return given

    def _update(self, start: int, end: int, record: tuple[Any, ...], given: list[Result]) -> None:
        """Add a record to an open window."""
        step, name = self.step, str(start)
        value, _, timestamp, _ = record
        found = self.state.get(name)
        states = self.totals.start() if found is None else self.totals.read(found)
        facts = (value, *record[1:])
        if self.is_triggered(step.before_update, states, facts):
            given.append(self._first(start, end, states))
            self.state.delete(name)
            return
        states = self.totals.add(states, value, timestamp)
        if self.is_triggered(step.after_update, states, facts):
            given.append(self._first(start, end, states))
            self.state.delete(name)
            return
        self.state.set(name, self.totals.keep(states))
        if found is None and not self.by_key:
            self.register(end + self._kind.grace_ms)
        if not self.is_final:
            given.append(self._first(start, end, states))

    def merge(self, part: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take records that were brought together on the way here: (start, states).

        Where there is no start, it is one record that missed windows: (starts, value, all?).
        """
        start, states = part
        name = str(start)
        try:
            if start is None:
                starts, value, is_lost = states
                self._miss(starts, value, key, timestamp)
                if is_lost:
                    self.note_late()
                return
            found = self.state.get(name)
            if found is None:
                self.register(start + self._kind.duration_ms + self._kind.grace_ms)
            else:
                states = self.totals.merge(self.totals.lifted(found), states)
            self.state.set(name, self.totals.keep(states))
        except StepFailure:
            raise
        except Exception as error:
            raise StepFailure(self.step, error) from error

    def _miss(self, starts: list[int], value: Any, key: Any, timestamp: int) -> None:
        closed = self.step_clock.late_mark - self._kind.grace_ms
        for start in starts:
            end = start + self._kind.duration_ms
            self.is_late(value, key, timestamp, start, end, closed)

    def _correct(self, start: int, end: int, value: Any, timestamp: int) -> Result:
        """Add a late record to a window that has closed and return the corrected result."""
        name = str(start)
        found = self.state.get(name)
        revision, kept = found if type(found) is tuple else (-1, found)
        before = self.totals.start() if kept is None else self.totals.read(kept)
        states = self.totals.add(before, value, timestamp)
        self.state.set(name, (revision + 1, self.totals.keep(states)))
        if found is None:
            self.register(end + self._kind.grace_ms + self._kind.corrections_ms)
        return self._revised(start, end, revision + 1, states)

    def _first(self, start: int, end: int, states: list[Any]) -> Result:
        """Return a result of a window that has not closed yet."""
        if self._kind.corrections_ms:
            return self._revised(start, end, 0, states)
        return self.result(start, end, states)

    def _revised(self, start: int, end: int, revision: int, states: list[Any]) -> Result:
        _, result = self.result(start, end, states)
        return start, {**result, "revision": revision}

    def _close_by_key(self, now: int, earliest: int | None, last: int) -> list[Result]:
        """Close the windows of the key that start at `last` or before."""
        given: list[Result] = []
        if earliest is not None and earliest <= last:
            starts = sorted(self._open())
            for start in starts:
                if start <= last:
                    end = start + self._kind.duration_ms
                    if self.is_final:
                        states = self.totals.read(self.state.get(str(start)))
                        given.append(self.result(start, end, states))
                    self.state.delete(str(start))
            earliest = min((start for start in starts if start > last), default=None)
        self.state.set("", (now, earliest))
        return given

    def _open(self) -> list[int]:
        return [int(name) for name in self.state.keys() if name]  # noqa: SIM118 - not a dict

    # --- waiting for the watermark ----------------------------------------------------------

    def _end_of(self, start: int) -> int:
        """Return the moment at which a window of the key in view is finished with."""
        kind = self._kind
        closes = start + kind.duration_ms + kind.grace_ms
        if kind.corrections_ms and type(self.state.get(str(start))) is tuple:
            return closes + kind.corrections_ms
        return closes

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        return [
            Firing(at, str(start), self._closer(start), partial(self.state.delete, str(start)))
            for start in self._open()
            if (at := self._end_of(start)) <= watermark
        ]

    def next_due(self) -> int | None:
        delay = self.delay_ms
        return min((self._end_of(start) + delay for start in self._open()), default=None)

    def _closer(self, start: int) -> Callable[[Any], None]:
        def close(key: Any) -> None:
            name, end = str(start), start + self._kind.duration_ms
            try:
                kept = self.state.get(name)
                if kept is None:
                    return
                self.state.delete(name)
                if type(kept) is tuple:
                    return  # closed long ago; now it cannot be corrected any more
                states = self.totals.read(kept)
                result = self.result(start, end, states)
                if self._kind.corrections_ms:
                    self.state.set(name, (0, self.totals.keep(states)))
                    result = self._revised(start, end, 0, states)
            except Exception as error:
                raise StepFailure(self.step, error) from error
            if self.is_final:
                self.give([result], key)

        return close


def starts_of(kind: TimeWindow) -> Callable[[int], Sequence[int]]:
    """Return what gives the starts of the windows that hold a timestamp, the earliest first.

    >>> starts_of(TimeWindow(duration_ms=10, step_ms=5))(12)
    range(5, 11, 5)
    """
    duration, step = kind.duration_ms, kind.step_ms
    if duration == step:
        return lambda timestamp: (timestamp - timestamp % duration,)

    def starts(timestamp: int) -> range:
        last = timestamp - timestamp % step
        first = last - (duration - 1 - timestamp % step) // step * step
        if timestamp >= 0:
            first = max(first, 0)  # no window starts before 1970
        return range(first, last + 1, step)

    return starts
