"""One batch that changes state manually.

Takes rows that say what to write into which key group; runs them as a batch of their own on a
checkpoint, through operators of the same shape as the program's, so Spark writes and commits
the state like any other. The offsets stay where they are, and nothing is put out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from millpond.config import PARTITIONS
from millpond.folders import Scratch
from millpond.spark.internals.jvm import is_set
from millpond.spark.internals.own_session import register
from millpond.spark.internals.processor import KeyGroupProcessor, PackedRow, transformed
from millpond.spark.internals.settings import PIPELINED_STATE, is_on
from millpond.spark.internals.stand_in_sources import EchoSource, EditSource
from millpond.spark.internals.state_client import OneByOne, Pipelined
from millpond.spark.statestore import telling
from millpond.state.edit import apply_edits, decode_edits
from millpond.storage.batch_source import with_offsets, with_renamed_stores
from millpond.storage.checkpoint import Batch, Checkpoint
from millpond.storage.files import local

__all__ = ["CLEAR", "EDITS", "moved", "run_edit", "write_shape", "written"]

# What a row brings to its key group, in the order in which it is done: nothing of what was there
# stays; a blob (its id, one byte of length first); edits.
CLEAR, BLOB, EDITS = 0, 1, 2


def run_edit(
    checkpoint: Checkpoint,
    rows: DataFrame,
    layers: list[frozenset[str]],
    groups: int,
    partitions: int,
    offsets: dict[str, dict[str, int]] | None = None,
    begin: Batch | None = None,
    renamed: dict[str, str] | None = None,
) -> int:
    """Run rows of (scope, grp, kind, payload) as a batch; return how many values it changed.

    Args:
        checkpoint: The checkpoint to add a batch to.
        rows: What to do; the batch runs in their session.
        layers: For each layer, the scopes that it keeps.
        groups: How many key groups the state has.
        partitions: How many partitions the state has.
        offsets: Where sources stand after the batch. Default: where they stand.
        begin: For a checkpoint without batches, the one of another checkpoint to go on from.
        renamed: The new names of stores, as scope/store; what is known of them goes along.
    """
    session = rows.sparkSession
    last = checkpoint.last()
    batch = begin if last is None else checkpoint.batch(last)
    register(session, EditSource)
    register(session, EchoSource)
    start = {} if batch is None else batch.source
    if offsets is not None:
        start = with_offsets(start, offsets)
    start = with_renamed_stores(start, renamed or {})
    ticks = session.readStream.format(EditSource.name()).option("start", json.dumps(start)).load()
    # The one row is sent to wherever the others are, be they millions.
    packed = rows.crossJoin(F.broadcast(ticks)).select(
        "scope", "grp", "kind", "payload", F.lit(None).cast("binary").alias("clock")
    )
    for _ in batch.foreign if batch else ():
        packed = packed.unionAll(session.readStream.format(EchoSource.name()).load())
    for scopes in layers:
        packed = transformed(packed, EditProcessor(scopes, groups, is_on(session, PIPELINED_STATE)))
    changed: list[int] = []

    def count(done: DataFrame, number: int) -> None:
        changed.extend(int(row.kind) for row in done.select("kind").collect())

    with _partitioned(session, partitions), telling(checkpoint):
        writer = packed.writeStream.foreachBatch(count).trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint.folder.path).start()
        query.awaitTermination()
    return sum(changed)


@contextmanager
def _partitioned(session: SparkSession, partitions: int) -> Iterator[None]:
    """Let queries that begin meanwhile divide their state; the session is as before afterwards."""
    before = session.conf.get(PARTITIONS) if is_set(session, PARTITIONS) else None
    session.conf.set(PARTITIONS, str(partitions))
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(PARTITIONS)
        else:
            session.conf.set(PARTITIONS, before)


def write_shape(
    session: SparkSession, checkpoint: Checkpoint, layers: int, partitions: int
) -> None:
    """Write the files of a checkpoint that depend only on its shape: those of a new one.

    They are the id of the query, and what Spark says about its operators and their schema.
    """
    schema = "scope string, grp int, kind int, payload binary"
    nothing = session.createDataFrame([("", 0, CLEAR, bytearray())], schema)
    with Scratch("millpond-edit-") as folder:
        fresh = Checkpoint(local(folder))
        run_edit(fresh, nothing, [frozenset()] * layers, 1, partitions)
        checkpoint.take_shape(fresh, layers)


def moved(blobs: DataFrame, old: str, new: str) -> DataFrame:
    """Return the rows that take the blobs of a scope to another one."""
    mine = blobs.where(F.col("scope") == old)
    put = written(mine).withColumn("scope", F.lit(new))
    cleared = mine.select("scope", "grp").distinct()
    nothing = F.lit(bytearray(b"")).alias("payload")
    return put.unionAll(cleared.select("scope", "grp", F.lit(CLEAR).alias("kind"), nothing))


def written(blobs: DataFrame) -> DataFrame:
    """Return the rows that write blobs where they belong."""
    length = F.unhex(F.lpad(F.hex(F.length("id")), 2, "0"))
    payload = F.concat(length, "id", "blob").alias("payload")
    return blobs.select("scope", "grp", F.lit(BLOB).alias("kind"), payload)


class EditProcessor(KeyGroupProcessor):
    """Applies what is for its scopes; lets the rest pass to the next layer."""

    def __init__(self, scopes: frozenset[str], groups: int, pipelined: bool) -> None:
        super().__init__(pipelined)
        self._scopes = scopes
        self._groups = groups

    def handle(
        self, scope: str, group: int, rows: Iterator[Any], store: Pipelined | OneByOne
    ) -> Iterator[SparkRow]:
        if scope not in self._scopes:
            yield from (PackedRow(*row) for row in rows)
            return
        changed = 0
        for row in sorted(rows, key=lambda row: row.kind):
            payload = bytes(row.payload or b"")
            if row.kind == CLEAR:
                self.clear(store)
            elif row.kind == BLOB:
                length = payload[0]
                store.put(payload[1 : length + 1], payload[length + 1 :])
                changed += 1
            else:
                changed += apply_edits(store, decode_edits(payload), self._groups)
        # Its own scope is none, so no later layer takes it for one of its rows.
        yield PackedRow("", group, changed, b"", None)
