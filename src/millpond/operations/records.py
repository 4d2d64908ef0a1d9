"""The records that caused a change: what of a batch reached one key.

Takes a batch and a key; reads the ranges of the batch again and lets stage 0 of the program say
where each record goes. Only for keys that records have right after their source: what reaches a
later key depends on the state in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from millpond.connectors.protocols import SourceReader
from millpond.connectors.sources import SparkSource
from millpond.connectors.topic import Topic
from millpond.operations.session import Opened
from millpond.program.plan import make_plan
from millpond.record import Record
from millpond.storage.manifest import Manifest
from millpond.wire.clock import Clock
from millpond.wire.headers import decode_headers
from millpond.wire.packed_rows import EDGE, family_of
from millpond.wire.payloads import read_payload
from millpond.worker.read_source import read_range, run_source
from millpond.worker.settings import Settings
from millpond.worker.stage import StageRunner

__all__ = ["Recall"]

logger = logging.getLogger("millpond")


class Recall:
    """Reads batches again; remembers what it found."""

    def __init__(self, opened: Opened, manifest: Manifest, scope: str, key: bytes | None) -> None:
        self._opened = opened
        self._manifest = manifest
        self._scope = scope
        self._key = key
        self._found: dict[int, list[Record]] = {}
        app = opened.app
        plan = None if app is None else make_plan(app.graph, combine=False)
        stages = [] if plan is None else [s for s in plan.stages if s.scope == scope]
        self._plan = plan if stages and stages[0].layer == 1 else None

    def batch(self, number: int) -> list[Record]:
        """Return the records of a batch that reached the key; none where that is not known."""
        if self._plan is None:
            return []
        if number not in self._found:
            try:
                self._found[number] = list(self._read(number))
            except Exception as error:  # what cannot be read again is not known, whatever it is
                logger.debug("the records of batch %d are not known: %s", number, error)
                self._found[number] = []
        return self._found[number]

    def _read(self, number: int) -> Iterator[Record]:
        checkpoint = self._opened.directory.checkpoint(self._manifest)
        before, batch = checkpoint.batch(number - 1), checkpoint.batch(number)
        assert batch is not None and self._plan is not None
        clock = Clock(now=batch.now)
        starts = {**self._manifest.start_offsets, **(before.offsets if before else {})}
        for name, offsets in batch.offsets.items():
            if name not in self._plan.topics or (number and name not in starts):
                continue
            for partition, end in offsets.items():
                start = starts.get(name, {}).get(partition, 0)
                if end > start:
                    yield from self._reached(name, partition, start, end, clock)

    def _reached(
        self, name: str, partition: str, start: int, end: int, clock: Clock
    ) -> Iterator[Record]:
        plan = self._plan
        assert plan is not None
        codec, number = self._opened.codec, plan.topics.index(name)
        settings = Settings(self._manifest.groups, codec, on_error="dead-letter")
        reader = self._reader(name)
        if reader is None:
            return
        for records in read_range(reader, number, partition, start, end, clock.now):
            runner = StageRunner(plan, plan.stages[0], settings)
            places: set[tuple[int, int]] = set()
            for row in run_source(runner, number, records, clock):
                family, _, columns = family_of(row.kind)
                if family == EDGE and row.scope == self._scope and row.payload:
                    places |= self._places(read_payload(row.payload, columns))
            yield from self._records(records, name, places)

    def _places(self, moved: pa.RecordBatch) -> set[tuple[int, int]]:
        columns = (moved.column(name).to_pylist() for name in ("key", "partition", "offset"))
        return {(p, o) for key, p, o in zip(*columns, strict=True) if key == self._key}

    def _records(
        self, records: pa.RecordBatch, name: str, places: set[tuple[int, int]]
    ) -> Iterator[Record]:
        assert self._plan is not None
        source = next(read.source for read in self._plan.reads if read.source.name == name)
        for row in records.to_pylist():
            if (row["partition"], row["offset"]) in places:
                key, value = row["key"], row["value"]
                yield Record(
                    None if key is None else source.key_deserializer(key),
                    None if value is None else source.value_deserializer(value),
                    row["timestamp"],
                    decode_headers(row.get("headers")),
                    name,
                    row["partition"],
                    row["offset"],
                )

    def _reader(self, name: str) -> SourceReader | None:
        app = self._opened.app
        assert app is not None
        source = app.graph.sources[name]
        if isinstance(source, SparkSource):
            return None
        if isinstance(source, Topic):
            app.broker.connect()
            app.broker.prepare(source, reads=True)
            return app.broker.reader(source)
        reader: SourceReader = source.reader(self._opened.directory.spool(app.config.topics_dir))
        return reader
