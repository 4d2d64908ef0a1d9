"""`Table.join`: the rows of two tables that have the same key, as a table.

Each change of either side gives the row that is made of both, or None where there is none any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.program.key_types import check_key
from millpond.program.steps import Join
from millpond.worker.join_table import Row, RowJoin

__all__ = ["TablesJoin"]

_NEEDED: dict[str, Callable[[Any, Any], bool]] = {
    "inner": lambda left, right: left is not None and right is not None,
    "left": lambda left, right: left is not None,
    "right": lambda left, right: right is not None,
    "outer": lambda left, right: left is not None or right is not None,
}


class TablesJoin(RowJoin):
    """A join of two tables. Its state: the row of each."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        self.rows = (Row(self.state, "left"), Row(self.state, "right"))
        self._has_row = _NEEDED[step.kind.how]

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        check_key(key)
        before = [row.get() for row in self.rows]
        if not self.rows[side].change(timestamp, value):
            return []
        if value is None:
            self.register(timestamp + 1)
        other = before[1 - side]
        at = timestamp if other is None else max(timestamp, other[0])
        theirs = None if other is None else other[1]
        if self._has_row(*((theirs, value) if side else (value, theirs))):
            return [(self.merged(side, value, theirs), at, headers)]
        return [(None, at, headers)] if self._has_row(*before) else []
