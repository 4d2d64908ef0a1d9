"""State as DataFrames, at any batch that a checkpoint keeps.

Takes a checkpoint; gives rows of values, of timers and of changes, read with Spark's own reader
of state stores, so what is read is what the query would load. Workers take pages apart without
any type of the program: keys, names and values stay bytes of the codec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.arguments.duration import LATEST_MS
from millpond.config import PARTITIONS
from millpond.connectors.serde import key_to_text
from millpond.errors import (
    DamagedStateError,
    EngineError,
    StateError,
    UnsupportedCheckpointError,
)
from millpond.spark.internals.error_texts import (
    SPARK_ERRORS,
    is_damage,
    is_of_reader,
    is_unsupported,
    said,
    what_is_damaged,
)
from millpond.spark.internals.state_reader import changed_blobs, operator_of, stored_blobs
from millpond.spark.session import partitions_of
from millpond.state.codec import Codec
from millpond.state.layout import Pages, table_id
from millpond.state.plain import to_plain, to_text
from millpond.state.rows import changes, group_rows, group_timers
from millpond.state.store import MemoryStore
from millpond.storage.checkpoint import Checkpoint

__all__ = ["StateReader", "blobs_at", "counted", "differing", "largest", "telling"]


class Fields(Protocol):
    """Shows what a store keeps as aggregations and windows."""

    def has(self, scope: str, store: str) -> bool:
        """Tell whether what a store keeps is shown in another way."""

    def shown(
        self, scope: str, store: str, name: bytes, value: bytes | None
    ) -> Iterable[tuple[Any, Any]]:
        """Return names and values as people see them."""


_ROWS = "scope string, key binary, store string, name binary, value binary, expires long"
_TEXTS = "scope string, store string, key string, name string, value string, expires timestamp"
_TIMERS = "scope string, key binary, step string, name string, at long, clock string"
_CHANGES = (
    "scope string, batch long, key binary, store string, name binary, before binary, after binary"
)


class StateReader:
    """Reads the state of one generation."""

    def __init__(
        self, session: SparkSession, checkpoint: Checkpoint, layers: int, groups: int
    ) -> None:
        # Spark divides by 200 if nobody says otherwise, and each part that is read back is a job.
        session.conf.set(PARTITIONS, str(partitions_of(session)))
        self.session = session
        self.checkpoint = checkpoint
        self._layers = layers
        self._groups = groups

    def rows(self, batch: int) -> DataFrame:
        """Return every value: scope, key, store, name, value, expires."""
        groups = self._groups  # not self: what a worker calls is pickled
        return self._taken_apart(batch, lambda blobs: _rows_of(blobs, groups), _ROWS)

    def timers(self, batch: int) -> DataFrame:
        """Return every timer: scope, key, step, name, at, clock."""
        groups = self._groups
        return self._taken_apart(batch, lambda blobs: _timers_of(blobs, groups), _TIMERS)

    def _taken_apart(
        self, batch: int, function: Callable[[pa.Table], pa.Table], schema: str
    ) -> DataFrame:
        return self.blobs(batch).groupBy("scope", "grp").applyInArrow(function, schema)

    def blobs(self, batch: int) -> DataFrame:
        """Return what is stored after a batch: scope, grp, id, blob."""
        frames = [
            blobs_at(self.session, self.checkpoint, layer, batch) for layer in range(self._layers)
        ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        return whole

    def group(self, scope: str, group: int, batch: int, layer: int | None = None) -> MemoryStore:
        """Return the blobs of one key group; only one layer is read where it is known which."""
        blobs = self.blobs(batch)
        if layer is not None:
            operator = operator_of(layer, self._layers)
            blobs = blobs_at(self.session, self.checkpoint, operator, batch)
        asked = blobs.where((F.col("scope") == scope) & (F.col("grp") == group))
        with telling(self.checkpoint):
            found = asked.select("id", "blob").collect()
        return MemoryStore({bytes(i): bytes(blob) for i, blob in found})

    def tables(self, scope: str, name: str, batch: int) -> list[bytes]:
        """Return the tables that key groups keep under a name, as they were written."""
        of_name = F.col("id") == F.lit(bytearray(table_id(name)))
        asked = self.blobs(batch).where(of_name & (F.col("scope") == scope)).orderBy("grp")
        with telling(self.checkpoint):
            found = asked.select("blob").collect()
        stores = [MemoryStore({table_id(name): bytes(blob)}) for (blob,) in found]
        tables = (Pages(store, Codec(), self._groups).table(name) for store in stores)
        return [table for table in tables if table is not None]

    def changes(
        self, first: int, last: int, scope: str | None = None, group: int | None = None
    ) -> DataFrame:
        """Return each value that the batches from first to last have changed.

        Columns: scope, batch, key, store, name, before, after.
        """
        where = F.lit(True)
        if scope is not None:
            where = (F.col("scope") == scope) & (F.col("grp") == group)
        whole: DataFrame | None = None
        groups = self._groups
        for begin, end in self._stretches(first, last):
            base = self._base(begin - 1).where(where).groupBy("scope", "grp")
            feed = self._feed(begin, end).where(where).groupBy("scope", "grp")
            frame = base.cogroup(feed).applyInArrow(
                lambda old, new: _changes_of(old, new, groups), _CHANGES
            )
            whole = frame if whole is None else whole.unionAll(frame)
        return self.session.createDataFrame([], _CHANGES) if whole is None else whole

    def _stretches(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield batches without a rescale between them: that one changed no value."""
        begin, partitions = first, 0
        for number in range(first, last + 1):
            batch = self.checkpoint.batch(number)
            now = 0 if batch is None else batch.partitions
            if partitions and now != partitions:
                if begin < number:
                    yield begin, number - 1
                begin = number + 1
            partitions = now
        if begin <= last:
            yield begin, last

    def _base(self, batch: int) -> DataFrame:
        if batch >= 0:
            return self.blobs(batch)
        empty = "scope string, grp int, id binary, blob binary"
        return self.session.createDataFrame([], empty)

    def _feed(self, first: int, last: int) -> DataFrame:
        whole: DataFrame | None = None
        for layer in range(self._layers):
            path = self.checkpoint.folder.path
            with telling(self.checkpoint):
                frame = changed_blobs(self.session, path, layer, first, last)
            whole = frame if whole is None else whole.unionAll(frame)
        assert whole is not None
        return whole


def as_text(
    rows: DataFrame, asked: list[tuple[str, str]], forms: dict[str, str], fields: Fields
) -> DataFrame:
    """Return rows that anybody can read.

    Columns: scope, store, key, name, value (JSON), expires.

    Args:
        rows: Those of `StateReader.rows`.
        asked: The scopes and stores that are wanted.
        forms: How the keys of each scope are read.
        fields: Shows aggregations and windows.
    """
    wanted = [f"{scope}/{store}" for scope, store in asked]
    mine = rows.where(F.concat_ws("/", "scope", "store").isin(wanted))
    return mine.mapInArrow(lambda batches: _texts_of(batches, forms, fields), _TEXTS)


def differing(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return the rows of `StateReader.rows` that differ.

    Columns: scope, key, store, name, before, after.
    """
    place = ["scope", "key", "store", "name"]
    old, new = before.alias("old"), after.alias("new")
    same = [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in place]
    joined = old.join(new, reduce(lambda one, other: one & other, same), "full_outer")
    either = [F.coalesce(f"old.{name}", f"new.{name}").alias(name) for name in place]
    is_other = ~F.col("old.value").eqNullSafe(F.col("new.value"))
    values = [F.col("old.value").alias("before"), F.col("new.value").alias("after")]
    return joined.where(is_other).select(*either, *values).orderBy("scope", "key", "store", "name")


def counted(rows: DataFrame, places: list[tuple[str, str]]) -> tuple[int, int]:
    """Return how many of the rows of `StateReader.rows` are of some stores, and of how many keys.

    Args:
        rows: Every value.
        places: The scope and the store of each that counts.
    """
    is_asked = reduce(
        lambda one, other: one | other,
        [(F.col("scope") == scope) & (F.col("store") == store) for scope, store in places],
    )
    mine = rows.where(is_asked)
    keys = mine.select("scope", "key").distinct()
    return mine.count(), keys.count()


def largest(rows: DataFrame, changed: DataFrame | None, limit: int, by: str) -> DataFrame:
    """Return the keys that keep most bytes or changed most often.

    Columns: scope, key, bytes, values, changes.
    """
    size = F.length("value") + F.length("name")
    kept = rows.groupBy("scope", "key").agg(
        F.sum(size).alias("bytes"), F.count(F.lit(1)).alias("values")
    )
    if changed is None:
        kept = kept.withColumn("changes", F.lit(None).cast("long"))
        return kept.orderBy(F.desc(by), "scope", "key").limit(limit)
    counts = changed.groupBy("scope", "key").agg(F.countDistinct("batch").alias("changes"))
    old, new = kept.alias("old"), counts.alias("new")
    same = (F.col("old.scope") == F.col("new.scope")) & F.col("old.key").eqNullSafe(
        F.col("new.key")
    )
    joined = old.join(new, same, "left").select(
        "old.scope",
        "old.key",
        "bytes",
        "values",
        F.coalesce("changes", F.lit(0)).alias("changes"),
    )
    return joined.orderBy(F.desc(by), "scope", "key").limit(limit)


def blobs_at(session: SparkSession, checkpoint: Checkpoint, layer: int, batch: int) -> DataFrame:
    """Return what one operator has stored after a batch: scope, grp, id, blob."""
    with telling(checkpoint):
        return stored_blobs(session, checkpoint.folder.path, layer, batch)


@contextmanager
def telling(checkpoint: Checkpoint) -> Iterator[None]:
    """Say what Spark could not read, without the JVM's stack."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise translated(error, checkpoint) from error


def translated(error: BaseException, checkpoint: Checkpoint) -> StateError | EngineError:
    """Return what Spark said about a checkpoint as an error of ours."""
    text = said(error)
    if is_unsupported(text, checkpoint):
        msg = f"another version of Spark wrote the state: {what_is_damaged(text, checkpoint)}."
        fix = "read it with the versions of pyspark and millpond that wrote it."
        return UnsupportedCheckpointError(f"{msg}\nFix: {fix}")
    if is_damage(text, checkpoint.folder.path) or is_of_reader(text):
        msg = (
            f"the state cannot be read: {what_is_damaged(text, checkpoint)}.\n"
            "Fix: millpond state repair TARGET repairs it; millpond state verify TARGET says more."
        )
        return DamagedStateError(msg)
    return EngineError(
        f"Spark could not read the state: {text[:2000]}\n"
        "Fix: correct what Spark reports, or run millpond state verify TARGET."
    )


# --- in the workers -------------------------------------------------------------------------


def _rows_of(blobs: pa.Table, groups: int) -> pa.Table:
    scope = blobs.column("scope")[0].as_py()
    found = [(scope, *row) for row in group_rows(_store(blobs), groups)]
    types = [pa.string(), pa.binary(), pa.string(), pa.binary(), pa.binary(), pa.int64()]
    return _table(found, ["scope", "key", "store", "name", "value", "expires"], types)


def _texts_of(
    batches: Iterable[pa.RecordBatch], forms: dict[str, str], fields: Fields
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            key = key_to_text(forms.get(row["scope"], "bytes"), row["key"])
            place = (row["scope"], row["store"])
            if fields.has(*place):
                shown = fields.shown(*place, row["name"], row["value"])
            else:
                shown = [(to_text(row["name"]), to_plain(row["value"]))]
            # A lifetime may end after the last date.
            expires = None if row["expires"] is None else min(row["expires"], LATEST_MS)
            for name, value in shown:
                found.append((*place, key, name, json.dumps(value), expires))
        names = ["scope", "store", "key", "name", "value", "expires"]
        types = [pa.string()] * 5 + [pa.timestamp("ms", tz="UTC")]
        columns = list(zip(*found, strict=True)) or [()] * len(names)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(
            [*arrays[:5], arrays[5].cast(pa.timestamp("us", tz="UTC"))], names=names
        )


def _timers_of(blobs: pa.Table, groups: int) -> pa.Table:
    scope = blobs.column("scope")[0].as_py()
    found = [(scope, key, step, *timer) for key, step, timer in group_timers(_store(blobs), groups)]
    types = [pa.string(), pa.binary(), pa.string(), pa.string(), pa.int64(), pa.string()]
    return _table(found, ["scope", "key", "step", "name", "at", "clock"], types)


def _changes_of(base: pa.Table, feed: pa.Table, groups: int) -> pa.Table:
    batches: dict[int, dict[bytes, bytes | None]] = {}
    for number, blob_id, blob in zip(
        feed.column("batch_id").to_pylist(),
        feed.column("id").to_pylist(),
        feed.column("blob").to_pylist(),
        strict=True,
    ):
        batches.setdefault(number, {})[blob_id] = blob
    found = []
    if batches:
        scope = feed.column("scope")[0].as_py()
        walked = changes(_store(base).blobs, sorted(batches.items()), groups)
        found = [(scope, *change) for change in walked]
    binary, text = pa.binary(), pa.string()
    names = ["scope", "batch", "key", "store", "name", "before", "after"]
    return _table(found, names, [text, pa.int64(), binary, text, binary, binary, binary])


def _store(blobs: pa.Table) -> MemoryStore:
    ids, values = blobs.column("id").to_pylist(), blobs.column("blob").to_pylist()
    return MemoryStore(dict(zip(ids, values, strict=True)))


def _table(rows: Iterable[tuple[Any, ...]], names: list[str], types: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=names)
