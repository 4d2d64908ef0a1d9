"""The topics of the local engine: what a program reads of them and what it has written.

Takes items as a test gives them, and the outputs of a batch; gives rows of a segment, and records.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.connectors.items import as_record
from millpond.connectors.protocols import TopicWriter
from millpond.connectors.segments import SEGMENT
from millpond.connectors.serde import BytesSerializer
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError
from millpond.program.plan import Plan
from millpond.program.steps import Write
from millpond.record import Record
from millpond.wire.headers import decode_headers
from millpond.worker.changed_fields import plain_key

__all__ = ["LocalWriter", "WrittenTopics", "topic_table"]


class WrittenTopics(dict[str, list[Record]]):
    """Records by topic; a topic that the program does not write is an error."""

    def __init__(self, plan: Plan, dead_letters: str) -> None:
        super().__init__()
        steps = [output.step for output in plan.outputs if isinstance(output.step, Write)]
        self._known = {dead_letters, *(step.topic.name for step in steps if step.topic)}
        self._chosen = any(step.topic is None for step in steps)

    def __missing__(self, name: str) -> list[Record]:
        if name not in self._known and not self._chosen:
            msg = f"the program writes {sorted(self._known)}, not {name!r}."
            raise ConfigError(msg + "\nFix: ask for one of these.")
        return self.setdefault(name, [])


class LocalWriter(TopicWriter):
    """Takes the records that are written to topics; a batch that comes again changes nothing."""

    def __init__(self, topics: dict[str, list[Record]]) -> None:
        self._topics = topics
        self._written: dict[str, int] = {}
        """The last batch that each topic has."""

    def write(self, topic: str, batch: pa.RecordBatch, batch_id: int, reads: str = "") -> None:
        if self._written.get(topic, -1) >= batch_id:
            return  # it was replayed, because a sink had failed
        self._written[topic] = batch_id
        has_headers = "headers" in batch.schema.names
        headers = batch.column("headers").to_pylist() if has_headers else [None] * batch.num_rows
        columns = (batch.column(i).to_pylist() for i in range(3))
        records = self._topics[topic]
        for key, value, timestamp, header in zip(*columns, headers, strict=True):
            place = (topic, 0, len(records))
            records.append(Record(key, value, timestamp, decode_headers(header), *place))


def topic_table(topic: Topic, items: list[Any], now_ms: int) -> pa.Table:
    """Return items as a producer would have written them; bytes are taken as they are."""
    rows = []
    for item in items:
        key, value, timestamp, headers = as_record(item, now_ms)
        if value is not None and not isinstance(value, bytes):
            value = topic.value_serializer(value)
        rows.append((_topic_key(topic, key), value, timestamp, headers))
    columns: list[Any] = list(zip(*rows, strict=True)) or [[], [], [], []]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SEGMENT, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SEGMENT)


def _topic_key(topic: Topic, key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(topic.key_serializer, BytesSerializer):
        return plain_key(key)
    return topic.key_serializer(key)
