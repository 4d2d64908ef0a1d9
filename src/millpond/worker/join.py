"""What all joins share: two sides, late records, and the record made of two.

Takes records of a stage in which the state of their key is in view; gives joined records to the
steps after, and late records to `Late`. `join_interval` and `join_asof` decide who meets whom.
"""

from __future__ import annotations

from typing import Any

from millpond.arguments.joins import side_names
from millpond.program.key_types import KeyType, check_meets
from millpond.program.steps import Join, JoinSide
from millpond.state.key_context import KeyContext
from millpond.state.timers import StepClock
from millpond.state.view import State
from millpond.wire.any_value import copy_value
from millpond.worker.emit import Push, StepFailure
from millpond.worker.schedule import Firing, never_ends

__all__ = ["JoinLogic"]


class JoinLogic:
    """A join at work. It waits for the clock of both sides."""

    def __init__(
        self,
        step: Join,
        context: KeyContext,
        clock: StepClock,
        give: Push,
        give_late: Push | None,
    ) -> None:
        self.step = step
        self.context = context
        self.state = State(context, step.store)
        self.clock = clock.name
        self.step_clock = clock
        self.delay_ms = clock.delay_ms
        self.late_rows: list[int] = []
        """Records of this run that came too late to meet others."""
        self._cursor = context.cursor
        self._give = give
        self._give_late = give_late

    def side(self, number: int) -> Push:
        """Return the function that takes the records of a side."""
        half = self.step.parents[number]
        meets: KeyType | None = half.meets if isinstance(half, JoinSide) else None

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            try:
                if meets is not None and type(key) is not meets.type:
                    check_meets(key, meets)
                results = self.take(number, value, key, timestamp, headers)
            except StepFailure:
                raise
            except Exception as error:
                raise StepFailure(self.step, error) from error
            if results:
                self.give(results, key)

        return push

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        """Take a record and return what comes of it at once: value, timestamp and headers."""
        raise NotImplementedError

    def give(self, results: list[tuple[Any, int, Any]], key: Any) -> None:
        """Hand results on; where there are several, each has its own place."""
        cursor = self._cursor
        now = cursor.timestamp
        several = cursor.children(results) if len(results) > 1 else results
        for value, timestamp, headers in several:
            cursor.at_time(timestamp)
            self._give(value, key, timestamp, headers)
        cursor.at_time(now)

    def merged(self, side: int, mine: Any, other: Any) -> Any:
        """Return the record made of two; `side` is that of the first."""
        left, right = (other, mine) if side else (mine, other)
        return self.step.merge(left, right)

    def shared(self, value: Any, uses: int) -> list[Any]:
        """Return a value for each of its uses: a function that changes one changes no other."""
        return [copy_value(value) for _ in range(uses - 1)] + [value] * (uses > 0)

    def is_late(self, side: int, value: Any, key: Any, timestamp: int, closed: int) -> None:
        """Say that a record came too late: count it, and give it to `late()`."""
        self.late_rows.append(self._cursor.index)
        if self._give_late is not None:
            report = {
                "value": value,
                "timestamp": timestamp,
                "join": self.step.store,
                "side": side_names[side],
                "late_by_ms": closed - timestamp,
                "closed_up_to": closed,
            }
            self._give_late(report, key, timestamp, None)

    # --- waiting for the clock --------------------------------------------------------------

    def due(self) -> list[Firing]:
        raise NotImplementedError

    def next_due(self) -> int | None:
        raise NotImplementedError

    def never_ends(self, key: Any) -> None:
        raise never_ends(self.step, key)

    def register(self, moment: int) -> None:
        """Have the key looked at when the step's clock shows a moment."""
        self.context.register(moment + self.delay_ms, self.clock)
