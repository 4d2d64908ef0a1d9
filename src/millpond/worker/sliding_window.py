"""Sliding windows of a key: for each timestamp, the stretch of time that ends with it.

The records of a key that an open window may still need are kept; a window's result is made
from them when it is given. A record belongs to the window that ends with it and to those that end
up to a window's length later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from typing import Any

from millpond.arguments.windows import Sliding
from millpond.program.steps import Window
from millpond.worker.emit import StepFailure
from millpond.worker.schedule import Firing
from millpond.worker.time_window import Result, WindowLogic

__all__ = ["SlidingWindows"]

Item = tuple[int, int, Any]
"""(timestamp, how many records came before, value)"""


class SlidingWindows(WindowLogic):
    """State under "": (latest timestamp, records so far, items by time, ends of open windows)."""

    def __init__(self, step: Window, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, Sliding)
        self._kind = step.kind

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> list[Result]:
        duration = self._kind.duration_ms
        latest, count, items, ends = self._load(timestamp)
        now = max(latest, timestamp)
        # Windows that end before this are closed.
        closed = (now if self.by_key else self.step_clock.late_mark) - self._kind.grace_ms
        if timestamp < closed - duration:
            self.is_late(value, key, timestamp, self._start(timestamp), timestamp, closed)
            self.note_late()
            return []
        items.insert(bisect_right(items, timestamp, key=_time), (timestamp, count, value))
        if timestamp < closed:
            self.is_late(value, key, timestamp, self._start(timestamp), timestamp, closed)
        elif timestamp not in ends:
            ends.insert(bisect_left(ends, timestamp), timestamp)
        given: list[Result] = []
        if not self.is_final:
            low, high = bisect_left(ends, timestamp), bisect_right(ends, timestamp + duration)
            given = [self._result(end, items) for end in ends[low:high] if end >= closed]
        if self.by_key:
            over = ends[: bisect_left(ends, closed)]
            given = [self._result(end, items) for end in over] if self.is_final else given
            ends = ends[len(over) :]
            items = items[bisect_left(items, closed - duration, key=_time) :]
        else:
            waits = 0 if timestamp in ends else duration
            self.register(timestamp + waits + self._kind.grace_ms + 1)
        self._save(now, count + 1, items, ends)
        return given

    def _start(self, end: int) -> int:
        return max(0, end - self._kind.duration_ms) if end >= 0 else end - self._kind.duration_ms

    def _result(self, end: int, items: list[Item]) -> Result:
        low = bisect_left(items, end - self._kind.duration_ms, key=_time)
        inside = items[low : bisect_right(items, end, key=_time)]
        states = self.totals.start()
        for timestamp, _, value in sorted(inside, key=_arrival):
            states = self.totals.add(states, value, timestamp)
        return self.result(self._start(end), end, states)

    def _load(self, timestamp: int = 0) -> tuple[int, int, list[Item], list[int]]:
        return self.state.get("", (timestamp, 0, [], []))  # type: ignore[no-any-return]

    def _save(self, latest: int, count: int, items: list[Item], ends: list[int]) -> None:
        if items or ends or self.by_key:
            self.state.set("", (latest, count, items, ends))
        else:
            self.state.delete("")

    # --- waiting for the watermark ----------------------------------------------------------

    def due(self) -> list[Firing]:
        if self.by_key:
            return []
        _, _, items, ends = self._load()
        if not items:
            return []
        watermark, grace = self.step_clock.watermark, self._kind.grace_ms
        over = [end for end in ends if end + grace < watermark]
        closing = [
            Firing(end + grace + 1, str(end), partial(self._close, end), partial(self._forget, end))
            for end in over
        ]
        if not bisect_left(items, watermark - grace - self._kind.duration_ms, key=_time):
            return closing
        # After the last of them, the records that no window needs any more go ("~" sorts after
        # every number).
        cleaning = Firing(watermark, "~", lambda key: self._clean(), self._clean)
        return [*closing, cleaning]

    def next_due(self) -> int | None:
        if self.by_key:
            return None
        _, _, items, ends = self._load()
        delay = self.delay_ms + self._kind.grace_ms + 1
        if ends:
            return ends[0] + delay
        return items[0][0] + self._kind.duration_ms + delay if items else None

    def _close(self, end: int, key: Any) -> None:
        try:
            result = self._result(end, self._load()[2])
            self._forget(end)
        except Exception as error:
            raise StepFailure(self.step, error) from error
        if self.is_final:
            self.give([result], key)

    def _forget(self, end: int) -> None:
        latest, count, items, ends = self._load()
        self._save(latest, count, items, [other for other in ends if other != end])

    def _clean(self) -> None:
        latest, count, items, ends = self._load()
        closed = self.step_clock.watermark - self._kind.grace_ms
        low = bisect_left(items, closed - self._kind.duration_ms, key=_time)
        self._save(latest, count, items[low:], ends)


def _time(item: Item) -> int:
    return item[0]


def _arrival(item: Item) -> int:
    return item[1]
