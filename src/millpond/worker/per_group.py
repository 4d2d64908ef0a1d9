"""The route of the records of a key group through a stateful stage.

Takes the records of a group and its store; does what is due because of the time before them and
after them, and lets each record meet the state of its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from millpond.state.layout import Pages
from millpond.state.store import Store
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import BEFORE, BEHIND, Row, moments_batch
from millpond.worker.entry import Entry
from millpond.worker.parts import Parts
from millpond.worker.record_loop import RecordLoop
from millpond.worker.report import Counts
from millpond.worker.settings import Settings

__all__ = ["PerGroup"]


class PerGroup:
    """Every record meets the state of its key; windows and timers meet the clock."""

    def __init__(self, parts: Parts, first: Entry, settings: Settings) -> None:
        self._parts = parts
        self._first = first
        self._settings = settings
        self._loop = RecordLoop(parts, is_keyed=True)

    def run(
        self,
        records: pa.RecordBatch,
        entries: Sequence[Entry],
        store: Store,
        group: int,
        clock: Clock | None,
    ) -> Iterator[Row]:
        """Yield what records of a group lead to, and the report.

        Args:
            records: In the order of their origin.
            entries: One, or one per record.
            store: The state of the group.
            group: Its number.
            clock: The time of the batch; None: the records came without.
        """
        parts, counts = self._parts, Counts()
        pages = Pages(store, self._settings.codec, self._settings.groups)
        parts.context.open(pages)
        clock = self._known(clock, pages)
        parts.begin(clock)
        rows = self._rows(records, entries, pages, counts)
        if not (yield from parts.guarded(rows, records, group)):
            return
        timers = parts.failures.take_timers()
        counts.add(timers, dead=timers)
        pages.flush(parts.schedule.shows)
        due = parts.schedule.next_due(pages)
        counts.keys = (parts.stage.scope, group, pages.keys, pages.bytes, due)
        yield parts.report(counts, clock)

    def _known(self, clock: Clock | None, pages: Pages) -> Clock:
        """Return the time of the batch, or the last one that the group received."""
        if self._parts.plan.keeps_clock:
            if clock is None and pages.clock:
                clock = Clock.decode(pages.clock)
            elif clock is not None:
                pages.clock = clock.encode()
        return clock or Clock()

    def _rows(
        self, records: pa.RecordBatch, entries: Sequence[Entry], pages: Pages, counts: Counts
    ) -> Iterator[Row]:
        pages.expect(records.column("key").unique().to_pylist())
        if pages.timer_indexes:
            yield from self._by_clock(pages, BEFORE, counts)
        if records.num_rows:
            yield from self._loop.run(records, entries, counts)
        if pages.timer_indexes:
            yield from self._by_clock(pages, BEHIND, counts)

    def _by_clock(self, pages: Pages, place: int, counts: Counts) -> Iterator[Row]:
        """Do what is due in the group: each thing like a record of its own."""
        parts, cursor, context = self._parts, self._parts.cursor, self._parts.context
        visits = parts.schedule.visits(pages, after_records=place == BEHIND)
        keys: list[bytes | None] = []
        moments: list[int] = []
        # Nothing of what comes is a record; failures are reported alike.
        parts.failures.begin(
            lambda row: moments_batch([keys[row]], [moments[row]], place), [self._first]
        )
        cursor.leave()
        failed = 0
        for watcher in parts.windows:
            watcher.late_rows.clear()
        for key_bytes, firing in visits:
            keys.append(key_bytes)
            moments.append(firing.at)
            cursor.at(len(keys) - 1, key_bytes or b"")
            cursor.at_time(firing.at)
            parts.place.due(key_bytes, firing.at)
            shown = None if key_bytes is None else self._first.decode_key(key_bytes)
            if not parts.failures.attempt(partial(firing.run, shown)):
                firing.drop()
                failed += 1
            context.keep()
        counts.add(failed, dead=len(parts.failures.rows))
        late = sum(len(watcher.late_rows) for watcher in parts.windows)
        counts.add(late, late=late)
        if keys:
            batch = moments_batch(keys, moments, place)
            yield from parts.exits.flush(batch, np.zeros(len(keys), bool), counts)
        parts.schedule.settle(visits.looked_at)
        context.keep()
