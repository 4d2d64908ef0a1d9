"""A source that cannot be read again: what it gives is spooled before a batch uses it.

Takes an object that implements `PollSource`; keeps its records in the state directory, each piece
together with the position after it, so that reading goes on exactly there.
"""

from __future__ import annotations

import json
import time
from typing import Any, ClassVar

import pyarrow as pa

from millpond.arguments.callsite import CallSite
from millpond.arguments.windows import LIVE, Clocking
from millpond.connectors.custom_source import Calls, Row, as_row, checked_records
from millpond.connectors.log import Log
from millpond.connectors.protocols import PollSource, SourceKind
from millpond.connectors.serde import Deserializer
from millpond.connectors.sources import ListSource, LogReader
from millpond.errors import ConfigError, SerializationError, SourceError, ValueTypeError, shown
from millpond.state.codec import Codec

__all__ = ["PollSpool", "PolledSource"]

# Under which name the spool notes the position after each piece.
_WRITER = "position"


def spool_of(path: str) -> str:
    """Return where the records of polled sources are, below the spool of lists.

    Apart from it: a spool of a list that is damaged is made again from the list, and this cannot.
    """
    return f"{path}/.polled"


class PolledSource:
    """A user's `PollSource`, and where it was given to the application."""

    kind: ClassVar[SourceKind] = "polled"
    clocking: ClassVar[Clocking] = LIVE

    def __init__(self, source: PollSource, call_site: CallSite, codec: Codec) -> None:
        self.name = source.name
        self.interval = source.interval
        self._source = source
        self._calls = Calls(source.name, type(source).__name__, call_site)
        self._items = ListSource([], source.name, codec)

    @property
    def value_deserializer(self) -> Deserializer:
        return self._items.value_deserializer

    @property
    def key_deserializer(self) -> Deserializer:
        return self._items.key_deserializer

    def reader(self, spool: str) -> LogReader:
        return self._items.reader(spool_of(spool))

    def poll(self, position: Any) -> tuple[list[Row], Any]:
        """Return the records after a position, and the position after them."""
        call = f"poll({shown(position)})"
        with self._calls.calling(call):
            given = self._source.poll(position)
        if not isinstance(given, tuple) or len(given) != 2:
            what = f"{call} must return (records, position), it returned {shown(given)}"
            raise self._calls.error(what, "return the records, and the position after them")
        with self._calls.calling(call):
            records = list(checked_records(self._calls, call, given[0]))
        self._check_position(call, given[1])
        return [as_row(self._calls, call, record) for record in records], given[1]

    def _check_position(self, call: str, position: Any) -> None:
        try:
            again = json.loads(json.dumps(position, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            what = f"{call} gave the position {shown(position)}, which JSON cannot hold"
            raise self._unkept(what) from None
        if again != position:
            what = f"{call} gave the position {shown(position)}, which JSON reads as {shown(again)}"
            raise self._unkept(what)

    def _unkept(self, what: str) -> SourceError:
        return self._calls.error(what, "give text, numbers, lists, or a dict with text as keys")

    def rows(self, rows: list[Row], now_ms: int) -> pa.Table:
        """Return records as the rows of a segment; one without a time has that of the poll."""
        return self.table([tuple(row[:4]) for row in rows], now_ms)

    def table(self, items: list[Any], now_ms: int) -> pa.Table:
        """Return items as the rows of a segment."""
        try:
            return self._items.table(items, now_ms)
        except (ValueTypeError, SerializationError, ConfigError) as error:
            what, _, fix = str(error).partition("\nFix: ")
            what = f"poll() gave a record that cannot be kept: {what.rstrip('.')}"
            fix = fix.partition("; or ListSource")[0].rstrip(".")
            raise self._calls.error(what, fix) from error


class PollSpool:
    """Moves what a `PollSource` gives into its spool, a topic of an embedded log."""

    def __init__(self, source: PolledSource, path: str, *, drains: bool) -> None:
        self._source = source
        self._drains = drains
        self.path = spool_of(path)
        self._log = Log(self.path)
        self._log.create(source.name, 1)
        self.taken = self._log.end(source.name, 0)
        self.is_done = False
        self.crash_at: int | None = None
        self._number, noted = self._log.last_batch(source.name, 0, _WRITER)
        self.position = json.loads(noted) if noted else None
        self._next = 0.0
        """When to ask again, by the monotonic clock."""

    def advance(self, limit: int, now_ms: int, seconds: float = 0.2) -> int:
        """Poll once, unless that was done just now in vain; return how many records came."""
        if time.monotonic() < self._next:
            return 0
        rows, position = self._source.poll(self.position)
        if rows:
            # In one file, so a process that dies has both, or neither.
            table, noted = self._source.rows(rows, now_ms), json.dumps(position)
            self._log.append(self._source.name, 0, table, _WRITER, self._number + 1, noted)
            self._number += 1
            self.taken += len(rows)
        else:
            self._next = time.monotonic() + self._source.interval
            self.is_done = self._drains
        self.position = position
        return len(rows)
