"""Stages as the functions Spark calls: an Arrow function for stage 0, a processor for the rest.

Takes the plan; gives what `mapInArrow` and `transformWithState` run in workers. Both only hand
bytes to `runtime`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from millpond.plan.plan import Plan, Stage
from millpond.runtime.batch import Row, wake_row
from millpond.runtime.clock import Clock
from millpond.runtime.keyed import run_group
from millpond.runtime.read import entered, read_range, run_source
from millpond.runtime.stage import Settings, StageRunner
from millpond.spark.pipe import BLOB, BLOB_ID, SparkStore
from millpond.spark.source import WAKE

__all__ = ["LayerProcessor", "read_stage", "rows_stage"]

_PackedRow = SparkRow("scope", "grp", "kind", "payload", "clock")

_ROWS_PER_MESSAGE = 64


def read_stage(
    plan: Plan, settings: Settings, readers: dict[str, Any], groups_back: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return stage 0 for ranges of our own sources: it reads them itself."""
    names = list(readers)
    numbers = [plan.topics.index(name) for name in names]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runner = StageRunner(plan, plan.stages[0], settings)

        def rows() -> Iterator[Row]:
            for batch in batches:
                ranges = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                _fetch(readers, names, ranges)
                for source, partition, start, end, told in ranges:
                    if source == WAKE:
                        yield wake_row(partition, start, told)
                        continue
                    number, clock = numbers[source], Clock.decode(told)
                    for records in read_range(
                        readers[names[source]], number, partition, start, end
                    ):
                        yield from run_source(runner, number, records, clock)
            yield from runner.drain()

        try:
            yield from _messages(rows(), groups_back)
        finally:
            runner.close()

    return run


def _fetch(readers: dict[str, Any], names: list[str], ranges: list[tuple[Any, ...]]) -> None:
    """Tell the readers that want to know it what they will be asked for."""
    for number, name in enumerate(names):
        if hasattr(readers[name], "fetch"):
            readers[name].fetch([places[1:4] for places in ranges if places[0] == number])


def rows_stage(
    plan: Plan, settings: Settings, number: int, convert: Callable[..., pa.RecordBatch], back: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return stage 0 for a DataFrame of Spark's own: its rows become records."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        runner = StageRunner(plan, plan.stages[0], settings)

        def rows() -> Iterator[Row]:
            position = 0
            # Spark's own sources know nothing of our clock; groups go by the last they were told.
            clock = Clock(now=time.time_ns() // 1_000_000)
            for batch in batches:
                segment = convert(batch)
                records = entered(segment, number, task, position)
                yield from run_source(runner, number, records, clock)
                position += segment.num_rows
            yield from runner.drain()

        try:
            yield from _messages(rows(), back)
        finally:
            runner.close()

    return run


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


class LayerProcessor(StatefulProcessor):
    """All stateful stages of one layer; Spark's key is (scope, key group)."""

    def __init__(self, plan: Plan, layer: int, settings: Settings) -> None:
        self._plan = plan
        self._layer = layer
        self._settings = settings
        self._runners: dict[str, StageRunner] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("pages", BLOB_ID, BLOB)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[SparkRow]:
        scope, group = key
        packed = (Row(*row) for row in rows)
        runner, store = self._runner(scope), SparkStore(self._state)
        given = packed if runner is None else run_group(runner, packed, store, group)
        for row in given:
            yield _PackedRow(*row)
        store.settle()

    def _runner(self, scope: str) -> StageRunner | None:
        """Return the stage of a scope, or None where rows only pass by on their way."""
        if scope not in self._runners:
            stage = self._stage(scope)
            if stage is None:
                return None
            self._runners[scope] = StageRunner(self._plan, stage, self._settings)
        return self._runners[scope]

    def _stage(self, scope: str) -> Stage | None:
        stages = (s for s in self._plan.stages if s.layer == self._layer and s.scope == scope)
        return next(stages, None) if scope else None

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()
