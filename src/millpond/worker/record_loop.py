"""The loop that everything else serves: every record of a batch is pushed through the steps.

Takes records as Arrow columns; for each it moves the cursor, binds the state of its key, decodes it
and calls the first step. What gathers at the exits leaves in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.connectors.serde import fast
from millpond.wire.headers import decode_headers
from millpond.wire.packed_rows import Row
from millpond.worker.current_step import failure_of
from millpond.worker.entry import Entry, latest_of
from millpond.worker.parts import Parts
from millpond.worker.report import Counts

__all__ = ["RecordLoop"]

# Emitted bytes after which a stage hands on what it has, so that memory stays bounded (bytes).
_CHUNK_BYTES = 8 * 1024 * 1024

# Records after which emitted bytes are counted.
_STRETCH = 256


class RecordLoop:
    """Runs records one by one. Where `is_keyed`, each meets the state of its key."""

    def __init__(self, parts: Parts, *, is_keyed: bool) -> None:
        self._parts = parts
        self._is_keyed = is_keyed

    def run(
        self, entered: pa.RecordBatch, entries: Sequence[Entry], counts: Counts
    ) -> Iterator[Row]:
        """Push every record, in the order given; `entries` has one or one per record."""
        parts = self._parts
        if len(entries) == 1:
            entries = [self._watched(entries[0], entered)]
        for window in parts.windows:
            window.late_rows.clear()
        parts.enter(entered, entries)
        seen, late, dead = np.zeros((3, entered.num_rows), bool)
        for _ in self._push_all(entered, entries):
            yield from parts.exits.flush(entered, seen, counts)
        for window in parts.windows:
            late[window.late_rows] = True
        dead[list(parts.failures.rows)] = True
        late &= ~dead
        seen &= ~late & ~dead
        counts.add(entered.num_rows, int(seen.sum()), int(late.sum()), int(dead.sum()))

    def _watched(self, entry: Entry, entered: pa.RecordBatch) -> Entry:
        """Note the latest time of a batch; have each record's looked at where one is absurd."""
        schedule = self._parts.schedule
        latest, is_strange = latest_of(entry, entered.column("timestamp"), self._parts.context.now)
        schedule.observe(entry.point, latest)
        return entry.guarded() if is_strange else entry

    def _push_all(  # noqa: C901 - one loop on purpose: a call per record is what costs here
        self, entered: pa.RecordBatch, entries: Sequence[Entry]
    ) -> Iterator[None]:
        """Push every record; yield whenever output should leave."""
        parts, is_keyed = self._parts, self._is_keyed
        cursor, context, failures = parts.cursor, parts.context, parts.failures
        places, undo, metadata = context.places, parts.undo, parts.metadata
        emitters = parts.exits.emitters
        is_mixed, entry = len(entries) > 1, entries[0]
        decode, push = fast(entry.decode_value), entry.push
        paths = entered.column("path").to_pylist() if "path" in entered.schema.names else None
        marks: list[int] = []
        key, headers = None, None
        records = iter(parts.place.each(self._columns(entered)))
        fresh_bytes = 0
        cursor.at(0)
        for done in range(0, entered.num_rows, _STRETCH):
            parts.place.reach(done)
            for index, raw, raw_key, timestamp, raw_headers in islice(records, _STRETCH):
                if is_mixed:
                    entry = entries[index]
                    decode, push = fast(entry.decode_value), entry.push
                if undo:
                    context.keep()  # what the record before this one has written
                    marks = [len(emitter) for emitter in emitters]
                while True:  # once, and again after each timer that failed before the record
                    # The cursor's fields, in place: its methods cost 5 to 10 % of a running count.
                    cursor.index = index
                    if paths:
                        cursor.path = paths[index]
                    if is_keyed:
                        cursor.place = places.get(raw_key) or context.find(raw_key)
                        cursor.timestamp = timestamp
                    try:
                        try:
                            value = None if raw is None else decode(raw)
                            if metadata:
                                key = None if raw_key is None else entry.decode_key(raw_key)
                                headers = None
                                if raw_headers is not None:
                                    headers = decode_headers(raw_headers)
                        except Exception as error:
                            raise entry.unreadable(raw, error) from error
                        push(value, key, timestamp, headers)
                        break
                    except failures.caught as error:
                        if not failures.settle(failure_of(error, entry.read), marks):
                            break
            fresh_bytes += parts.exits.recent_bytes()
            if fresh_bytes > _CHUNK_BYTES:
                yield
                fresh_bytes = 0
        context.keep()
        self._finish(paths)
        yield

    def _columns(self, entered: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Return number, value, key, timestamp and headers of each record, undecoded."""
        values = entered.column("value").to_pylist()
        keys: Any = repeat(None)
        headers: Any = repeat(None)
        timestamps = entered.column("timestamp").to_pylist()
        if self._is_keyed or self._parts.metadata:
            keys = entered.column("key").to_pylist()
        if self._parts.metadata and "headers" in entered.schema.names:
            headers = entered.column("headers").to_pylist()
        return zip(range(len(values)), values, keys, timestamps, headers, strict=False)

    def _finish(self, paths: list[bytes | None] | None) -> None:
        """Let steps do what they do once a batch, each thing in the name of a record."""
        parts = self._parts
        for finisher in parts.finishers:
            for index, call in finisher.finish():
                parts.cursor.at(index, paths[index] if paths else None)
                parts.failures.attempt(call)
                parts.context.keep()
