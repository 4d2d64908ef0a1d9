"""Sources with which a checkpoint gets a batch that its program has not made.

Relies on: a checkpoint that knows its sources by their order only, so another source may take the
    place of one; a Python source that may give any offset, also an old one; operators that accept
    the checkpoint of other functions, as their number and the schema of their state are the same.
Seen with: 4.3, without names of sources (`queryEvolution.enableSourceEvolution` is held at false).
Without it: edit, import, rename, reshape and repair of an operator's description fail, at their
    start.
For Spark 4.4: `OffsetSeqLog` with sources by name, `PythonMicroBatchStream`,
    `StateSchemaCompatibilityChecker`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millpond.wire.packed_rows import PACKED

__all__ = ["EchoSource", "EditSource"]


class EditSource(DataSource):
    """One row, once; its offset is that of the last batch, with a mark."""

    @classmethod
    def name(cls) -> str:
        return "millpond-edit"

    def schema(self) -> str:
        return "tick int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _EditReader(json.loads(self.options["start"]))


class _EditReader(DataSourceStreamReader):
    def __init__(self, start: dict[str, Any]) -> None:
        self._start = start

    def initialOffset(self) -> dict[str, Any]:
        return self._start

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        return {**self._start, "edits": self._start.get("edits", 0) + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


class EchoSource(DataSource):
    """Stands where a source of Spark's own stood: it has nothing, and keeps its offset."""

    @classmethod
    def name(cls) -> str:
        return "millpond-echo"

    def schema(self) -> str:
        return PACKED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _EchoReader()


class _EchoReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        return start  # type: ignore[no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from ()
