"""`join_table(broadcast=True)`: each left record meets a row of a small table, by any field.

The left records are dealt out evenly to some copies of the table, whatever their key is, so a key
with most of the records makes no copy slower. The key in view is the number of a copy.
"""

from __future__ import annotations

from typing import Any

from millpond.program.steps import Join
from millpond.worker.join import JoinLogic
from millpond.worker.join_table import Row
from millpond.worker.schedule import Firing

__all__ = ["BroadcastJoin"]


# Under which name the rows that were deleted are listed, by time and key.
_DELETED = "deleted"


class BroadcastJoin(JoinLogic):
    """A join with a copy of a table. Its state: each row, and what was just deleted."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        self._is_inner = step.kind.how == "inner"

    def _row(self, key: Any) -> Row:
        return Row(self.state, ["row", key])

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        if side:
            _, row_key, row = value
            if self._row(row_key).change(timestamp, row) and row is None:
                deleted = self.state.get(_DELETED, [])
                self.state.set(_DELETED, [*deleted, [timestamp, row_key]])
                self.register(timestamp + 1)
            return []
        _, on, _ = value
        kept = None if on is None else self._row(on).get()
        if kept is None and self._is_inner:
            return []
        return [(self.merged(0, value, None if kept is None else kept[1]), timestamp, headers)]

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        if not any(at + 1 <= watermark for at, _ in self.state.get(_DELETED, [])):
            return []
        return [Firing(watermark, _DELETED, lambda key: self._forget(), self._forget)]

    def _forget(self) -> None:
        """Forget the deleted rows that the watermark has passed."""
        left = []
        for at, key in self.state.get(_DELETED, []):
            row = self._row(key)
            if at + 1 > self.step_clock.watermark:
                left.append([at, key])
            elif row.deleted_at() == at:  # not changed since
                row.forget()
        if left:
            self.state.set(_DELETED, left)
        else:
            self.state.delete(_DELETED)

    def next_due(self) -> int | None:
        moments = (at + 1 + self.delay_ms for at, _ in self.state.get(_DELETED, []))
        return min(moments, default=None)
