"""A source that the user wrote, as one of the program's sources.

Takes an object that implements `Source`; gives records by offset. What the object does wrong is an
error that names the source, the call and the place in the user's file.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from millpond.arguments.callsite import PACKAGE, CallSite
from millpond.arguments.duration import EARLIEST_MS, LATEST_MS
from millpond.arguments.windows import LIVE, Clocking
from millpond.connectors.items import as_record
from millpond.connectors.protocols import Offsets, Source, SourceKind, SourceReader
from millpond.connectors.segments import SEGMENT
from millpond.connectors.serde import Deserializer
from millpond.errors import ConfigError, SerializationError, SourceError, ValueTypeError, shown
from millpond.record import Record
from millpond.state.codec import Codec
from millpond.wire import any_value
from millpond.wire.headers import encode_headers

__all__ = ["Calls", "CustomReader", "CustomSource", "Row", "as_row", "segment_of"]

_RECORDS = SEGMENT.append(pa.field("offset", pa.int64()))

# Records that are made a batch of Arrow at a time.
_AT_A_TIME = 10_000

_MOST = 2**62
"""The largest offset."""


class Row(NamedTuple):
    """A record as a source gave it, checked."""

    key: Any
    value: Any
    timestamp: int | None
    """None: the time of the batch."""
    headers: Any
    offset: int
    """-1: the one after the record before."""


@dataclass(frozen=True)
class Calls:
    """Calls the methods of a user's object, and says what goes wrong in them."""

    name: str
    """Of the source."""
    kind: str
    """The name of the user's class."""
    call_site: CallSite
    """Where it was given to the application."""

    def error(self, what: str, fix: str) -> SourceError:
        """Return an error of this source."""
        return SourceError(f"source {self.name!r} ({self.call_site}): {what}.\nFix: {fix}.")

    @contextmanager
    def calling(self, call: str) -> Iterator[None]:
        """Run user code; what it raises is an error that names the call."""
        try:
            yield
        except SourceError:
            raise
        except Exception as error:
            place = _users_place(error)
            what = f"{call} raised {type(error).__name__}: {str(error).rstrip('.')}{place}"
            method = call.partition("(")[0]
            fix = f"correct {self.kind}.{method}() and run again: nothing of the batch is committed"
            raise self.error(what, fix) from error


def _users_place(error: BaseException) -> str:
    """Return the innermost place in the user's files where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if not f.filename.startswith(PACKAGE)]
    return f" ({CallSite(users[-1].filename, users[-1].lineno or 0)})" if users else ""


class CustomSource:
    """A user's `Source`, and where it was given to the application."""

    kind: ClassVar[SourceKind] = "custom"
    clocking: ClassVar[Clocking] = LIVE

    def __init__(self, source: Source, call_site: CallSite, codec: Codec) -> None:
        self.name = source.name
        self._source = source
        self._calls = Calls(source.name, type(source).__name__, call_site)
        self._codec = codec

    @property
    def value_deserializer(self) -> Deserializer:
        return any_value.decode

    @property
    def key_deserializer(self) -> Deserializer:
        return self._codec.decode

    def reader(self, spool: str) -> CustomReader:
        return CustomReader(self._source, self._calls, self._codec)

    def unsendable(self, reason: BaseException) -> ConfigError:
        """Return what is raised where the user's object cannot be pickled."""
        calls = self._calls
        what = f"source {calls.name!r} ({calls.call_site}) cannot be sent to workers: {reason}"
        fix = "keep plain values in the object, and open connections in ends() and read()"
        return ConfigError(f"{what}.\nFix: {fix}.")

    def table(self, items: list[Any], now_ms: int) -> pa.Table:
        """Return items as a test gives them, as the rows of a segment."""
        records = [as_record(item, now_ms) for item in items]
        rows = [Row(key, value, moment, None, -1) for key, value, moment, _ in records]
        columns = segment_of(rows, self._codec, any_value.pickled)
        columns[3] = pa.array([headers for *_, headers in records], pa.binary())
        return pa.Table.from_arrays(columns, schema=SEGMENT)


@dataclass
class CustomReader(SourceReader):
    """Reads a user's source.

    The engine's name of a partition is its number and the user's name, as in "0 eu": so numbers are
    kept where offsets are, and a partition has the same number in every run.
    """

    fresh_for = 0.2

    source: Source
    calls: Calls
    codec: Codec

    def initial(self, reset: str) -> Offsets:
        with self.calls.calling("starts()"):
            found = self.source.starts()
        return self._numbered({}, self._offsets("starts()", found))

    def ends(self, begin: Offsets) -> Offsets:
        with self.calls.calling("ends()"):
            found = self.source.ends()
        ends = self._numbered(begin, self._offsets("ends()", found))
        for partition, end in ends.items():
            if end < begin.get(partition, 0):
                what = (
                    f"ends() says that partition {name_of(partition)!r} ends at {end}, but this "
                    f"group has read it up to {begin[partition]}"
                )
                fix = (
                    "an offset never goes back; if the records were deleted and written again, "
                    "start over with app.clear_state(reset_offsets=True)"
                )
                raise self.calls.error(what, fix)
        return ends

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        rows = self.rows(name_of(partition), start, end)
        call = f"read({name_of(partition)!r}, {start}, {end})"
        while some := list(islice(rows, _AT_A_TIME)):
            columns = segment_of(some, self.codec, any_value.pickled, partial(self._unfit, call))
            columns.append(pa.array([row.offset for row in some], pa.int64()))
            yield pa.RecordBatch.from_arrays(columns, schema=_RECORDS)

    def number_of(self, partition: str) -> int:
        return int(partition.partition(" ")[0])

    def rows(self, name: str, start: int, end: int) -> Iterator[Row]:
        """Yield the records of a range as the source gives them, each checked."""
        call = f"read({name!r}, {start}, {end})"
        with self.calls.calling(call):
            found = self.source.read(name, start, end)
        records = iter(checked_records(self.calls, call, found))
        last = start - 1
        while True:
            with self.calls.calling(f"{call}, after offset {last}," if last >= start else call):
                record = next(records, None)
            if record is None:
                return
            row = as_row(self.calls, call, record)
            offset = last + 1 if row.offset < 0 else row.offset
            if not last < offset < end:
                raise self._misplaced(call, offset, last, start, end)
            last = offset
            yield row._replace(offset=offset)

    def _misplaced(self, call: str, offset: int, last: int, start: int, end: int) -> SourceError:
        if start <= offset <= last:
            what = f"{call} gave offset {offset} after {last}"
            fix = "give the records in the order of their offsets, each once"
        elif offset == last + 1:
            what = f"{call} gave more than {end - start} record(s)"
            fix = f"give the records from offset {start} up to, not including, {end}"
        else:
            what = f"{call} gave a record with offset {offset}"
            fix = f"give the records from offset {start} up to, not including, {end}"
        return self.calls.error(what, fix)

    def _unfit(self, call: str, row: Row, error: Exception) -> SourceError:
        what, _, fix = str(error).partition("\nFix: ")
        return self.calls.error(
            f"{call} gave a record at offset {row.offset} that cannot be sent: {what.rstrip('.')}",
            fix.rstrip(".") or "give plain data: dict, list, numbers, text",
        )

    def _offsets(self, call: str, found: Any) -> dict[str, int]:
        is_offsets = isinstance(found, Mapping) and all(
            isinstance(name, str) and name and type(offset) is int and 0 <= offset <= _MOST
            for name, offset in found.items()
        )
        if not is_offsets:
            what = f"{call} must return a dict of offsets by partition, it returned {shown(found)}"
            raise self.calls.error(what, 'return {"0": 0}: names are text, offsets ints of 0 on')
        return dict(found)

    def _numbered(self, begin: Offsets, found: dict[str, int]) -> Offsets:
        """Return offsets by the engine's names of partitions; new ones get the next numbers."""
        known = {name_of(partition): partition for partition in begin}
        new = (name for name in found if name not in known)
        known.update({name: f"{n} {name}" for n, name in enumerate(new, len(begin))})
        return {known[name]: offset for name, offset in found.items()}


def name_of(partition: str) -> str:
    """Return the user's name of a partition."""
    return partition.partition(" ")[2]


def checked_records(calls: Calls, call: str, found: Any) -> Iterable[Any]:
    """Return what a source has given as records; refuse what is none."""
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping | Record):
        what = f"{call} must give records, one after the other, it returned {shown(found)}"
        raise calls.error(what, "return a list of records, or yield them")
    return found


def as_row(calls: Calls, call: str, given: Any) -> Row:
    """Return a record: a value, `(key, value[, timestamp[, headers]])` or a `Record`."""
    if isinstance(given, Record):
        row = Row(given.key, given.value, given.timestamp, given.headers, given.offset)
    elif type(given) is tuple and 2 <= len(given) <= 4:
        key, value, timestamp, headers = (*given, None, None)[:4]
        row = Row(key, value, timestamp, headers, -1)
    else:
        return Row(None, given, None, None, -1)
    moment = row.timestamp
    if moment is not None and not (type(moment) is int and EARLIEST_MS <= moment <= LATEST_MS):
        what = f"{call} gave a record whose timestamp is {shown(moment)}"
        raise calls.error(what, "give milliseconds: int(moment.timestamp() * 1000); or None")
    if type(row.offset) is not int:
        what = f"{call} gave a record whose offset is {shown(row.offset)}"
        raise calls.error(what, "give an int, or leave offset= out where there are no gaps")
    return row


def segment_of(
    rows: list[Row],
    codec: Codec,
    encode: Callable[[Any], bytes],
    unfit: Callable[[Row, Exception], Exception] = lambda row, error: error,
) -> list[pa.Array]:
    """Return the columns of records: key, value, time and headers."""
    keys, values, headers = [], [], []
    for row in rows:
        try:
            keys.append(None if row.key is None else codec.encode(row.key))
            values.append(None if row.value is None else encode(row.value))
            headers.append(encode_headers(row.headers))
        except (ValueTypeError, SerializationError) as error:
            raise unfit(row, error) from error
    return [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array([row.timestamp for row in rows], pa.int64()),
        pa.array(headers, pa.binary()),
    ]
