"""The embedded log: topics as folders, for a laptop, a test, a demo.

    topics/<topic>/topic.json                     number of partitions
    topics/<topic>/<partition>/<first offset>.arrow

Takes tables of (key, value, timestamp, headers), gives them back by offset. Offsets are dense.
A segment is written aside, synced and renamed, so a reader never sees half of one. Appending
holds the partition's lock. A segment remembers the last batch of every writer, in the file
itself: a batch that is written again is a no-op.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from millpond.errors import TopicError

__all__ = ["SEGMENT", "Log", "Partition", "durable_write", "locked"]

SEGMENT = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.binary()),
    ]
)

# Version of the segment layout, in the metadata of each file.
_FORMAT = b"1"

# Rows of one Arrow message in a segment: what a reader must hold to read any part of it.
_CHUNK_ROWS = 65_536


class Partition:
    """One partition: a folder of segments. Remembers where it last saw the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts: list[int] | None = None
        self._end = 0
        self._mutex = threading.Lock()  # the run's callback thread, producers and consumers share

    def end(self) -> int:
        """Return the offset of the next record to be appended."""
        with self._mutex:
            return self._look()

    def _look(self) -> int:
        if self._starts is None:
            self._starts = sorted(int(file.stem) for file in self.path.glob("*.arrow"))
            if self._starts:
                self._end = self._starts[-1] + _rows(self._file(self._starts[-1]))
        # Offsets are dense, so what comes next can have one name only: no listing needed.
        while (file := self._file(self._end)).exists():
            self._starts.append(self._end)
            self._end += _rows(file)
        return self._end

    def start(self) -> int:
        """Return the offset of the oldest record that is kept."""
        self.end()
        return self._starts[0] if self._starts else 0

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records from `start` up to, not including, `end`."""
        if start >= end:
            return
        if self._starts is None and self._file(start).exists():
            # A task reads one range, which most often begins with a segment: no listing needed.
            position = start
        else:
            if end > self.end() or start < self.start():
                raise self._missing(start, end)
            starts = self._starts or [start]
            position = starts[bisect_right(starts, start) - 1]
        while position < end:
            file = self._file(position)
            if not file.exists():
                raise self._missing(start, end)
            first = position
            with _opened(file) as reader:
                for i in range(reader.num_record_batches):
                    batch = reader.get_batch(i)
                    low, high = max(start, position), min(end, position + batch.num_rows)
                    if low < high:
                        yield batch.slice(low - position, high - low)
                    position += batch.num_rows
            if position == first:
                raise self._missing(start, end)

    def _missing(self, start: int, end: int) -> TopicError:
        return TopicError(
            f"records {start} to {end} of {self.path} are not there (it has "
            f"{self.start()} to {self.end()}).\nFix: was the topic deleted or made anew? Then "
            "start over with app.clear_state(reset_offsets=True)."
        )

    def record_bytes(self, offset: int) -> int:
        """Return about how many bytes a record takes from an offset on."""
        for first in self._segments(offset, self.end()):
            file = self._file(first)
            return file.stat().st_size // max(1, _rows(file))
        return 0

    def append(self, table: pa.Table, writer: str = "", batch: int = 0) -> bool:
        """Add records at the end; return False where the writer's batch is there already."""
        with locked(self.path / "lock"):
            end = self.end()
            writers = self._writers()
            if writer:
                last = writers.get(writer, -1)
                if last == batch:
                    return False
                if last > batch:  # only the last batch is ever run again
                    msg = (
                        f"{self.path} has batch {last} of {writer!r}, which now writes batch "
                        f"{batch}: its state directory was put back to an older copy.\n"
                        "Fix: use the state directory that wrote the topic, or app.clear_state()."
                    )
                    raise TopicError(msg)
                writers[writer] = batch
            if table.num_rows == 0:
                return True
            metadata = {b"format": _FORMAT, b"writers": json.dumps(writers).encode()}
            table = table.cast(SEGMENT).replace_schema_metadata(metadata)
            target = self._file(end)
            aside = target.with_suffix(".writing")
            with aside.open("wb") as file:
                with pa.ipc.new_file(file, table.schema) as sink:
                    sink.write_table(table, max_chunksize=_CHUNK_ROWS)
                _sync(file)
            aside.rename(target)
            _sync_folder(self.path)
            return True

    def _segments(self, start: int, end: int) -> list[int]:
        starts = self._starts or []
        if not starts:
            return []
        return [
            first
            for first, following in zip(starts, [*starts[1:], self._end], strict=True)
            if first < end and following > start
        ]

    def _writers(self) -> dict[str, int]:
        if not self._starts:
            return {}
        with _opened(self._file(self._starts[-1])) as reader:
            metadata = reader.schema.metadata or {}
        return dict(json.loads(metadata.get(b"writers", b"{}")))

    def _file(self, first: int) -> Path:
        return self.path / f"{first:020}.arrow"


class Log:
    """All topics below a folder.

    >>> import tempfile
    >>> log = Log(tempfile.mkdtemp())
    >>> log.create("clicks", 1)
    >>> log.append("clicks", 0, pa.table({"key": [b"a"], "value": [b"1"], "timestamp": [0],
    ...     "headers": [None]}, SEGMENT))
    True
    >>> log.end("clicks", 0)
    1
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._counts: dict[str, int] = {}

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(file.parent.name for file in self.path.glob("*/topic.json"))

    def exists(self, topic: str) -> bool:
        """Tell whether the topic has been created."""
        return (self.path / topic / "topic.json").exists()

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; one that is there already keeps its partitions."""
        folder = self.path / topic
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock"):
            if self.exists(topic):
                return
            for number in range(partitions):
                (folder / str(number)).mkdir(exist_ok=True)
            durable_write(folder / "topic.json", {"format": 1, "partitions": partitions})

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        if topic not in self._counts:
            file = self.path / topic / "topic.json"
            if not file.exists():
                known = ", ".join(self.topics()) or "none"
                msg = (
                    f"topic {topic!r} does not exist in {self.path} (there: {known}).\n"
                    f'Fix: create it with app.topic("{topic}"), or check topics_dir.'
                )
                raise TopicError(msg)
            self._counts[topic] = int(json.loads(file.read_text())["partitions"])
        return self._counts[topic]

    def start(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest record of a partition."""
        return self._partition(topic, partition).start()

    def end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record of a partition."""
        return self._partition(topic, partition).end()

    def record_bytes(self, topic: str, partition: int, offset: int) -> int:
        """Return about how many bytes a record of a partition takes from an offset on."""
        return self._partition(topic, partition).record_bytes(offset)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition from `start` up to, not including, `end`."""
        return self._partition(topic, partition).read(start, end)

    def append(
        self, topic: str, partition: int, table: pa.Table, writer: str = "", batch: int = 0
    ) -> bool:
        """Add records to a partition; return False where the writer's batch is there already."""
        return self._partition(topic, partition).append(table, writer, batch)

    def _partition(self, topic: str, number: int) -> Partition:
        found = self._partitions.get((topic, number))
        if found is None:
            if not 0 <= number < self.partitions(topic):
                msg = (
                    f"topic {topic!r} has no partition {number}, it has {self.partitions(topic)}.\n"
                    "Fix: choose one of these."
                )
                raise TopicError(msg)
            found = Partition(self.path / topic / str(number))
            self._partitions[topic, number] = found
        return found


def durable_write(path: Path, content: Any) -> None:
    """Write JSON so that after a crash the file is whole: the old one or the new one."""
    aside = path.with_suffix(path.suffix + ".writing")
    with aside.open("w") as file:
        json.dump(content, file, indent=2)
        _sync(file)
    aside.rename(path)
    _sync_folder(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the system lets go of it when the process ends, however it ends."""
    import fcntl

    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rows(file: Path) -> int:
    with _opened(file) as reader:
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open a segment; damage that shows here, or while it is read, names the file."""
    try:
        with pa.memory_map(str(file)) as source:
            yield pa.ipc.open_file(source)
    except pa.ArrowInvalid as error:
        msg = f"segment {file} is damaged: {error}.\nFix: restore the file from a copy."
        raise TopicError(msg) from error


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
