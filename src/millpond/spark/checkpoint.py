"""Read what a checkpoint holds.

Takes a checkpoint folder, gives the blobs of every (scope, key group) as of its last committed
batch. Uses Spark's own reader of state stores, so what is read is what the query would load.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from millpond.state.store import MemoryStore

__all__ = ["read_stores"]


def read_stores(
    session: SparkSession, checkpoint: Path, layers: int
) -> dict[tuple[str, int], MemoryStore]:
    """Return the stores of every key group, by scope and group."""
    stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
    if not any((checkpoint / "commits").glob("[0-9]*")):
        return stores
    for operator in range(layers):
        rows = (
            session.read.format("statestore")
            .option("operatorId", operator)
            .option("stateVarName", "pages")
            .load(str(checkpoint))
            .select("key.scope", "key.grp", "user_map_key.id", "user_map_value.blob")
        )
        for scope, group, blob_id, blob in rows.collect():
            stores[scope, group].blobs[bytes(blob_id)] = bytes(blob)
    return stores
