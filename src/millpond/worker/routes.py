"""The routes of the records of a source through stage 0, a class each; see `program/routes`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.connectors.serde import fast
from millpond.program.plan import Edge
from millpond.program.routes import Route
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import HEADERS, Row
from millpond.worker.entry import Entry, latest_of
from millpond.worker.parts import Parts
from millpond.worker.record_loop import RecordLoop
from millpond.worker.report import Counts

__all__ = ["Columnar", "Forward", "PerRecord", "route_of_source"]


class PerRecord:
    """Every record goes through the functions of the steps."""

    def __init__(self, parts: Parts, entry: Entry) -> None:
        self._parts = parts
        self._entry = entry
        self._loop = RecordLoop(parts, is_keyed=False)

    def run(self, records: pa.RecordBatch, clock: Clock) -> Iterator[Row]:
        """Yield what records of the source lead to, and the report."""
        parts, counts = self._parts, Counts()
        parts.begin(clock)
        if (yield from parts.guarded(self._rows(records, counts), records)):
            yield parts.report(counts, clock)

    def _rows(self, records: pa.RecordBatch, counts: Counts) -> Iterator[Row]:
        return self._loop.run(records, [self._entry], counts)


class Columnar(PerRecord):
    """Values are decoded one after the other, and a combiner takes them all at once.

    A record of a running total took 0.9 us in this way instead of 2.3. Where one of a batch needs
    a look of its own, the batch runs record by record.
    """

    def __init__(self, parts: Parts, entry: Entry, edge: Edge, key: str | None) -> None:
        super().__init__(parts, entry)
        self._combiner = parts.exits.combiners[edge]
        self._key = key

    def _rows(self, records: pa.RecordBatch, counts: Counts) -> Iterator[Row]:
        if self._take(records):
            counts.add(records.num_rows, records.num_rows)
        else:
            yield from super()._rows(records, counts)

    def _take(self, records: pa.RecordBatch) -> bool:
        parts, entry, times = self._parts, self._entry, records.column("timestamp")
        latest, is_strange = latest_of(entry, times, parts.context.now)
        if is_strange or records.column("value").null_count:
            return False
        parts.locate(records, [entry])
        is_taken = self._combiner.take_all(records, fast(entry.decode_value), self._key)
        if is_taken:
            parts.schedule.observe(entry.point, latest)
        return is_taken


class Forward:
    """Records go on as they are, without a look at any of them."""

    def __init__(self, parts: Parts, entry: Entry, edge: Edge) -> None:
        self._parts = parts
        self._entry = entry
        self._edge = edge
        self._slower = PerRecord(parts, entry)

    def run(self, records: pa.RecordBatch, clock: Clock) -> Iterator[Row]:
        """Yield what takes records of the source to the next stage, and the report."""
        parts = self._parts
        latest, is_strange = latest_of(self._entry, records.column("timestamp"), clock.now)
        if is_strange:
            yield from self._slower.run(records, clock)
            return
        parts.begin(clock)
        parts.schedule.observe(self._entry.point, latest)
        columns = HEADERS if "headers" in records.schema.names else 0
        yield from parts.exits.move(records, self._edge, columns)
        yield parts.report(Counts(records.num_rows, records.num_rows), clock)


def route_of_source(parts: Parts, entry: Entry, route: Route) -> PerRecord | Forward:
    """Return what runs the records of a source."""
    if route.kind == "record" or route.edge is None:
        return PerRecord(parts, entry)
    if route.kind == "forward":
        return Forward(parts, entry, route.edge)
    return Columnar(parts, entry, route.edge, route.key)
