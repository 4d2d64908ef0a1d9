"""Sinks in Python, called on the driver with each batch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any

from millpond.arguments.async_functions import refuse_async
from millpond.connectors.protocols import Sink, SinkBatch
from millpond.connectors.topic import check_name
from millpond.errors import ConfigError, shown
from millpond.record import Record

__all__ = ["ListSink", "as_sink", "collected", "sink_name"]


class ListSink(list[Any]):
    """A list that fills with the values of the stream.

    With `metadata=True` each element is a dict that also has `_key`, `_timestamp`, `_headers`,
    `_topic`, `_partition` and `_offset`.

    >>> from millpond.testing import frame, run_local
    >>> sdf, results = frame(), ListSink()
    >>> sdf.sink(results)
    >>> _ = run_local(sdf, [1, 2])
    >>> results
    [1, 2]

    Args:
        metadata: Whether elements have the metadata of their record.
    """

    def __init__(self, metadata: bool = False) -> None:
        super().__init__()
        self._metadata = metadata
        self._deliveries: set[str] = set()

    def write(self, batch: SinkBatch) -> None:
        """Add the records of a batch, unless they were added before."""
        if batch.delivery_id not in self._deliveries:
            self.extend([collected(record, self._metadata) for record in batch])
            self._deliveries.add(batch.delivery_id)


class FunctionSink:
    """A function of (records, delivery_id)."""

    def __init__(self, function: Callable[[list[Record], str], Any]) -> None:
        self._function = function

    def write(self, batch: SinkBatch) -> None:
        self._function(list(batch.records), batch.delivery_id)


def as_sink(given: Any) -> Sink:
    """Return the sink for what the user passed: an object with `write`, or a function."""
    if isinstance(given, type):
        name = given.__name__
        msg = f"sink() got the class {name}, not an object of it."
        raise ConfigError(f"{msg}\nFix: sdf.sink({name}(...)), with parentheses.")
    if callable(getattr(given, "write", None)):
        refuse_async(given.write, "sink()")
        return given  # type: ignore[no-any-return]
    if callable(given):
        refuse_async(given, "sink()")
        return FunctionSink(given)
    msg = (
        f"sink() takes an object with write(batch), or a function of (records, delivery_id); got "
        f"{shown(given)}.\nFix: sdf.sink(ListSink()), or def save(records, delivery_id): ..."
    )
    raise ConfigError(msg)


def sink_name(given: Any, name: str | None, taken: Collection[str]) -> str:
    """Return the name of a sink, which is part of the ids of its deliveries.

    It must survive a change of the program, so it is never a position among the sinks. A `ListSink`
    is the exception: it lives as long as the program.
    """
    if name is None:
        inner = given.func if isinstance(given, partial) else given
        name = str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")
        if isinstance(given, ListSink) and name in taken:
            name = next(n for i in count(2) if (n := f"{name}-{i}") not in taken)
    try:
        check_name(name, "sink")
    except ConfigError as error:
        msg = f'{error} Name it at the call: sdf.sink(..., name="results").'
        raise ConfigError(msg) from None
    if name in taken:
        msg = (
            f"there is a sink {name!r} already, and two sinks of one name cannot be distinguished "
            "when a batch is replayed.\n"
            f'Fix: give this one a name of its own: sdf.sink(..., name="{name}-2").'
        )
        raise ConfigError(msg)
    return name


def collected(record: Any, metadata: bool) -> Any:
    """Return a record's value, with its metadata in the same dict where asked for."""
    if not metadata:
        return record.value
    value = record.value if isinstance(record.value, dict) else {"_value": record.value}
    return {
        "_key": record.key,
        "_timestamp": record.timestamp,
        "_headers": record.headers,
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
        **value,
    }
