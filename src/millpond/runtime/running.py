"""Running totals of a key: over everything so far, late records like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from millpond.record import Origin
from millpond.runtime.emit import Push, StepFailure
from millpond.runtime.totals import Totals
from millpond.state.view import KeyScope, State
from millpond.steps.kinds import Aggregate

__all__ = ["RunningTotals"]


class RunningTotals:
    """`agg` at work. State: the list of states under ""."""

    def __init__(
        self, step: Aggregate, scope: KeyScope, state: State, origin: Origin, give: Push
    ) -> None:
        self._step = step
        self._scope = scope
        self._state = state
        self._origin = origin
        self._give = give
        self._totals = Totals(step.aggregations)
        self._notes: list[tuple[bytes | None, int, Any, int]] = []
        """The records of the batch: key bytes, index, key, timestamp."""

    def push(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take a record and give the totals behind it."""
        try:
            states = self._state.get("")
            before = self._totals.start() if states is None else states
            states = self._totals.add(before, value, timestamp)
            self._state.set("", states)
            result = self._totals.result(states)
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._give(result, key, timestamp, headers)

    def push_quietly(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take a record; the totals are given at the end of the batch."""
        try:
            states = self._state.get("")
            before = self._totals.start() if states is None else states
            self._state.set("", self._totals.add(before, value, timestamp))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._note(key, timestamp)

    def merge(self, part: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take records that were brought together on the way here."""
        try:
            states = self._state.get("")
            self._state.set("", part if states is None else self._totals.merge(states, part))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._note(key, timestamp)

    def _note(self, key: Any, timestamp: int) -> None:
        self._notes.append((self._scope.place.key, self._origin.index, key, timestamp))

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
        self._scope.bind(key_bytes)
        self._scope.timestamp = timestamp
        try:
            states = self._state.get("")
            if states is None:
                return
            result = self._totals.result(states)
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._give(result, key, timestamp, None)
