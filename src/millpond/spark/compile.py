"""A plan to a streaming DataFrame of packed rows.

Takes the plan and the readers, gives the DataFrame whose batches `query` gathers. The shape is
a chain: sources -> stage 0 -> one stateful operator per layer. What a layer does not own
passes through it, so everything a batch does is in one query and commits together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.connectors.segments import SEGMENT
from millpond.connectors.sources import SparkSource
from millpond.program.functions import pack
from millpond.program.plan import Plan
from millpond.spark.code_shipping import Shipment
from millpond.spark.internals.own_session import register
from millpond.spark.internals.processor import transformed
from millpond.spark.internals.settings import PIPELINED_STATE, is_on
from millpond.spark.source import FORMAT, ReaderSettings, source_of
from millpond.spark.stages import LayerProcessor, ReadStage, RowsStage
from millpond.state.codec import Codec
from millpond.wire import any_value
from millpond.wire.packed_rows import PACKED

__all__ = ["compile_plan"]


def compile_plan(
    session: SparkSession,
    plan: Plan,
    shipment: Shipment,
    sources: ReaderSettings,
    frames: dict[str, SparkSource],
    partitions: int,
) -> DataFrame:
    """Return the packed rows of every batch."""
    # Our own source is there even where it reads nothing: it says what time it is.
    rows = _own_leg(session, plan.topics, shipment, sources, partitions)
    for name in frames:
        rows = rows.unionAll(_spark_leg(plan, shipment, frames[name], partitions))
    for layer in range(1, plan.layers + 1):
        rows = transformed(rows, LayerProcessor(shipment, layer, is_on(session, PIPELINED_STATE)))
    return rows


def _own_leg(
    session: SparkSession,
    topics: Sequence[str],
    shipment: Shipment,
    sources: ReaderSettings,
    partitions: int,
) -> DataFrame:
    carried = replace(shipment, data=b"", readers=pack(sources).data)
    register(session, source_of(carried))
    ranges = session.readStream.format(FORMAT).load()
    names = list(sources.readers)
    numbers = [topics.index(name) for name in names]
    return ranges.mapInArrow(ReadStage(shipment, names, numbers, partitions), PACKED)


def _spark_leg(plan: Plan, shipment: Shipment, source: SparkSource, partitions: int) -> DataFrame:
    frame = source.frame
    if source.timestamp is None:
        time = F.unix_millis(F.current_timestamp())
    elif dict(frame.dtypes)[source.timestamp] == "timestamp":
        time = F.unix_millis(F.col(source.timestamp))
    else:
        time = F.col(source.timestamp).cast("long")
    rows = frame.select(time.alias("__time"), F.struct("*").alias("__row"))
    number = plan.topics.index(source.name)
    stage = RowsStage(shipment, number, _RowsToSegment(source.key), partitions)
    return rows.mapInArrow(stage, PACKED)


class _RowsToSegment:
    """Rows of a DataFrame to a segment: the row as a dict, the key as a typed key."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._codec = Codec()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = batch.column("__row").to_pylist()
        keys = [None if self._key is None else row[self._key] for row in rows]
        columns = [
            pa.array([None if k is None else self._codec.encode(k) for k in keys], pa.binary()),
            pa.array([any_value.encode(row) for row in rows], pa.binary()),
            # A row without a time fails as a record, like one whose time is none.
            pc.fill_null(batch.column("__time").cast(pa.int64()), -(2**63)),
            pa.nulls(len(rows), pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SEGMENT)
