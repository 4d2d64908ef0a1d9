"""Divide the state of a checkpoint into another number of parts.

Takes a checkpoint whose query is stopped; Spark adds a batch of its own that has the same state in
other parts. Older batches stay readable in theirs.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.spark.internals.repartition import repartition as divide
from millpond.spark.statestore import telling
from millpond.storage.checkpoint import Checkpoint

__all__ = ["Fingerprint", "fingerprint", "fingerprints", "repartition", "together"]

Fingerprint = tuple[int, int, str]


def repartition(session: SparkSession, checkpoint: Checkpoint, partitions: int) -> None:
    """Divide the state again."""
    with telling(checkpoint):
        divide(session, checkpoint.folder.path, partitions)


def fingerprint(blobs: DataFrame) -> Fingerprint:
    """Return the number, the bytes and a checksum of blobs, whatever their order."""
    return together(fingerprints(blobs).values())


def fingerprints(blobs: DataFrame) -> dict[str, Fingerprint]:
    """Return the number, the bytes and a checksum of the blobs of each key scope."""
    digest = F.xxhash64("scope", "grp", "id", "blob").cast("decimal(38,0)")
    by_scope = blobs.groupBy("scope").agg(F.count(F.lit(1)), F.sum(F.length("blob")), F.sum(digest))
    return {
        scope: (int(count), int(size or 0), f"{int(total or 0) % 2**64:016x}")
        for scope, count, size, total in by_scope.collect()
    }


def together(found: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of blobs from those of their parts."""
    counts, sizes, sums = zip(*found, (0, 0, "0"), strict=True)
    return sum(counts), sum(sizes), f"{sum(int(text, 16) for text in sums) % 2**64:016x}"
