"""What the driver does with each batch, in the order on which the guarantees stand.

Spark has recorded what the batch reads, workers have run it, and their rows are here. When `handle`
returns, Spark commits the batch with its state. A process that dies on the way replays the batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from millpond.connectors.topic import Topic
from millpond.driver.deliver import Delivery
from millpond.driver.gather import BatchReport, Gathered, gather, log_late
from millpond.driver.progress import Meter
from millpond.driver.timekeeper import Timekeeper
from millpond.errors import MillpondError, StepError
from millpond.folders import Scratch
from millpond.program.plan import Plan
from millpond.resource import Scope, within
from millpond.spark.request import Backfill, Limits, Program
from millpond.spark.run_sources import RunSources
from millpond.spark.run_state import RunState
from millpond.spark.watchdog import Watchdog
from millpond.storage.checkpoint import Batch
from millpond.storage.clock_file import ClockFile, KnownTime
from millpond.storage.directory import StateDirectory
from millpond.storage.durable import Disk
from millpond.storage.journal import Journal
from millpond.storage.lock import Hold
from millpond.storage.manifest import Manifest
from millpond.wire.packed_rows import Row

__all__ = ["BatchHandler", "BatchInHand"]

# Batches that the journal knows: as many as Spark keeps.
_NOTED = 100


class BatchInHand:
    """The batch that is handled now: what Spark's log has of it."""

    def __init__(self, program: Program, directory: StateDirectory, manifest: Manifest) -> None:
        self._program = program
        self._checkpoint = directory.checkpoint(manifest)
        self.batch = Batch(0, 0, 0)

    def take(self, batch_id: int) -> Batch:
        """Read what a batch of Spark's reads."""
        self.batch = self._checkpoint.batch(batch_id) or Batch(batch_id, 0, 0)
        return self.batch

    @property
    def number(self) -> int:
        """The number under which the batch is delivered; -1 for the first one, without records.

        That of its clock: batches that people put in between (an edit, a rescale) have none of
        their own, so what was begun before such a batch has the same number after it. Records of
        Spark's own sources come without a clock: there it is Spark's number.
        """
        if self._program.has_foreign_sources:
            return self.batch.number
        return self.batch.clock.seq - 1

    def positions(self, number: int) -> dict[str, dict[str, int]]:
        """Return the offsets up to which the batch reads topics."""
        sources = self._program.graph.sources
        planned = self.batch.offsets
        return {name: o for name, o in planned.items() if isinstance(sources.get(name), Topic)}


class BatchHandler:
    """Handles the batches of one run, in the thread in which Spark calls back."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        directory: StateDirectory,
        manifest: Manifest,
        hold: Hold,
        limits: Limits,
        backfill: Backfill | None,
        *,
        in_hand: BatchInHand,
        sources: RunSources,
        keeper: Timekeeper,
        clock_file: ClockFile,
        journal: Journal,
        delivery: Delivery,
        disk: Disk | None,
        payloads: Scratch | None,
        watchdog: Watchdog,
        state: RunState,
        scope: Scope,
        keys: dict[tuple[str, int], int],
        meter: Meter,
    ) -> None:
        self._program = program
        self._plan = plan
        self._directory = directory
        self._manifest = manifest
        self._hold = hold
        self._limits = limits
        self._backfill = backfill
        self._in_hand = in_hand
        self._sources = sources
        self._keeper = keeper
        self._clock_file = clock_file
        self._journal = journal
        self._delivered = journal.delivered
        self._delivery = delivery
        self._disk = disk
        self._payloads = payloads
        self._watchdog = watchdog
        self._state = state
        self._scope = scope
        self._keys = keys
        self._meter = meter

    def handle(self, rows: Iterable[Row], batch_id: int) -> None:
        """Handle a batch; Spark commits it when this returns."""
        began = time.monotonic()
        self._hold.check()  # the group is ours
        batch = self._in_hand.take(batch_id)
        gathered = self._gathered(rows, batch_id)  # raises the first failure of a step
        self._sources.feeder.crash_where_marked(gathered.report.read)
        self._record_plan(batch)  # a replay reads the same
        self._sync()  # plan and state outlive a power cut before outputs can be seen
        self._deliver_once(gathered)
        log_late(gathered.report, self._plan)
        self._state.observe(gathered.report, _now_ms(), batch.clock.marks)
        self._write_clock(gathered.report)  # what the next batch must know of the time
        self._hold.check()  # still ours: what follows is Spark's commit
        if self._payloads is not None:
            self._payloads.clear()
        self._report(gathered.report, began)

    # --- the steps --------------------------------------------------------------------------

    def _gathered(self, rows: Iterable[Row], batch_id: int) -> Gathered:
        """Return what a batch gave; a step that failed on a row of a file names the row."""
        try:
            return gather(rows, batch_id)
        except StepError as error:
            failure, cause = error.failure, error.__cause__
            reader = self._sources.readers.get(failure.topic)
            if failure.partition < 0 or reader is None:
                raise
            with suppress(MillpondError, OSError):  # the file may be gone by now
                row = reader.place_of(failure.partition, failure.offset)
                error = StepError(replace(failure, row=row))
            raise error from cause

    def _record_plan(self, batch: Batch) -> None:
        """Record what the batch reads, and that all before it is where it belongs."""
        number = self._in_hand.number
        if self._program.has_foreign_sources or number < 0:
            return
        before = self._journal
        batches = {**before.batches, number + 1: batch.source}
        kept = {seq: batches[seq] for seq in sorted(batches) if seq > number - _NOTED}
        manifest = self._manifest.content()
        self._journal = Journal(max(before.delivered, number - 1), kept, manifest)
        self._directory.journal_file(self._manifest).put(self._journal.encode())

    def _sync(self) -> None:
        """Have all that the batch needs on the disk: its plan, its state, and the batch before."""
        if self._disk is not None:
            journal = self._directory.journal_file(self._manifest)
            self._disk.sync(*([journal.path] if journal.exists() else []))

    def _deliver_once(self, gathered: Gathered) -> None:
        """Deliver a batch, unless a run before has done so.

        Of a backfill that makes state only, what must not be lost is delivered: dead letters.
        """
        number, backfill = self._in_hand.number, self._backfill
        if number <= self._delivered:
            return
        self._hold.check()
        place: tuple[int, Any, int] = number, self._in_hand.batch.reads, self._in_hand.batch.now
        with within(self._scope):
            if backfill is not None:
                backfill.dead += self._delivery.count_dead_letters(gathered)
            if backfill is not None and not backfill.outputs:
                self._delivery.deliver_dead_letters(gathered, *place)
                return
            self._delivery.deliver(gathered, *place)
            if backfill is not None:
                backfill.dead += gathered.report.refused

    def _write_clock(self, report: BatchReport) -> None:
        """Leave what is known to the source, before the batch is committed."""
        known = {**self._keys, **report.keys}
        keys = [(scope, group, n) for (scope, group), n in known.items()]
        planned, room = self._in_hand.batch.source, self._room(report)
        time = self._keeper.to_json()
        self._clock_file.write(KnownTime(**time, keys=keys, planned=planned, room=room))

    def _room(self, report: BatchReport) -> int | None:
        """Return how many records the next batch may read, so that no more come out than asked.

        Where few of them come out, twice as many as in this batch: one by one would take forever.
        """
        if not self._limits.count:
            return None
        left = max(1, self._limits.count - self._state.outputs)
        return left if 2 * report.outputs >= report.read else max(left, 2 * report.read)

    def _report(self, report: BatchReport, began: float) -> None:
        now = time.monotonic()
        self._state.is_at_work(now)
        report.waited = self._watchdog.waits.take_done()
        report.seconds = now - began
        self._program.reports.append(report)
        if self._backfill is not None:
            self._backfill.read += report.read
        self._meter.batch(report)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
