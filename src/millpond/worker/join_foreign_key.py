"""`Table.join(on=...)`: rows of a table that name a row of another one, and that row, as a table.

The key in view is that of the named row. `table.py` sends a change of a left row here, and to the
row that it has named before.
"""

from __future__ import annotations

from typing import Any

from millpond.program.key_types import check_key
from millpond.program.steps import Join
from millpond.worker.join_table import Row, RowJoin

__all__ = ["ForeignKeyJoin"]


class ForeignKeyJoin(RowJoin):
    """A join by a field. Its state: the named row, and the left rows that name it by their keys."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        self._row = Row(self.state, "row")
        self.rows = (self._row,)
        self._is_inner = step.kind.how == "inner"

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        if side:
            return self._take_named(key, value, timestamp, headers)
        _, mine, left = value
        name = ["left", mine]
        row = self._row.get()
        gives = row is not None or not self._is_inner
        if left is None:
            # Those that name no row are not kept: none will come for them.
            was_there = key is None or self.state.exists(name)
            self.state.delete(name)
            return [((mine, None), timestamp, headers)] if gives and was_there else []
        if key is not None:
            self.state.set(name, [timestamp, left])
        if not gives:
            return []
        at, named = (timestamp, None) if row is None else (max(timestamp, row[0]), row[1])
        return [((mine, self.step.merge(left, named)), at, headers)]

    def _take_named(
        self, key: Any, row: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        check_key(key)
        had = self._row.get() is not None
        if not self._row.change(timestamp, row):
            return []
        if row is None:
            self.register(timestamp + 1)
        if row is None and not had:
            return []
        results = []
        for name in self.state.keys():  # noqa: SIM118 - not a dict
            if name == "row":
                continue
            at, left = self.state.get(name)
            is_gone = row is None and self._is_inner
            merged = None if is_gone else self.step.merge(left, self._copy_of_row())
            results.append(((name[1], merged), max(at, timestamp), headers))
        return results

    def _copy_of_row(self) -> Any:
        row = self._row.get()
        return None if row is None else row[1]
