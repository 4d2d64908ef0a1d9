"""A segment of the embedded log: one Arrow file that never changes.

    <first offset>-<end offset>.arrow        <first offset>.arrow before format 2
    <end offset>.end                         an empty file: up to where there were records

Takes a table and writes it aside, syncs it and renames it, so a reader never sees half of one. Its
metadata has a checksum of the whole file and the last batch of every writer. What is read is
checked first: a process checks each file once, before it maps it into memory.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import pyarrow as pa

from millpond.errors import DamagedTopicError, TopicError

__all__ = [
    "SEGMENT",
    "Listing",
    "Segment",
    "check",
    "find_segments",
    "give_up",
    "listed",
    "locked",
    "move_mark",
    "opened",
    "segments_gone",
    "sync",
    "sync_above",
    "sync_folder",
    "writers_of",
    "write_segment",
    "writing",
]

SEGMENT = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.binary()),
    ]
)

# Version of the segment layout, in the metadata of each file. Files of version 1 have no checksum
# and no end in their name.
_FORMAT = b"2"

# Rows of one Arrow message in a segment: what a reader must hold to read any part of it.
_CHUNK_ROWS = 65_536

# What precedes the checksum in the metadata, and the digits that it is computed with. Arrow writes
# metadata twice, at the beginning and at the end; no JSON has the first character.
_MARK, _BLANK = b"\x01crc32:", b"00000000"

# An Arrow file begins with eight bytes and a message (a mark, its length, the schema), and ends
# with the schema again, its length and six bytes.
_HEAD, _TAIL = 16, 10

# Bytes read at a time to compute a checksum.
_BLOCK = 1 << 20

# Files that a process remembers to have checked.
_REMEMBERED = 10_000

_NAME = re.compile(r"(\d{20})(?:-(\d{20}))?\.arrow")
_MARK_NAME = re.compile(r"(\d{20})\.end")
_GIVEN_UP = re.compile(r"(\d{20})-(\d{20})\.given-up")

_checked: dict[str, tuple[int, int, int]] = {}

# Folders all of whose names are on the disk; with their inodes, and when they had last changed.
_synced: dict[str, tuple[int, int]] = {}

# Seconds after the last change of a folder from which on its time tells whether it changed again:
# file systems count in ticks of some milliseconds.
_TICK = 1.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a partition, and which offsets it has."""

    folder: Path
    name: str
    first: int
    end: int | None
    """None: a name of format 1 does not say it."""

    @property
    def path(self) -> Path:
        return self.folder / self.name


@dataclass(frozen=True, slots=True)
class Listing:
    """What the names in the folder of a partition say."""

    segments: list[Segment]
    """In the order of their offsets, each offset once."""
    covered: list[Segment]
    """Those whose records are in a merged segment as well."""
    mark: int
    """Up to where there were records at least, whatever became of their files."""
    given_up: tuple[tuple[int, int], ...] = ()
    """From where to where records were given up: nobody waits for them any more."""


def find_segments(folder: Path) -> list[Segment]:
    """Return the segments of a partition in the order of their offsets, each offset once."""
    return listed(folder).segments


def listed(folder: Path) -> Listing:
    """Return what a partition consists of."""
    names = os.listdir(folder)  # noqa: PTH208 - a path for each name takes ten times as long
    found = [segment for name in names if (segment := _named(folder, name))]
    found.sort(key=lambda s: (s.first, -(s.end or 0)))
    kept: list[Segment] = []
    covered: list[Segment] = []
    end = -1
    for segment in found:
        (kept if segment.first >= end else covered).append(segment)
        end = max(end, segment.end or -1)
    marks = [int(match[1]) for name in names if (match := _MARK_NAME.fullmatch(name))]
    given_up = [
        (int(match[1]), int(match[2])) for name in names if (match := _GIVEN_UP.fullmatch(name))
    ]
    return Listing(kept, covered, max(marks, default=0), tuple(sorted(given_up)))


def give_up(folder: Path, start: int, end: int, damaged: Segment | None) -> None:
    """Let readers and writers go on without some records.

    A damaged segment stays, under a name that nobody reads.
    """
    (folder / f"{start:020}-{end:020}.given-up").touch()
    if damaged is not None:
        damaged.path.rename(damaged.path.with_suffix(".damaged"))
    sync_folder(folder)


def move_mark(folder: Path, before: int, end: int) -> None:
    """Note up to where there are records, so that a last segment that is deleted is missed.

    One rename, after the segment is on the disk. It is not synced: after a power cut the mark may
    be that of the append before. Where it cannot be moved, the records are written all the same.
    """
    with suppress(OSError):
        mark = folder / f"{end:020}.end"
        try:
            (folder / f"{before:020}.end").rename(mark)
        except FileNotFoundError:
            mark.touch()


def _named(folder: Path, name: str) -> Segment | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Segment(folder, name, int(match[1]), int(match[2]) if match[2] else None)


def write_segment(
    folder: Path, first: int, table: pa.Table, writers: dict[str, Any], aside: str
) -> Segment:
    """Write records as a segment; `aside` ends the name of the file until it is whole."""
    end = first + table.num_rows
    target = folder / f"{first:020}-{end:020}.arrow"
    mark = {b"format": _FORMAT, b"crc32": _MARK + _BLANK}
    table = table.cast(SEGMENT).replace_schema_metadata(
        {**mark, b"writers": json.dumps(writers).encode()}
    )
    begun = target.with_suffix(aside)
    try:
        _write_aside(begun, table)
        begun.rename(target)
    except OSError:
        with suppress(OSError):  # where the disk is full, half a segment takes the room of others
            begun.unlink()
        raise
    sync_folder(folder)
    return Segment(folder, target.name, first, end)


def _write_aside(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_CHUNK_ROWS)
    with path.open("r+b") as file:
        places = _places(file)
        digits = b"%08x" % _sum(file, places)
        for place in places:
            file.seek(place)
            file.write(digits)
        sync(file)


# --- reading --------------------------------------------------------------------------------


@contextmanager
def opened(segment: Segment) -> Iterator[Iterator[pa.RecordBatch]]:
    """Open a segment; gives its parts, checked.

    Raises:
        DamagedTopicError: the file is damaged.
        FileNotFoundError: it was merged with others, or is gone.
    """
    with _damage(segment):
        if _is_checked(segment):
            source = pa.memory_map(str(segment.path))
        else:  # written before there were checksums: what is wrong in it shows as it is read
            source = pa.OSFile(str(segment.path))
        with source, pa.ipc.open_file(source) as reader:
            yield _parts(segment, reader, isinstance(source, pa.MemoryMappedFile))


def _parts(segment: Segment, reader: Any, is_checked: bool) -> Iterator[pa.RecordBatch]:
    if not reader.schema.equals(SEGMENT):
        raise pa.ArrowInvalid("it has other columns")
    rows = 0
    for i in range(reader.num_record_batches):
        with _damage(segment):
            part = reader.get_batch(i)
            if not is_checked:
                part.validate(full=True)
            rows += part.num_rows
        yield part
    if segment.end is not None and rows != segment.end - segment.first:
        raise pa.ArrowInvalid(f"it has {rows} records")


def writers_of(segment: Segment) -> dict[str, Any]:
    """Return the last batch of every writer, as of the end of a segment."""
    with _damage(segment):
        _is_checked(segment)
        with pa.OSFile(str(segment.path)) as source, pa.ipc.open_file(source) as reader:
            metadata = reader.schema.metadata or {}
        return dict(json.loads(metadata.get(b"writers", b"{}")))


def check(segment: Segment) -> bool:
    """Read all of a segment from the disk; return whether it has a checksum.

    Raises:
        DamagedTopicError: the file is damaged.
    """
    _checked.pop(str(segment.path), None)
    with opened(segment) as parts:
        for part in parts:
            part.validate(full=True)
    return str(segment.path) in _checked


@contextmanager
def _damage(segment: Segment) -> Iterator[None]:
    """Name the file in whatever its content brings about."""
    try:
        yield
    except TopicError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        # Arrow's own complaints have no number; others are of the system, such as too many files.
        if isinstance(error, OSError) and error.errno not in (None, errno.EIO):
            raise
        raise _damaged(segment, str(error)) from error


def _damaged(segment: Segment, why: str) -> DamagedTopicError:
    partition = segment.path.parent
    end = segment.end
    if end is None:
        firsts = [other.first for other in find_segments(partition)]
        end = next((first for first in firsts if first > segment.first), None)
    offsets = f"offsets {segment.first} " + ("and on" if end is None else f"to {end - 1}")
    return DamagedTopicError(
        f"segment {segment.path} is damaged: {why.rstrip('.')}. It has {offsets} of topic "
        f"{partition.parent.name!r}, partition {partition.name}.\n{_fix(partition, 'file')}"
    )


def segments_gone(partition: Path, start: int, end: int) -> DamagedTopicError:
    """Return the error of offsets that were written and are in no file."""
    return DamagedTopicError(
        f"segments of {partition} are gone: offsets {start} to {end - 1} of topic "
        f"{partition.parent.name!r}, partition {partition.name}.\n{_fix(partition, 'files')}"
    )


def _fix(partition: Path, what: str) -> str:
    topic, folder = partition.parent.name, partition.parent.parent
    words = shlex.join([topic, "--topics-dir", str(folder)])
    return (
        f"Fix: restore the {what} from a copy; "
        f"millpond topics verify {words} lists every "
        f"{'damaged file' if what == 'file' else 'range that is missing'}. Without a copy, "
        f"millpond topics repair {words} gives these records up, for all that read or write the "
        'topic; or Application(on_lost_records="skip") reads on without them; or '
        f"millpond topics delete {words}, write it again, and start its readers over with "
        "app.clear_state(reset_offsets=True)."
    )


# --- checksums ------------------------------------------------------------------------------


def _is_checked(segment: Segment) -> bool:
    """Compare a file with its checksum, once; return whether it has one."""
    path = segment.path
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        state = found.st_ino, found.st_size, found.st_mtime_ns
        if _checked.get(str(path)) == state:
            return True
        places = _places(file)
        if not places and segment.end is None:
            return False  # of format 1
        digits = {_at(file, place) for place in places}
        if len(places) != 2 or digits != {b"%08x" % _sum(file, places)}:
            raise pa.ArrowInvalid("it does not fit its checksum")
    if len(_checked) >= _REMEMBERED:
        _checked.clear()
    _checked[str(path)] = state
    return True


def _places(file: IO[bytes]) -> list[int]:
    """Return where the digits of the checksum are: in the first message and in the last."""
    size = file.seek(0, os.SEEK_END)
    windows = [(_HEAD, _length(file, _HEAD - 4)), (0, 0)]
    if (length := _length(file, size - _TAIL)) < size:
        windows[1] = size - _TAIL - length, length
    places = []
    for start, length in windows:
        file.seek(max(0, start))
        place = file.read(min(length, size)).find(_MARK)
        if place >= 0:
            places.append(start + place + len(_MARK))
    return places


def _length(file: IO[bytes], place: int) -> int:
    """Return the length that is written at a place; 0 where there is none."""
    file.seek(max(0, place))
    return max(0, int.from_bytes(file.read(4), "little", signed=True))


def _at(file: IO[bytes], place: int) -> bytes:
    file.seek(place)
    return file.read(len(_BLANK))


def _sum(file: IO[bytes], places: list[int]) -> int:
    """Return the checksum of a file, as if its own digits were blank."""
    file.seek(0)
    total = position = 0
    for place in [*places, None]:
        while place is None or position < place:
            block = file.read(_BLOCK if place is None else min(_BLOCK, place - position))
            if not block:
                return total
            total = crc32(block, total)
            position += len(block)
        total = crc32(_BLANK, total)
        position += len(file.read(len(_BLANK)))
    return total


# --- the disk -------------------------------------------------------------------------------


def sync(file: IO[Any]) -> None:
    """Bring a file that was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sync_above(path: Path) -> None:
    """Bring the name of a file or folder to the disk, and the names of all folders above it."""
    for folder in path.absolute().parents:
        # Who may not list a folder has made nothing in it.
        with suppress(FileNotFoundError, PermissionError):
            found = folder.stat()
            state = found.st_ino, found.st_mtime_ns
            if _synced.get(str(folder)) == state:
                continue
            sync_folder(folder)
            if time.time_ns() - found.st_mtime_ns > _TICK * 1e9:
                _synced[str(folder)] = state


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the system lets go of it when the process ends, however it ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# What the system says where there is no room, and where somebody may not write.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """Say which topic cannot be written, and where, in whatever the disk brings about."""
    try:
        yield
    except OSError as error:
        fix = "see what is wrong with the disk or the folder"
        if error.errno in _NO_ROOM:
            fix = "make room on its disk"
        elif error.errno in _NOT_ALLOWED:
            fix = "make the folder writable for the user of this program, or choose another one"
        why = os.strerror(error.errno) if error.errno else str(error)
        msg = f"{what} cannot be written: {why} (in {folder})."
        raise TopicError(f"{msg}\nFix: {fix}, and run again: nothing of it was written.") from error
