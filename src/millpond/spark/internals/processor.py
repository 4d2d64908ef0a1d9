"""A stateful operator that has one map of blobs for each key group.

Takes packed rows; `handle` gets those of one scope and key group, and the `Store` of its blobs.

Relies on: `transformWithState` with output mode "append" and time mode "None"; `handleInputRows`,
    which is called by position with (key, rows, timer values); `init`, which Spark also calls on
    the driver, to learn the schema of the state. `StatefulProcessor` is an evolving API.
Seen with: 4.3.
Without it: queries do not start.
For Spark 4.4: `pyspark/sql/streaming/stateful_processor.py`, `stateful_processor_util.py`,
    `transform_with_state_driver_worker.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from millpond.spark.internals.state_client import BLOB, BLOB_ID, OneByOne, Pipelined, store_of
from millpond.wire.packed_rows import PACKED

__all__ = ["STATE", "KeyGroupProcessor", "PackedRow", "transformed"]

STATE = "pages"
"""The name of the map in the state of every operator."""

PackedRow = SparkRow("scope", "grp", "kind", "payload", "clock")
"""A row as operators give it on."""


def transformed(rows: DataFrame, processor: KeyGroupProcessor) -> DataFrame:
    """Return the rows that a stateful operator makes of packed rows."""
    grouped = rows.groupBy("scope", "grp")
    return grouped.transformWithState(processor, PACKED, "append", "None")


class KeyGroupProcessor(StatefulProcessor):
    """Gives the rows of each key group, with its blobs, to `handle`."""

    def __init__(self, pipelined: bool) -> None:
        self._pipelined = pipelined

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState(STATE, BLOB_ID, BLOB)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[SparkRow]:
        scope, group = key
        store = store_of(self._state, self._pipelined)
        yield from self.handle(scope, group, rows, store)
        store.settle()

    def handle(
        self, scope: str, group: int, rows: Iterator[Any], store: Pipelined | OneByOne
    ) -> Iterator[SparkRow]:
        """Yield what comes of the rows of a key group."""
        raise NotImplementedError

    def clear(self, store: Pipelined | OneByOne) -> None:
        """Remove every blob of the key group that is handled."""
        store.settle()
        self._state.clear()

    def close(self) -> None:
        """End; Spark calls it when a task is done."""
