"""Sinks in Python, called on the driver with each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.connectors.protocols import Sink, SinkBatch
from millpond.errors import ConfigError, shown

__all__ = ["ListSink", "as_sink", "collected"]


class ListSink(list[Any]):
    """A list that fills with the values of the stream.

    With `metadata=True` each element is a dict that also has `_key`, `_timestamp`, `_headers`,
    `_topic`, `_partition` and `_offset`.
    """

    def __init__(self, metadata: bool = False) -> None:
        super().__init__()
        self._metadata = metadata
        self._last = ("", -1)

    def write(self, batch: SinkBatch) -> None:
        stream, number = self._last
        if batch.stream == stream and batch.batch_id <= number:
            return
        self._last = (batch.stream, batch.batch_id)
        self.extend(collected(record, self._metadata) for record in batch)


class FunctionSink:
    """A function of (records, batch_id), as Spark's `foreachBatch` takes one."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "sink")

    def write(self, batch: SinkBatch) -> None:
        self._function(list(batch.records), batch.batch_id)


def as_sink(given: Any) -> Sink:
    """Return the sink for what the user passed: an object with `write`, or a function."""
    if callable(getattr(given, "write", None)):
        return given  # type: ignore[no-any-return]
    if callable(given):
        return FunctionSink(given)
    msg = (
        f"sink() takes an object with write(batch), or a function of (records, batch_id); got "
        f"{shown(given)}.\nFix: sdf.sink(ListSink()), or def save(records, batch_id): ..."
    )
    raise ConfigError(msg)


def collected(record: Any, metadata: bool) -> Any:
    """Return a record's value, with its metadata in the same dict where asked for."""
    if not metadata:
        return record.value
    value = record.value if isinstance(record.value, dict) else {"_value": record.value}
    return {
        **value,
        "_key": record.key,
        "_timestamp": record.timestamp,
        "_headers": record.headers,
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
    }
