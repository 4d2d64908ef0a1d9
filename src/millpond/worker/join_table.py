"""`join_table`: each left record meets the row that a table has for its key.

Without history that is the row as it is now. With history a left record waits until the watermark
has passed it, and meets the row as it was at its own time; rows stay for as long as a left record
may ask for them. A change that is older than the row does not replace it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from millpond.arguments.joins import AsTable
from millpond.program.key_types import check_key
from millpond.program.steps import Join
from millpond.state.view import State
from millpond.worker.emit import StepFailure
from millpond.worker.join import JoinLogic
from millpond.worker.join_buffer import Buffer, Kept
from millpond.worker.schedule import Firing

__all__ = ["HistoryJoin", "Row", "RowJoin", "TableJoin", "table_join"]

_time = attrgetter("timestamp")


def table_join(step: Join, *rest: Any) -> JoinLogic:
    """Return the logic of a join with a table."""
    assert isinstance(step.kind, AsTable)
    return TableJoin(step, *rest) if step.kind.history_ms is None else HistoryJoin(step, *rest)


class Row:
    """The row that a table has for the key in view; None where it has none.

    A row that was deleted is remembered until the watermark has passed it, so that an older change
    that comes later does not bring it back.
    """

    def __init__(self, state: State, name: Any) -> None:
        self._state = state
        self.name = name

    def change(self, timestamp: int, value: Any) -> bool:
        """Take a change; False: it is older than the row."""
        kept = self._state.get(self.name)
        if kept is not None and timestamp < kept[0]:
            return False
        self._state.set(self.name, [timestamp, value])
        return True

    def get(self) -> tuple[int, Any] | None:
        """Return the time and the value of the row."""
        kept = self._state.get(self.name)
        return None if kept is None or kept[1] is None else (kept[0], kept[1])

    def deleted_at(self) -> int | None:
        """Return when the row was deleted, as long as that is remembered."""
        kept = self._state.get(self.name)
        return None if kept is None or kept[1] is not None else kept[0]

    def forget(self) -> None:
        """Forget that the row was deleted."""
        if self.deleted_at() is not None:
            self._state.delete(self.name)


class RowJoin(JoinLogic):
    """A join that keeps rows as they are now, and remembers for a while which were deleted."""

    rows: tuple[Row, ...]

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        return [
            Firing(at + 1, row.name, lambda key, forget=row.forget: forget(), row.forget)  # type: ignore[misc]
            for row in self.rows
            if (at := row.deleted_at()) is not None and at + 1 <= watermark
        ]

    def next_due(self) -> int | None:
        moments = (row.deleted_at() for row in self.rows)
        return min((at + 1 + self.delay_ms for at in moments if at is not None), default=None)


class TableJoin(RowJoin):
    """A join with a table as it is now. Its state: the row of the key."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        self._row = Row(self.state, "row")
        self.rows = (self._row,)
        self._is_inner = step.kind.how == "inner"

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        if side:
            check_key(key)
            if self._row.change(timestamp, value) and value is None:
                self.register(timestamp + 1)
            return []
        row = self._row.get()
        if row is None:
            return [] if self._is_inner else [(self.merged(0, value, None), timestamp, headers)]
        return [(self.merged(0, value, row[1]), timestamp, headers)]


class HistoryJoin(JoinLogic):
    """A join with a table as it was. Its state: the left records that wait, and the rows."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, AsTable) and step.kind.history_ms is not None
        self._history: int = step.kind.history_ms
        self._is_inner = step.kind.how == "inner"
        self._lefts = Buffer(self.state, "l", None)
        self._rows = Buffer(self.state, "r", None)

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        closed = self.step_clock.late_mark
        oldest = closed - self._history
        if side:
            check_key(key)
            if timestamp < oldest and self._is_replaced(timestamp, oldest):
                self.is_late(1, value, key, timestamp, closed)
                return []
            self._rows.add(timestamp, value, None, is_matched=False)
            self.register(timestamp + self._history + 1)
            return []
        if timestamp < oldest:
            self.is_late(0, value, key, timestamp, closed)
            return []
        if timestamp < closed:
            return self._joined((value, headers), timestamp, self._row_at(timestamp))
        self._lefts.add(timestamp, value, headers, is_matched=False)
        self.register(timestamp + 1)
        return []

    def _is_replaced(self, timestamp: int, oldest: int) -> bool:
        """Tell whether a newer row was there before the oldest moment that is asked for."""
        return bool(self._rows.between(timestamp + 1, oldest))

    def _row_at(self, timestamp: int) -> Kept | None:
        rows = sorted(self._rows.all())
        place = bisect_right(rows, timestamp, key=_time)
        return rows[place - 1] if place else None

    def _joined(
        self, left: tuple[Any, Any], timestamp: int, met: Kept | None
    ) -> list[tuple[Any, int, Any]]:
        value, headers = left
        row = None if met is None else self._rows.read(met)[0]
        if row is None and self._is_inner:
            return []
        return [(self.merged(0, value, row), timestamp, headers)]

    # --- waiting for the clock --------------------------------------------------------------

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        found = [
            Firing(
                kept.timestamp + 1,
                f"l{kept.number:012}",
                self._meeting(kept),
                partial(self._lefts.remove, kept),
            )
            for kept in self._lefts.all()
            if kept.timestamp + 1 <= watermark
        ]
        # After those that are due, because it takes away what they do not need.
        found.append(Firing(watermark, "~", lambda key: self._tidy(), lambda: None))
        return found

    def _meeting(self, left: Kept) -> Callable[[Any], None]:
        def meet(key: Any) -> None:
            try:
                record = self._lefts.read(left)
                self._lefts.remove(left)
                results = self._joined(record, left.timestamp, self._row_at(left.timestamp))
            except Exception as error:
                raise StepFailure(self.step, error) from error
            self.give(results, key)

        return meet

    def _tidy(self) -> None:
        """Forget the rows that no left record can ask for any more."""
        for kept in self._forgettable(sorted(self._rows.all()), self.step_clock.watermark):
            self._rows.remove(kept)
        self._rows.compact()
        self._lefts.compact()

    def _forgettable(self, rows: list[Kept], watermark: int) -> list[Kept]:
        """Return the rows that were replaced, or deleted, before the oldest moment."""
        place = bisect_right(rows, watermark - self._history, key=_time)
        if place and self._rows.read(rows[place - 1])[0] is not None:
            place -= 1
        return rows[:place]

    def next_due(self) -> int | None:
        moments = [kept.timestamp + 1 for kept in self._lefts.all()]
        rows, watermark = sorted(self._rows.all()), self.step_clock.watermark
        # A row is looked at when it is as old as the history: then those before it can go.
        ages = (kept.timestamp + self._history + 1 for kept in rows)
        moments += [moment for moment in ages if moment > watermark]
        return min((moment + self.delay_ms for moment in moments), default=None)
