"""The one shape that flows, and the place a record came from.

A record is (value, key, timestamp, headers); inside a stage these travel as four arguments,
not as an object. `Record` is what sinks, consumers and tests see.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from millpond.errors import MillpondError

__all__ = ["Headers", "MessageContext", "Origin", "Record", "current_origin", "message_context"]

Headers = list[tuple[str, bytes]]

NOWHERE = -1
"""The partition of what is no record: a timer, or a window that closes."""


class Record(NamedTuple):
    """One record as sinks, consumers and tests see it."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None = None
    topic: str = ""
    partition: int = 0
    offset: int = -1


@dataclass(frozen=True, slots=True)
class MessageContext:
    """Where the record that is being processed came from."""

    topic: str
    partition: int
    offset: int
    size: int = 0


class Origin:
    """Points at the record of the batch that is being processed.

    One object per batch; the loop only moves `index`, so asking for the context costs nothing
    until somebody asks.
    """

    __slots__ = ("index", "offsets", "partitions", "path", "sources", "topics")

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        self.sources: list[int] = []
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self.index = 0
        self.path: bytes | None = None

    def context(self) -> MessageContext:
        i = self.index
        if not 0 <= self.sources[i] < len(self.topics):
            return MessageContext("", NOWHERE, -1)
        return MessageContext(self.topics[self.sources[i]], self.partitions[i], self.offsets[i])


current_origin: ContextVar[Origin | None] = ContextVar("millpond_origin", default=None)


def message_context() -> MessageContext:
    """Return topic, partition and offset of the record being processed.

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
