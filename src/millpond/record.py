"""The one shape that flows, and the place a record came from.

A record is (value, key, timestamp, headers); inside a stage these travel as four arguments,
not as an object. `Record` is what sinks, consumers and tests see.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from millpond.arguments.hints import missing
from millpond.errors import MillpondError

__all__ = ["Headers", "MessageContext", "Origin", "Record", "current_origin", "message_context"]

Headers = list[tuple[str, bytes]]

NOWHERE = -1
"""The partition of what is no record: a timer, or a window that closes."""


class Record(NamedTuple):
    """One record as sinks, consumers and tests see it.

    >>> Record("ann", {"page": "/"}, 5_000).value
    {'page': '/'}
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None = None
    topic: str = ""
    partition: int = 0
    offset: int = -1

    if not TYPE_CHECKING:  # type: ignore[misc]

        def __getattr__(self, name: str) -> Any:
            raise missing("a record", name, self._fields, _HINTS)


_HINTS = {
    "error": "poll() raises what goes wrong; a record is (key, value, timestamp, headers, ...), "
    "attributes and not methods: record.value.",
    "timestamp_ms": "record.timestamp.",
    "latency": "record.timestamp is when it was written.",
}


@dataclass(frozen=True, slots=True)
class MessageContext:
    """Where the record that is being processed came from. Returned by `message_context`.

    >>> MessageContext("clicks", partition=0, offset=12).offset
    12
    """

    topic: str
    partition: int
    offset: int
    size: int = 0
    """Bytes of the record's value: as it was read, or as it moved after `group_by`."""


class Origin:
    """Points at the record of the batch that is being processed.

    One object per stage; the loop only moves `index`, so the context costs nothing until somebody
    asks for it.
    """

    __slots__ = ("_columns", "_lists", "index", "path", "topics")

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        self.index = 0
        self.path: bytes | None = None
        self._columns: tuple[Any, ...] = ()
        self._lists: list[list[int]] = []

    def enter(self, *columns: Any) -> None:
        """Point into other records.

        Takes their sources, partitions, offsets and values as Arrow arrays; None: no values.
        """
        self._columns = columns
        self._lists = []

    def leave(self) -> None:
        """Point nowhere: what happens now is no record's doing."""
        self.enter()

    def context(self) -> MessageContext:
        if not self._columns:
            return MessageContext("", NOWHERE, -1)
        if not self._lists:
            *places, values = self._columns
            lists = [column.to_pylist() for column in places]
            is_known = values is not None
            sizes = pc.fill_null(pc.binary_length(values), 0).to_pylist() if is_known else None
            self._lists = [*lists, sizes or [0] * len(lists[0])]
        source, partition, offset, size = (values[self.index] for values in self._lists)
        if not 0 <= source < len(self.topics):
            return MessageContext("", NOWHERE, -1)
        return MessageContext(self.topics[source], partition, offset, size)


current_origin: ContextVar[Origin | None] = ContextVar("millpond_origin", default=None)


def message_context() -> MessageContext:
    """Return topic, partition, offset and size of the record being processed.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().apply(lambda value: message_context().offset), ["a", "b"])
    [0, 1]

    Raises:
        MillpondError: outside of a function that Millpond calls for a record.
    """
    origin = current_origin.get()
    if origin is None:
        msg = (
            "message_context() was called where no record is being processed.\n"
            "Fix: call it inside a function given to apply, update, filter or the like."
        )
        raise MillpondError(msg)
    return origin.context()
