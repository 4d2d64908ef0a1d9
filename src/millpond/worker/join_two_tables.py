"""`Table.join`: the rows of two tables that have the same key, as a table.

Each change of either side gives the row that is made of both, or None where there is none any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.program.key_types import check_key
from millpond.program.steps import Join
from millpond.worker.join import JoinLogic
from millpond.worker.join_table import Row
from millpond.worker.schedule import Firing

__all__ = ["TablesJoin"]

_NEEDED: dict[str, Callable[[Any, Any], bool]] = {
    "inner": lambda left, right: left is not None and right is not None,
    "left": lambda left, right: left is not None,
    "right": lambda left, right: right is not None,
    "outer": lambda left, right: left is not None or right is not None,
}


class TablesJoin(JoinLogic):
    """A join of two tables. Its state: the row of each."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        self._rows = (Row(self.state, "left"), Row(self.state, "right"))
        self._has_row = _NEEDED[step.kind.how]

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        check_key(key)
        before = [row.get() for row in self._rows]
        if not self._rows[side].change(timestamp, value):
            return []
        if value is None:
            self.register(timestamp + 1)
        other = before[1 - side]
        at = timestamp if other is None else max(timestamp, other[0])
        theirs = None if other is None else other[1]
        if self._has_row(*((theirs, value) if side else (value, theirs))):
            return [(self.merged(side, value, theirs), at, headers)]
        return [(None, at, headers)] if self._has_row(*before) else []

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        return [
            Firing(at + 1, str(number), lambda key, row=row: row.forget(), row.forget)  # type: ignore[misc]
            for number, row in enumerate(self._rows)
            if (at := row.deleted_at()) is not None and at + 1 <= watermark
        ]

    def next_due(self) -> int | None:
        moments = (row.deleted_at() for row in self._rows)
        known = [at + 1 + self.delay_ms for at in moments if at is not None]
        return min(known, default=None)
