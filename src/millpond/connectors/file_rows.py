"""What a file of a `FileSource` holds: its rows as records, each with its key and its time.

Takes an open file of JSON lines, CSV or Parquet; gives segments. A row that cannot be a record, or
that has no key or time where one is wanted, becomes a record as well: one that cannot be read. So
`on_error` decides about it where it enters the program, and the rows around it are not affected.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from millpond.connectors.json_serde import JSONDeserializer
from millpond.connectors.registry import shorter
from millpond.connectors.segments import SEGMENT
from millpond.errors import SerializationError, shown
from millpond.state.codec import Codec
from millpond.wire import any_value

__all__ = ["Columns", "RowDeserializer", "RowError", "name_row", "read_segments", "unreadable"]

# What begins a record that cannot be read: neither JSON nor a pickle does.
_BAD = b"\x00"

# Bytes of records in one segment, about: a column of Arrow holds less than 2 GiB.
_SEGMENT_BYTES = 256 * 1024 * 1024

# How files begin that are not what their names say.
_OTHERS = (
    (b"\x1f\x8b", "it is compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd"),
    (b"\xff\xfe", "it is text in UTF-16, not in UTF-8"),
    (b"\xfe\xff", "it is text in UTF-16, not in UTF-8"),
)

# What a dead letter has of a file that cannot be read (bytes).
_BEGIN = 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# A block of CSV at most, in bytes; Arrow counts them in 32 bits.
_LARGEST_BLOCK = 2**31 - 1

_encode_bad = msgspec.msgpack.encode
_decode_bad = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


class RowError(SerializationError):
    """A row of a file that cannot be a record; has the row as it can be shown."""

    def __init__(self, text: str, row: bytes = b"") -> None:
        super().__init__(text)
        self.row = row


class RowDeserializer:
    """Reads what `read_segments` gives: a line of JSON as it is in the file, or a row in flight."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    @property
    def fast(self) -> Callable[[bytes], Any] | None:
        return JSONDeserializer().fast if self._is_json else pickle.loads

    def __call__(self, data: bytes) -> Any:
        if data[:1] == _BAD:
            with suppress(msgspec.MsgspecError):  # a line may begin like this, too
                raise RowError(*_decode_bad(data[1:]))
        return JSONDeserializer()(data) if self._is_json else any_value.decode(data)


@dataclass(frozen=True)
class Columns:
    """Where rows have their key and their time."""

    format: str
    key: str | None
    timestamp: str | None

    @property
    def is_raw(self) -> bool:
        """Lines of JSON are not looked at here, unless a column is wanted."""
        return self.format == "json" and self.key is None and self.timestamp is None


def name_row(file: BinaryIO, format: str, number: int) -> str:
    """Return what people call the row that is the n-th record of a file, from 0 on."""
    if format != "json":
        return _row_name(format, number)
    filled = (line for line, text in enumerate(_lines(file), 1) if text.strip())
    return f"line {next(islice(filled, number, None), number + 1)}"


def _row_name(format: str, number: int) -> str:
    return f"row {number + (2 if format == 'csv' else 1)}"  # the header is the first row of CSV


def read_segments(
    file: BinaryIO, name: str, columns: Columns, modified: int
) -> list[pa.RecordBatch]:
    """Return the records of a file.

    Args:
        file: The file, open at its beginning.
        name: Its name, for what is wrong with its rows.
        columns: Its format, and where key and time are.
        modified: The time of records that have none of their own.

    Raises:
        Exception: nothing of the file can be read; what it is depends on the format.
    """
    begin = os.pread(file.fileno(), 4, 0)  # what is buffered would be copied by a `read` of all
    for mark, what in _OTHERS:
        if begin.startswith(mark):
            raise ValueError(what)
    if columns.is_raw:
        lines = [line for line in _lines(file) if line.strip()]
        found: Found = [None] * len(lines), lines, [modified] * len(lines)
    elif columns.format == "json":
        found = _of_lines(_lines(file), name, columns, modified)
    else:
        found = _of_rows(_rows(file, columns.format), name, columns, modified)
    return _segments(*found)


Found = tuple[list[bytes | None], list[bytes], list[int]]
"""Keys, values and times of records."""


def _segments(
    keys: list[bytes | None], values: list[bytes], times: list[int]
) -> list[pa.RecordBatch]:
    """Return records as Arrow columns, in parts of a bounded size."""
    rows = len(values)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, pa.int64()),
        pa.nulls(rows, pa.binary()),
    ]
    whole = pa.Table.from_arrays(columns, schema=SEGMENT)
    parts = -(-whole.nbytes // _SEGMENT_BYTES)
    return whole.to_batches(max_chunksize=max(1, rows // max(1, parts)))  # type: ignore[no-any-return]


# --- records --------------------------------------------------------------------------------


def _lines(file: BinaryIO) -> list[bytes]:
    return file.read().removeprefix(_BYTE_ORDER_MARK).splitlines()


def _of_lines(lines: list[bytes], name: str, columns: Columns, modified: int) -> Found:
    """Return the records of lines of JSON; their values are the lines."""
    reader = JSONDeserializer()
    decode, pick = reader.fast or reader, _picker(columns, modified)
    keys, values, times = [], [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            key, moment = pick(decode(line))
            value = line
        except Exception as error:
            place = f"{name}, line {number}"
            key, moment, value = None, modified, _bad(place, error, line)
        keys.append(key)
        values.append(value)
        times.append(moment)
    return keys, values, times


def _of_rows(rows: list[Any], name: str, columns: Columns, modified: int) -> Found:
    """Return the records of rows; a row that could not be read has its error in its place."""
    encode, pick = any_value.pickled, _picker(columns, modified)
    if columns.key is None and columns.timestamp is None and RowError not in set(map(type, rows)):
        return [None] * len(rows), list(map(encode, rows)), [modified] * len(rows)
    keys, values, times = [], [], []
    for number, row in enumerate(rows):
        try:
            key, moment = pick(row)
            value = encode(row)
        except Exception as error:
            wrong, shape = (row, row.row) if type(row) is RowError else (error, _as_text(row))
            place = f"{name}, {_row_name(columns.format, number)}"
            key, moment, value = None, modified, _bad(place, wrong, shape)
        keys.append(key)
        values.append(value)
        times.append(moment)
    return keys, values, times


def unreadable(
    file: BinaryIO, name: str, format: str, error: Exception, modified: int
) -> list[pa.RecordBatch]:
    """Return one record in the place of a file of which nothing can be read: it fails."""
    fix = "correct the file, or format= of the source"
    begin = os.pread(file.fileno(), _BEGIN, 0)
    value = _bad(f"file {name} cannot be read as {format}", error, begin, fix)
    return _segments([None], [value], [modified])


def _bad(
    place: str,
    error: Exception,
    row: bytes,
    fix: str = "correct the row in the file, or key= and timestamp= of the source",
) -> bytes:
    """Return a record that says what is wrong with its row when it is read."""
    return _BAD + _encode_bad((f"{place}: {shorter(error)}.\nFix: {fix}.", row))


def _as_text(row: Any) -> bytes:
    """Return a row as JSON for people."""
    return msgspec.json.encode(row, enc_hook=repr)


def _picker(columns: Columns, modified: int) -> Callable[[Any], tuple[bytes | None, int]]:
    """Return the function that finds the key of a row, and its time."""
    encode, key, timestamp = Codec().encode, columns.key, columns.timestamp

    def pick(row: Any) -> tuple[bytes | None, int]:
        if type(row) is not dict:
            if isinstance(row, Exception):
                raise row
            msg = f"it has no columns: {shown(row)}"
            raise ValueError(msg)
        found, moment = None, modified
        try:
            if key is not None and (named := row[key]) is not None:
                found = encode(named)
            if timestamp is not None:
                moment = row[timestamp]
        except KeyError as error:
            option = "key" if error.args[0] == key else "timestamp"
            msg = f"{option}={error.args[0]!r}, but it has only {', '.join(row) or 'nothing'}"
            raise ValueError(msg) from None
        if type(moment) is not int or not _EARLIEST <= moment <= _LATEST:
            moment = _milliseconds(moment, timestamp)
        return found, moment

    return pick


# The milliseconds that Arrow has room for.
_EARLIEST, _LATEST = -(2**63), 2**63 - 1


def _milliseconds(given: Any, column: str | None) -> int:
    try:
        moment = _to_ms(given)
    except (ValueError, TypeError, OverflowError):
        moment = _LATEST + 1
    if not _EARLIEST <= moment <= _LATEST:
        msg = f"timestamp={column!r} is {shown(given)}, no milliseconds and no date and time"
        raise ValueError(msg)
    return moment


def _to_ms(moment: Any) -> int:
    """Return milliseconds; a time without a zone is UTC, as a date is, on every machine."""
    if isinstance(moment, str) and not moment.strip("-").isdecimal():
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since: timedelta = moment - _EPOCH
        return since // timedelta(milliseconds=1)
    if isinstance(moment, date):
        return _to_ms(datetime(moment.year, moment.month, moment.day, tzinfo=UTC))
    if isinstance(moment, bool):
        raise TypeError
    return int(moment)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- rows of tables -------------------------------------------------------------------------


def _rows(file: BinaryIO, format: str) -> list[Any]:
    """Return the rows of a table as dicts; a row that cannot be one has its error in its place."""
    refused: dict[int, RowError] = {}
    if format == "parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(file)
    else:
        table, refused = _csv(file.read())
    names = table.column_names
    if len(set(names)) < len(names):
        msg = f"it has several columns {next(n for n in names if names.count(n) > 1)!r}"
        raise ValueError(msg)
    rows = _dicts(table)
    for number, error in sorted(refused.items()):
        rows.insert(number, error)
    return rows


def _dicts(table: pa.Table) -> list[Any]:
    try:
        return table.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError, TypeError):  # of a value, which it does not name
        return [_dict(table.slice(number, 1)) for number in range(table.num_rows)]


def _dict(row: pa.Table) -> Any:
    try:
        return row.to_pylist()[0]
    except (ValueError, OverflowError, TypeError) as error:
        return RowError(f"it has a value that Python has none for: {error}")


# --- CSV ------------------------------------------------------------------------------------


def _csv(data: bytes) -> tuple[pa.Table, dict[int, RowError]]:
    """Return a table of CSV, and by their number the rows that cannot be rows of it."""
    import pyarrow.csv as csv

    try:
        table = csv.read_csv(pa.BufferReader(data))
    except pa.ArrowInvalid:
        return _csv_by_row(data)
    is_text = not any(pa.types.is_binary(kind) for kind in table.schema.types)
    return (table, {}) if is_text else _csv_by_row(data)


def _csv_by_row(data: bytes) -> tuple[pa.Table, dict[int, RowError]]:
    """Do the same where something is wrong with a row, or with all of them.

    The rows that are whole are written and read again: the types of columns are found from all
    values of the file, so they would depend on the rows that are left out.
    """
    import pyarrow.csv as csv

    text = data.decode("utf-8", "surrogateescape")
    mark = next(c for c in map(chr, _NONCHARACTERS) if c not in text)
    marked = pa.py_buffer(_NOT_UTF8.sub(mark, text).encode())
    refused: dict[int, RowError] = {}

    def refuse(row: Any) -> str:
        what = f"it has {row.actual_columns} value(s) for {row.expected_columns} column(s)"
        refused[row.number - 2] = RowError(what, row.text.replace(mark, "\ufffd").encode())
        return "skip"

    # Numbers of rows are known to one thread only, and long rows need a large block.
    reading = csv.ReadOptions(use_threads=False, block_size=min(marked.size + 1, _LARGEST_BLOCK))
    parsing = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)

    def read(types: dict[str, pa.DataType] | None) -> pa.Table:
        converting = csv.ConvertOptions(column_types=types)
        return csv.read_csv(pa.BufferReader(marked), reading, parsing, converting)

    table = read(dict.fromkeys(read(None).column_names, pa.string()))
    if mark in "".join(table.column_names):
        msg = "its header is not UTF-8"
        raise ValueError(msg)
    kept = []
    numbers = (n for n in count() if n not in refused)
    for row, number in zip(range(table.num_rows), numbers, strict=False):
        values = [column[row].as_py() for column in table.columns]
        if mark in "".join(values):
            shown_row = ",".join(values).replace(mark, "\ufffd").encode()
            refused[number] = RowError("it is not UTF-8", shown_row)
        else:
            kept.append(row)
    whole = pa.BufferOutputStream()
    csv.write_csv(table.take(kept), whole)
    again = csv.ReadOptions(block_size=reading.block_size + len(data))
    return csv.read_csv(pa.BufferReader(whole.getvalue()), again, parsing), refused


# What a byte that is no UTF-8 is decoded to, and characters that no text has.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NONCHARACTERS = range(0xFDD0, 0xFDF0)
