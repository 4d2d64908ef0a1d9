"""Sources: topics of the embedded log, Python iterables, folders of files; `rate` has one more.

Each settings object (`ListSource`, `RateSource`, `FileSource`) builds the `SourceReader` that
runs. `SparkSource` carries any streaming DataFrame of Spark's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from millpond.arguments.windows import HISTORY, LIVE, Clocking
from millpond.connectors.file_list import LIST, FileList, kind_of, open_regular
from millpond.connectors.file_rows import (
    Columns,
    RowDeserializer,
    name_row,
    read_segments,
    unreadable,
)
from millpond.connectors.items import as_record
from millpond.connectors.log import Log
from millpond.connectors.protocols import Located, Offsets, SourceKind, SourceReader
from millpond.connectors.rate import RateReader, RateSource
from millpond.connectors.registry import shorter
from millpond.connectors.segments import SEGMENT
from millpond.connectors.serde import Deserializer
from millpond.connectors.topic import check_name, no_offsets
from millpond.errors import ConfigError, SerializationError, TopicError, ValueTypeError, shown
from millpond.state.codec import Codec
from millpond.wire import any_value

__all__ = ["CRASH", "END", "FileSource", "ListSource", "RateReader", "RateSource", "SparkSource"]


class Mark:
    """A mark in the input of a test: not a record, an event."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


CRASH = Mark("CRASH")
"""The batch that reaches this mark is thrown away, as if the process had died."""

END = Mark("END")
"""The run ends here; the next run goes on after it."""


# --- topics of the embedded log -------------------------------------------------------------


@dataclass
class LogReader(SourceReader):
    """Reads a topic of the embedded log."""

    path: str
    topic: str
    skips_lost: bool = False

    def __post_init__(self) -> None:
        self._log = Log(self.path)

    def initial(self, reset: str) -> Offsets:
        if reset == "error":
            raise no_offsets(self.topic)
        place = self._log.start if reset == "earliest" else self._log.end
        return {str(p): place(self.topic, p) for p in range(self._log.partitions(self.topic))}

    def ends(self, begin: Offsets) -> Offsets:
        count = self._log.partitions(self.topic)
        return {str(p): self._log.end(self.topic, p) for p in range(count)}

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return self._log.read(self.topic, int(partition), start, end, skips_lost=self.skips_lost)

    def record_bytes(self, partition: str, offset: int) -> int:
        """Return about how many bytes a record takes from an offset on."""
        return self._log.record_bytes(self.topic, int(partition), offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return LogReader, (self.path, self.topic, self.skips_lost)


# --- Python iterables -----------------------------------------------------------------------


class TypedDeserializer:
    """Reads what `ListSource` wrote: a value of the codec; a pickle only where that was asked for.

    The spool lies in the state directory. A pickle that somebody else left there, or that came with
    a backup, would run code.
    """

    def __init__(self, codec: Codec, source: str, pickles: bool) -> None:
        self._codec = codec
        self._source = source
        self._pickles = pickles

    def __call__(self, data: bytes) -> Any:
        if data[:1] != _PICKLE:
            return self._codec.decode(data[1:])
        if self._pickles:
            return any_value.decode(data[1:])
        msg = (
            f"source {self._source!r}: the state directory holds a pickle among the records, and "
            "reading one may run any code.\nFix: ListSource(..., pickles=True), if nobody else can "
            "have written it; or start over with app.clear_state(reset_offsets=True)."
        )
        raise SerializationError(msg)


# What the bytes of a value begin with.
_TYPED, _PICKLE = b"M", b"P"


class ListSource:
    """A list, or any other iterable, of values or of `(key, value[, timestamp[, headers]])`.

    The run ends when the iterable ends. Records are spooled to the state directory as they are
    taken, so a restart with the same iterable continues where it was. Timestamps are
    milliseconds; a record without one gets the time at which it was taken. Headers are a dict or
    (name, bytes) pairs. Values are of types that state can keep.

    >>> from millpond import Application
    >>> app = Application(consumer_group="shop")
    >>> visits = app.dataframe(source=ListSource([("ann", {"page": "/"})], name="visits"))

    Args:
        items: The records.
        name: Name of the source; state and offsets belong to it.
        codec: What encodes keys and values; in an application, that of the application.
        pickles: Whether values of other types are written as pickles. Then whoever can write to
            the state directory can run code in this program.
    """

    kind: ClassVar[SourceKind] = "list"
    # What is read from a list or from files is history: nothing of it can be ahead of its time.
    clocking: ClassVar[Clocking] = HISTORY

    def __init__(
        self,
        items: Iterable[Any],
        name: str = "list",
        codec: Codec | None = None,
        *,
        pickles: bool = False,
    ) -> None:
        check_name(name, "source")
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | dict):
            msg = (
                f"ListSource takes a list or another iterable of records, got {shown(items)}.\n"
                "Fix: put the records in a list."
            )
            raise ConfigError(msg)
        self.items = items
        self.name = name
        self.codec = codec or Codec()
        self.pickles = pickles
        self._drawn = 0

    def draw(self) -> Iterator[tuple[int, Any]]:
        """Yield (number, item); an iterator that was drawn from before goes on with its numbers."""
        if iter(self.items) is not self.items:
            self._drawn = 0
        for item in self.items:
            self._drawn += not isinstance(item, Mark)
            yield self._drawn, item

    @property
    def value_deserializer(self) -> Deserializer:
        return TypedDeserializer(self.codec, self.name, self.pickles)

    @property
    def key_deserializer(self) -> Deserializer:
        return self.codec.decode

    def reader(self, spool: str) -> LogReader:
        return LogReader(spool, self.name)

    def table(self, items: list[Any], now_ms: int) -> pa.Table:
        """Return items as the rows of a segment."""
        rows = [
            (
                None if key is None else self.codec.encode(key),
                None if value is None else self._encode(value),
                timestamp,
                headers,
            )
            for key, value, timestamp, headers in (as_record(item, now_ms) for item in items)
        ]
        columns = [
            pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SEGMENT)
        ]
        return pa.Table.from_arrays(columns, schema=SEGMENT)

    def _encode(self, value: Any) -> bytes:
        try:
            return _TYPED + self.codec.encode(value)
        except ValueTypeError as error:
            if self.pickles:
                return _PICKLE + any_value.encode(value)
            fix = f"{str(error).rstrip('.')}; or ListSource(..., pickles=True)."
            raise ValueTypeError(f"source {self.name!r}: {fix}") from None


class Spool:
    """Moves the items of a `ListSource` into its spool, a topic of an embedded log."""

    def __init__(self, source: ListSource, path: str) -> None:
        self._source = source
        self._log = Log(path)
        self._log.create(source.name, 1)
        self.taken = self._log.end(source.name, 0)
        self.is_done = False
        self.crash_at: int | None = None
        self._items = self._after_taken()

    def _after_taken(self) -> Iterator[Any]:
        taken = self.taken  # as it was at the start: it grows while items are taken
        is_at_border = taken > 0
        for number, item in self._source.draw():
            if number < taken or (number == taken and not isinstance(item, Mark)):
                continue
            if is_at_border and isinstance(item, Mark):
                continue  # it had its effect in the run that ended here
            is_at_border = False
            yield item

    def advance(self, limit: int, now_ms: int, seconds: float = 0.2) -> int:
        """Take up to `limit` items, or what comes within a while; return how many were taken."""
        items: list[Any] = []
        mark: Mark | None = None
        until = time.monotonic() + seconds
        while len(items) < limit and not self.is_done and time.monotonic() < until:
            item = next(self._items, END)
            if isinstance(item, Mark):
                mark = item
                break
            items.append(item)
        if items:
            self._log.append(self._source.name, 0, self._source.table(items, now_ms))
            self.taken += len(items)
        if mark is not None:
            self.crash_at = self.taken if mark is CRASH else None
            self.is_done = True
        return len(items)


# --- folders of files -----------------------------------------------------------------------

_FORMATS = {"json": ("*.json", "*.jsonl"), "csv": ("*.csv",), "parquet": ("*.parquet",)}

# About how many bytes a byte of a file becomes as records: JSON stays as it is, rows of CSV get the
# names of their columns, Parquet is compressed.
_SWELLING = {"json": 1, "csv": 4, "parquet": 10}


@dataclass(frozen=True)
class FileSource:
    """A folder of JSON lines, CSV or Parquet files; new files are picked up as they appear.

    A file must appear whole (write it aside and rename it) and not change afterwards. Files are
    read in the order in which they were first seen, by name where several appear at once. Folders,
    pipes and devices with the name of a file are refused, and links that leave the folder.

    >>> from millpond import Application
    >>> app = Application(consumer_group="shop")
    >>> orders = app.dataframe(source=FileSource("orders", format="csv", key="user"))

    Args:
        path: The folder, or one file.
        format: "json" (one document a line), "csv" (with a header line) or "parquet".
        key: Name of the column that is the record's key; None: no key.
        timestamp: Name of the column that is the record's time: milliseconds, or a date and time,
            which is UTC where it has no zone. None: the file's time.
        name: Name of the source; state and offsets belong to it. Default: the folder's name.
        on_missing: What happens where a file was seen and is gone before it was read: "stop", or
            "skip" to go on without it.
    """

    kind: ClassVar[SourceKind] = "files"
    clocking: ClassVar[Clocking] = HISTORY

    path: str | Path
    format: str = "json"
    key: str | None = None
    timestamp: str | None = None
    name: str = field(default="")
    on_missing: str = "stop"

    def __post_init__(self) -> None:
        if self.on_missing not in ("stop", "skip"):
            msg = f"on_missing must be 'stop' or 'skip', got {shown(self.on_missing)}."
            raise ConfigError(msg + "\nFix: on_missing='stop'.")
        if self.format not in _FORMATS:
            msg = f"FileSource reads {', '.join(_FORMATS)}, not {shown(self.format)}."
            raise ConfigError(msg + '\nFix: format="json".')
        if not self.name:
            object.__setattr__(self, "name", Path(self.path).stem)
        check_name(self.name, "source")

    @property
    def value_deserializer(self) -> Deserializer:
        return RowDeserializer(is_json=self.format == "json")

    @property
    def key_deserializer(self) -> Deserializer:
        return Codec().decode

    @property
    def is_raw(self) -> bool:
        """Whether lines are not looked at where they are read, because no column is wanted."""
        return self.columns.is_raw

    @property
    def columns(self) -> Columns:
        return Columns(self.format, self.key, self.timestamp)

    def reader(self, spool: str) -> FileReader:
        path = Path(self.path).absolute()
        if not path.exists():
            msg = f"there is no file or folder {str(self.path)!r}."
            raise ConfigError(msg + "\nFix: create it, or correct path=.")
        if not path.is_dir() and not path.is_file():
            msg = f"{str(self.path)!r} is {kind_of(path)}, not a file or a folder."
            raise ConfigError(msg + "\nFix: give a folder with files, or a file.")
        return FileReader(self, str(path), str(Path(spool) / (self.name + LIST)))


@dataclass
class FileReader(SourceReader):
    """Reads a folder: a partition is a file, in the order of the file list kept in the spool.

    Offsets count files ("files") so that they stay small; a file is read whole in one batch.
    """

    counts_files = True

    source: FileSource
    path: str
    listing: str
    gives_failures: bool = False
    """Whether a file that cannot be read is a record that fails, and not an error."""
    _has_looked: bool = False

    def initial(self, reset: str) -> Offsets:
        return {"files": 0}

    def ends(self, begin: Offsets) -> Offsets:
        files = self._list().refresh(checks_copy=not self._has_looked)
        self._has_looked = True
        return {"files": len(files)}

    def known(self, begin: Offsets) -> Offsets:
        """Return the end as it was last seen: looking for files writes the list."""
        return {"files": len(self._files())}

    def fitting(self, start: int, end: int, most_bytes: int) -> int:
        """Return the end of the files from `start` on that make so many bytes; at least one."""
        room = most_bytes // _SWELLING[self.source.format]
        for number, file in enumerate(self._files()[start:end], start):
            with suppress(FileNotFoundError):  # it fails where it is read, with its name
                room -= Path(file).stat().st_size
            if room < 0 and number > start:
                return number
        return end

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for number in range(start, end):
            yield from self.read_file(number)

    def located(self, partition: str, start: int, end: int) -> Iterator[Located]:
        for number in range(start, end):
            yield from located(number, self.read_file(number))

    def read_file(self, number: int) -> Iterator[pa.RecordBatch]:
        file = Path(self._files()[number])
        try:
            opened = open_regular(file)
        except FileNotFoundError:
            if self.source.on_missing == "skip":
                return
            msg = (
                f"file {file} was seen and is gone; it has not been read, or a batch with it is "
                'replayed.\nFix: put it back, or go on without it: FileSource(on_missing="skip").'
            )
            raise TopicError(msg) from None
        with opened:
            self._list().check(file)
            modified = int(os.fstat(opened.fileno()).st_mtime * 1000)
            try:
                segments = read_segments(opened, str(file), self.source.columns, modified)
            except Exception as error:
                if self.gives_failures and not _is_of_system(error):
                    yield from unreadable(opened, str(file), self.source.format, error, modified)
                    return
                msg = (
                    f"file {file} cannot be read as {self.source.format}: {shorter(error)}.\n"
                    "Fix: correct the file, or format=; or remove it and go on without it: "
                    'FileSource(on_missing="skip").'
                )
                raise TopicError(msg) from error
        yield from segments

    def place_of(self, partition: int, offset: int) -> str:
        """Return which row of which file a record was."""
        file = Path(self._files()[partition])
        with open_regular(file) as opened:
            return f"{name_row(opened, self.source.format, offset)} of {file}"

    def _list(self) -> FileList:
        return FileList(Path(self.path), _FORMATS[self.source.format], Path(self.listing))

    def _files(self) -> list[str]:
        return self._list().known()


def located(number: int, rows: Iterable[pa.RecordBatch]) -> Iterator[Located]:
    """Yield the rows of a file, each part with its place in the file."""
    position = 0
    for part in rows:
        yield number, position, part
        position += part.num_rows


def _is_of_system(error: Exception) -> bool:
    """Tell whether another try may read the file. Arrow has OSError for damaged Parquet, too."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and bool(error.errno))


# --- Spark's own ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SparkSource:
    """Any streaming DataFrame of Spark: each row becomes a dict.

        rows = spark.readStream.format("rate").load()
        sdf = app.dataframe(source=SparkSource(rows, key="value", timestamp="timestamp"))

    Args:
        frame: The streaming DataFrame, made with the session given to `Application(spark=...)`.
        key: Name of the column that is the record's key; None: no key.
        timestamp: Name of a timestamp column, or of a column of milliseconds.
        name: Name of the source; state belongs to it.
    """

    kind: ClassVar[SourceKind] = "spark"
    clocking: ClassVar[Clocking] = LIVE

    frame: Any
    key: str | None = None
    timestamp: str | None = None
    name: str = "spark"

    def __post_init__(self) -> None:
        check_name(self.name, "source")
        if not getattr(self.frame, "isStreaming", False):
            msg = (
                f"SparkSource takes a streaming DataFrame, got {type(self.frame).__name__}.\n"
                "Fix: make it with spark.readStream; for a batch frame use ListSource."
            )
            raise ConfigError(msg)
        for column in filter(None, (self.key, self.timestamp)):
            if column not in self.frame.columns:
                msg = (
                    f"the DataFrame has no column {column!r}, it has {self.frame.columns}.\n"
                    "Fix: name one of these in key= and timestamp=."
                )
                raise ConfigError(msg)

    @property
    def value_deserializer(self) -> Deserializer:
        return any_value.decode

    @property
    def key_deserializer(self) -> Deserializer:
        return Codec().decode
