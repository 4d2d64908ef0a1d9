"""Running totals of a key: over everything so far, late records like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from millpond.program.layouts import Layouts
from millpond.program.steps import Aggregate
from millpond.state.key_context import KeyContext
from millpond.state.view import State
from millpond.worker.emit import Push, StepFailure
from millpond.worker.totals import Totals

__all__ = ["RunningTotals"]


class RunningTotals:
    """`agg` at work. State under "": what `Totals` keeps of the list of states."""

    def __init__(
        self,
        step: Aggregate,
        context: KeyContext,
        state: State,
        give: Push,
        layouts: Layouts,
    ) -> None:
        self._step = step
        self._context = context
        self._state = state
        self._cursor = context.cursor
        self._give = give
        self._totals = Totals(step.aggregations, layouts=layouts)
        self._notes: list[tuple[bytes | None, int, Any, int]] = []
        """The records of the batch: key bytes, index, key, timestamp."""

    def push(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take a record and give the totals after it."""
        try:
            totals, kept = self._totals, self._state.get("")
            before = totals.start() if kept is None else totals.read(kept)
            states = totals.add(before, value, timestamp)
            self._state.set("", totals.keep(states))
            result = totals.result(states)
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._give(result, key, timestamp, headers)

    def push_quietly(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take a record; the totals are given at the end of the batch."""
        try:
            totals, kept = self._totals, self._state.get("")
            before = totals.start() if kept is None else totals.read(kept)
            self._state.set("", totals.keep(totals.add(before, value, timestamp)))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._note(key, timestamp)

    def merge(self, part: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take records that were brought together on the way here."""
        try:
            totals, kept = self._totals, self._state.get("")
            states = part if kept is None else totals.merge(totals.lifted(kept), part)
            self._state.set("", totals.keep(states))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._note(key, timestamp)

    def _note(self, key: Any, timestamp: int) -> None:
        self._notes.append((self._cursor.place.key, self._cursor.index, key, timestamp))

    def forget(self, index: int) -> None:
        """Take back what a record did that failed elsewhere."""
        while self._notes and self._notes[-1][1] == index:
            self._notes.pop()

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield, for each key of the batch, its first record and what gives the totals."""
        latest: dict[bytes | None, int] = {}
        firsts: dict[bytes | None, tuple[int, Any]] = {}
        for key_bytes, index, key, timestamp in self._notes:
            latest[key_bytes] = max(timestamp, latest.get(key_bytes, timestamp))
            firsts.setdefault(key_bytes, (index, key))
        self._notes = []
        for key_bytes, (index, key) in firsts.items():
            yield index, partial(self._emit, key_bytes, key, latest[key_bytes])

    def _emit(self, key_bytes: bytes | None, key: Any, timestamp: int) -> None:
        self._context.bind(key_bytes)
        self._cursor.at_time(timestamp)
        try:
            kept = self._state.get("")
            if kept is None:
                return
            result = self._totals.result(self._totals.read(kept))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._give(result, key, timestamp, None)
