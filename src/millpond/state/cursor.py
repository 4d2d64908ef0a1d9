"""The record in hand: which one of the batch it is, its time, and where the state of its key lies.

One object per stage. The record loop moves it, steps that give several records or do something at
another time say so here, and everybody else only reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow.compute as pc

from millpond.record import NOWHERE, MessageContext
from millpond.state.layout import Entry, Page

__all__ = ["Cursor", "Place"]

T = TypeVar("T")


class Place:
    """Where the state of one key lies: its page, and its entry once it has one."""

    __slots__ = ("entry", "key", "page")

    def __init__(self, key: bytes | None, page: Page, entry: Entry | None) -> None:
        self.key = key
        self.page = page
        self.entry = entry


class Cursor:
    """Points at the record of the batch that is being processed. Only its methods move it.

    There are two exceptions, for speed: the record loop and `expand` write its fields in place.
    """

    __slots__ = ("_columns", "_lists", "index", "path", "place", "timestamp", "topics")

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        self.index = 0
        """Its number in the batch."""
        self.path: bytes | None = None
        """Which of several it is that one record gave; None: it entered the stage itself."""
        self.timestamp = 0
        """Its time, in milliseconds since 1970."""
        self.place: Place
        """The state of its key; only where the stage has state."""
        self._columns: tuple[Any, ...] = ()
        self._lists: list[list[int]] = []

    # --- moving -----------------------------------------------------------------------------

    def at(self, index: int, path: bytes | None = None) -> None:
        """Point at a record."""
        self.index = index
        self.path = path

    def at_key(self, place: Place) -> None:
        """Bring the state of a key into view."""
        self.place = place

    def at_time(self, timestamp: int) -> int:
        """Let it be another time; return what time it was."""
        before, self.timestamp = self.timestamp, timestamp
        return before

    def at_child(self, number: int) -> None:
        """Point at one of several records that the present one gives."""
        self.path = (self.path or b"") + number.to_bytes(5, "big")

    def children(self, items: Iterable[T]) -> Iterator[T]:
        """Yield what the present record gives; each is in hand while it is looked at."""
        before = self.path
        parent = before or b""
        for number, item in enumerate(items):
            self.path = parent + number.to_bytes(5, "big")
            yield item
        self.path = before

    # --- where records come from ------------------------------------------------------------

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
        """Return where the record came from; looked up only when somebody asks."""
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
