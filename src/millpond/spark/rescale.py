"""Divide the state of a checkpoint into another number of parts.

Takes a checkpoint whose query is stopped; Spark adds a batch of its own that has the same state in
other parts. Older batches stay readable in theirs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.checkpoint import Checkpoint
from millpond.spark.statestore import telling

__all__ = ["fingerprint", "repartition"]


def repartition(session: SparkSession, checkpoint: Checkpoint, partitions: int) -> None:
    """Divide the state anew."""
    with telling(checkpoint):
        session._streamingCheckpointManager.repartition(checkpoint.folder.path, partitions)


def fingerprint(blobs: DataFrame) -> tuple[int, int, str]:
    """Return the number, the bytes and a checksum of blobs, whatever their order."""
    digest = F.xxhash64("scope", "grp", "id", "blob").cast("decimal(38,0)")
    count, size, total = blobs.agg(
        F.count(F.lit(1)), F.sum(F.length("blob")), F.sum(digest)
    ).collect()[0]
    return int(count), int(size or 0), f"{int(total or 0) % 2**64:016x}"
