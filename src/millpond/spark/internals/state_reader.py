"""The blobs of an operator, read with Spark's own reader of state stores.

Relies on: the source `statestore` with `operatorId`, `stateVarName`, `batchId`, `readChangeFeed`,
    `changeStartBatchId` and `changeEndBatchId`; its columns `key`, `user_map_key`,
    `user_map_value`, `batch_id` and `change_type`, which is "update" or else a removal; operators
    that are counted from the last one of the plan.
Seen with: 4.3. The source is documented, and evolving.
Without it: `millpond state`, repair and rescale fail, or show the state of another operator.
For Spark 4.4: `StateDataSource`, `StatePartitionReader`, and `IncrementalExecution`, which
    sets `operatorId`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.spark.internals.processor import STATE

__all__ = ["changed_blobs", "operator_of", "stored_blobs"]


def operator_of(layer: int, layers: int) -> int:
    """Return the number that Spark gives to the operator of a layer, which are counted from 1."""
    return layers - layer


def stored_blobs(session: SparkSession, path: str, operator: int, batch: int) -> DataFrame:
    """Return what an operator has stored after a batch: scope, grp, id, blob."""
    frame = _reader(session, operator).option("batchId", batch).load(path)
    return frame.select(
        "key.scope",
        "key.grp",
        F.col("user_map_key.id").alias("id"),
        F.col("user_map_value.blob").alias("blob"),
    )


def changed_blobs(
    session: SparkSession, path: str, operator: int, first: int, last: int
) -> DataFrame:
    """Return what batches have changed: scope, grp, batch_id, id, blob; null where it is gone."""
    reader = _reader(session, operator).option("readChangeFeed", True)
    reader = reader.option("changeStartBatchId", first).option("changeEndBatchId", last)
    kept = F.when(F.col("change_type") == "update", F.col("user_map_value.blob"))
    return reader.load(path).select(
        "key.scope",
        "key.grp",
        "batch_id",
        F.col("user_map_key.id").alias("id"),
        kept.alias("blob"),
    )


def _reader(session: SparkSession, operator: int) -> Any:
    reader = session.read.format("statestore")
    return reader.option("operatorId", operator).option("stateVarName", STATE)
