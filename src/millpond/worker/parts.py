"""What the routes of one stage share, made once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.errors import Failure
from millpond.program.plan import Plan, Stage
from millpond.record import current_context
from millpond.state.cursor import Cursor
from millpond.state.key_context import KeyContext
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import Row
from millpond.wire.place import Place
from millpond.worker.compose import Finisher
from millpond.worker.entry import Entry
from millpond.worker.error_policy import Failures, Fatal
from millpond.worker.exits import Exits
from millpond.worker.join import JoinLogic
from millpond.worker.report import Counts, failure_row, report_row
from millpond.worker.schedule import Schedule
from millpond.worker.time_window import WindowLogic

__all__ = ["Parts"]


@dataclass(frozen=True)
class Parts:
    """What the routes of one stage share."""

    plan: Plan
    stage: Stage
    place: Place
    cursor: Cursor
    context: KeyContext
    schedule: Schedule
    exits: Exits
    failures: Failures
    windows: list[WindowLogic | JoinLogic]
    finishers: list[Finisher]
    metadata: bool
    """Whether key, timestamp and headers are decoded."""
    undo: bool
    """Whether what a record did may have to be undone."""

    def begin(self, clock: Clock) -> None:
        """Begin with a batch of this time."""
        self.schedule.begin(clock)
        self.exits.begin(clock)

    def enter(self, entered: pa.RecordBatch, entries: Sequence[Entry]) -> None:
        """Take records in hand: exits, failures and the cursor are about these from here on."""
        self.exits.enter(entered)
        self.locate(entered, entries)

    def locate(self, entered: pa.RecordBatch, entries: Sequence[Entry]) -> None:
        """Let the cursor point into a batch, and have failures name its records."""
        self.failures.begin(lambda row: entered.slice(row, 1), entries)
        place = (entered.column(name) for name in ("source", "partition", "offset"))
        # Of records that were brought together, only the places are kept.
        has_values = "value" in entered.schema.names
        self.cursor.enter(*place, entered.column("value") if has_values else None)

    def guarded(
        self, rows: Iterator[Row], entered: pa.RecordBatch, group: int = -1
    ) -> Generator[Row, None, bool]:
        """Yield the rows of a batch, or the failure that ends the run; return if all went well."""
        self.place.enter(self.stage.number, group, entered)
        token = current_context.set(self.cursor.context)
        try:
            yield from rows
        except Fatal as fatal:
            yield self.give_up(fatal.failure)
            return False
        finally:
            current_context.reset(token)
            self.place.leave()
        return True

    def report(self, counts: Counts, clock: Clock) -> Row:
        """Return the report of a batch for the driver."""
        return report_row(self.stage.number, counts, self.schedule.take_seen(), clock.seq)

    def give_up(self, failure: Failure) -> Row:
        """Forget what has gathered and return the row that ends the run."""
        self.exits.clear()
        self.failures.clear()
        return failure_row(failure)
