"""Stages as the functions Spark calls: an Arrow function for stage 0, a processor for the rest.

Takes the plan; gives what `mapInArrow` and `transformWithState` run in workers. Both only hand
bytes to `worker`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row as SparkRow

from millpond.connectors.protocols import SourceReader
from millpond.errors import BrokerError, SourceError, TopicError
from millpond.program.plan import Plan, Stage
from millpond.spark.activity import place_here
from millpond.spark.code_shipping import Shipment
from millpond.spark.internals.processor import KeyGroupProcessor, PackedRow
from millpond.spark.internals.state_client import OneByOne, Pipelined
from millpond.spark.source import WAKE
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import Row, wake_row
from millpond.wire.place import Place
from millpond.worker.key_group import run_group
from millpond.worker.read_source import entered, given_up, read_range, run_source
from millpond.worker.stage import StageRunner

__all__ = ["LayerProcessor", "ReadStage", "RowsStage"]

_ROWS_PER_MESSAGE = 64


class ReadStage:
    """Stage 0 for ranges of our own sources: it reads them itself."""

    def __init__(
        self, shipment: Shipment, names: list[str], numbers: list[int], groups_back: int
    ) -> None:
        self._shipment = shipment
        self._names = names
        self._numbers = numbers
        self._groups_back = groups_back

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, settings = self._shipment.load_plan()
        place = place_here(settings.places)
        runner = StageRunner(plan, plan.stages[0], settings, place)
        try:
            yield from _messages(self._rows(runner, batches, place), self._groups_back)
        finally:
            runner.close()

    def _rows(
        self, runner: StageRunner, batches: Iterator[pa.RecordBatch], place: Place
    ) -> Iterator[Row]:
        try:
            yield from self._read(runner, batches, place)
        except (TopicError, BrokerError, SourceError) as error:
            yield given_up(error)  # no task fails, or Spark would wait for the broker once more

    def _read(
        self, runner: StageRunner, batches: Iterator[pa.RecordBatch], place: Place
    ) -> Iterator[Row]:
        readers, names = self._shipment.load_readers(), self._names
        for batch in batches:
            ranges = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            _fetch(readers, names, self._numbers, ranges, place)
            for source, partition, start, end, encoded in ranges:
                if source == WAKE:
                    yield wake_row(partition, start, encoded)
                    continue
                number, clock = self._numbers[source], Clock.decode(encoded)
                reader = readers[names[source]]
                given = read_range(reader, number, partition, start, end, clock.now)
                at = (number, reader.number_of(partition), start, end)
                for records in _noted(given, place, at):
                    yield from run_source(runner, number, records, clock)
        yield from runner.drain()


def _fetch(
    readers: dict[str, SourceReader],
    names: list[str],
    numbers: list[int],
    ranges: list[tuple[Any, ...]],
    place: Place,
) -> None:
    """Tell the readers what they will be asked for."""
    for number, name in enumerate(names):
        wanted = [places[1:4] for places in ranges if places[0] == number]
        if wanted:
            (partition, start, end), reader = wanted[0], readers[name]
            place.reading(numbers[number], reader.number_of(partition), start, end)
            reader.fetch(wanted)
            place.leave()


def _noted(
    given: Iterator[pa.RecordBatch], place: Place, at: tuple[int, int, int, int]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; the place says so while they are waited for."""
    while True:
        place.reading(*at)
        records = next(given, None)
        place.leave()
        if records is None:
            return
        yield records


class RowsStage:
    """Stage 0 for rows that Spark reads; `convert` makes a segment of a batch of them."""

    def __init__(
        self,
        shipment: Shipment,
        number: int,
        convert: Callable[..., pa.RecordBatch],
        groups_back: int,
    ) -> None:
        self._shipment = shipment
        self._number = number
        self._convert = convert
        self._groups_back = groups_back

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, settings = self._shipment.load_plan()
        runner = StageRunner(plan, plan.stages[0], settings, place_here(settings.places))
        try:
            yield from _messages(self._rows(runner, batches), self._groups_back)
        finally:
            runner.close()

    def _rows(self, runner: StageRunner, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        position = 0
        # Spark's own sources know nothing of our clock; groups go by the last one they had.
        clock = Clock(now=time.time_ns() // 1_000_000)
        for batch in batches:
            segment = self._convert(batch)
            records = entered(segment, self._number, task, position)
            yield from run_source(runner, self._number, records, clock)
            position += segment.num_rows
        yield from runner.drain()


def _messages(rows: Iterator[Row], groups_back: int) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches. Rows for the outside are spread, as if they had a group."""
    schema = pa.schema(
        [
            ("scope", pa.string()),
            ("grp", pa.int32()),
            ("kind", pa.int32()),
            ("payload", pa.binary()),
            ("clock", pa.binary()),
        ]
    )
    while some := list(islice(rows, _ROWS_PER_MESSAGE)):
        columns = list(zip(*some, strict=True))
        spread = [g if g >= 0 else -1 - i % groups_back for i, g in enumerate(columns[1])]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip((columns[0], spread, *columns[2:]), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class LayerProcessor(KeyGroupProcessor):
    """All stateful stages of one layer."""

    def __init__(self, shipment: Shipment, layer: int, pipelined: bool) -> None:
        super().__init__(pipelined)
        self._shipment = shipment
        self._layer = layer
        self._runners: dict[str, StageRunner] = {}

    def handle(
        self, scope: str, group: int, rows: Iterator[Any], store: Pipelined | OneByOne
    ) -> Iterator[SparkRow]:
        packed, runner = (Row(*row) for row in rows), self._runner(scope)
        given = packed if runner is None else run_group(runner, packed, store, group)
        for row in given:
            yield PackedRow(*row)

    def _runner(self, scope: str) -> StageRunner | None:
        """Return the stage of a scope, or None where rows only pass by on their way."""
        if scope not in self._runners:
            plan, settings = self._shipment.load_plan()
            stage = self._stage(plan, scope)
            if stage is None:
                return None
            self._runners[scope] = StageRunner(plan, stage, settings, place_here(settings.places))
        return self._runners[scope]

    def _stage(self, plan: Plan, scope: str) -> Stage | None:
        stages = (s for s in plan.stages if s.layer == self._layer and s.scope == scope)
        return next(stages, None) if scope else None

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()
