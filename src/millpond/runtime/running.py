"""Running totals of a key: over everything so far, late records like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        self._touched: dict[bytes | None, tuple[int, Any, int, Any]] = {}
        """For each key of the batch its latest record: index, key, timestamp, headers."""

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
        self._note(key, timestamp, headers)

    def merge(self, part: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Take records that were brought together on the way here."""
        try:
            states = self._state.get("")
            self._state.set("", part if states is None else self._totals.merge(states, part))
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._note(key, timestamp, headers)

    def _note(self, key: Any, timestamp: int, headers: Any) -> None:
        self._touched[self._scope.place.key] = (self._origin.index, key, timestamp, headers)

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield, for each key of the batch, the record that stands for it and what gives it."""
        touched, self._touched = self._touched, {}
        for key_bytes, (index, key, timestamp, headers) in touched.items():
            yield index, lambda: self._emit(key_bytes, key, timestamp, headers)  # noqa: B023 - called at once

    def _emit(self, key_bytes: bytes | None, key: Any, timestamp: int, headers: Any) -> None:
        self._scope.bind(key_bytes)
        try:
            states = self._state.get("")
            if states is None:
                return
            result = self._totals.result(states)
        except Exception as error:
            raise StepFailure(self._step, error) from error
        self._give(result, key, timestamp, headers)
