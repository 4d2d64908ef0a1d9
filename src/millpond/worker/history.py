"""Files in the place of a topic: its records from before the topic begins.

Takes a `FileSource` and the topic that it stands for; gives segments with keys and values as the
topic would have them, so the program reads them like any record of the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.connectors.file_rows import RowError
from millpond.connectors.protocols import Located, Offsets, SourceReader
from millpond.connectors.serde import key_form, serializer
from millpond.connectors.sources import FileReader, FileSource, located
from millpond.connectors.topic import Topic
from millpond.errors import TopicError
from millpond.worker.changed_fields import plain_key

__all__ = ["HistoryReader"]


@dataclass
class HistoryReader(SourceReader):
    """Reads files as if they were the topic."""

    counts_files = True

    files: FileReader
    topic: Topic

    def initial(self, reset: str) -> Offsets:
        return self.files.initial(reset)

    def ends(self, begin: Offsets) -> Offsets:
        return self.files.ends(begin)

    def known(self, begin: Offsets) -> Offsets:
        return self.files.known(begin)

    def fitting(self, start: int, end: int, most_bytes: int) -> int:
        return self.files.fitting(start, end, most_bytes)

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for number in range(start, end):
            yield from self.read_file(number)

    def located(self, partition: str, start: int, end: int) -> Iterator[Located]:
        for number in range(start, end):
            yield from located(number, self.read_file(number))

    def read_file(self, number: int) -> Iterator[pa.RecordBatch]:
        source: FileSource = self.files.source
        topic = self.topic
        write_key = _inverse(topic.key_deserializer, topic.key_serializer)
        write_value = _inverse(topic.value_deserializer, topic.value_serializer)
        for segment in self.files.read_file(number):
            keys = _again(segment.column("key"), source.key_deserializer, write_key)
            values = segment.column("value")
            if not source.is_raw:
                try:
                    values = _again(values, source.value_deserializer, write_value)
                except RowError as error:  # the topic's deserializer does not know such records
                    raise TopicError(str(error)) from error
            columns = [keys, values, segment.column("timestamp"), segment.column("headers")]
            yield pa.RecordBatch.from_arrays(columns, schema=segment.schema)


def _inverse(read: Any, write: Any) -> Any:
    """Return what writes bytes that the topic's deserializer reads."""
    form = key_form(read)
    if form == "own":  # the topic's own serializer is the other half of its own deserializer
        return write
    return plain_key if form == "bytes" else serializer(form)


def _again(column: pa.Array, read: Any, write: Any) -> pa.Array:
    """Return a column as another serializer writes it."""
    values = [None if data is None else write(read(data)) for data in column.to_pylist()]
    return pa.array(values, pa.binary())
