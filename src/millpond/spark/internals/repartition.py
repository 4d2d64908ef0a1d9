"""State in another number of partitions.

Relies on: `SparkSession._streamingCheckpointManager`, whose `repartition` adds a batch of its own
    to a checkpoint whose query is stopped.
Seen with: 4.3. PySpark calls it evolving, and does not export it.
Without it: `millpond state rescale` fails before it has changed anything.
For Spark 4.4: `StreamingCheckpointManager` in `pyspark/sql/streaming/query.py`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

__all__ = ["repartition"]


def repartition(session: SparkSession, path: str, partitions: int) -> None:
    """Divide the state of a checkpoint again."""
    session._streamingCheckpointManager.repartition(path, partitions)
