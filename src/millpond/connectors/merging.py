"""Small segments of a partition are merged into larger ones, in the background of the writer.

Takes the segments of a folder; where many small ones lie side by side, writes one with the records
of all, syncs and renames it, and only then removes them. At each moment every record is in a file;
those that lie in two are the same, and a list of the folder has them once. The newest segment is
left alone, so the end of a partition can be seen at any time.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from millpond.connectors.segments import (
    SEGMENT,
    Segment,
    check,
    find_segments,
    listed,
    locked,
    opened,
    sync_folder,
    write_segment,
    writers_of,
)
from millpond.errors import TopicError

__all__ = ["Merger", "choose"]

logger = logging.getLogger("millpond")

# How many segments of a size are merged at a time, at least. An append that waits for the disk
# beside a merge takes longer: at most one of so many.
_FEW = 32

# The sizes, in bytes: a record is written again about once for each, however long its topic is.
_SIZES = (1 << 16, 1 << 20, 1 << 24)

# Bytes of a merged segment at most, as it must fit into memory; a few that make half of it are
# merged, too.
_LARGEST, _LARGE_ONES = 1 << 26, 4

# Segments that are merged at a time, at most.
_MANY = 4096

_ASIDE = ".merging"


class Merger:
    """Merges segments of a partition, as long as it is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._appended = 0
        self._busy = threading.Lock()

    def appended(self) -> None:
        """Look from time to time whether there is something to merge, in a thread of its own."""
        self._appended += 1
        if self._appended % _FEW == 1 and not self._busy.locked():
            # No daemon: the interpreter waits for it at its end, which takes a moment at most.
            thread = threading.Thread(target=self._run, name="millpond-merge")
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending
                logger.debug("%s is not merged now", self._path)

    def _run(self) -> None:
        if self._busy.acquire(blocking=False):
            try:
                self.merge()
            except (TopicError, OSError) as error:
                # Reading tells of damage, and writing of a full disk.
                logger.debug("segments of %s are not merged: %s", self._path, error)
            finally:
                self._busy.release()

    def merge(self) -> None:
        """Merge what is to be merged."""
        with _alone(self._path / "merging") as is_alone:
            if is_alone:
                self._tidy()
                while chosen := choose(_sizes(find_segments(self._path))):
                    self._merge(chosen)
                    self._tidy(is_synced=True)

    def _merge(self, chosen: list[Segment]) -> None:
        parts: list[pa.RecordBatch] = []
        position = chosen[0].first
        for segment in chosen:
            if segment.first != position:
                msg = f"records {position} to {segment.first} of {self._path} are not there."
                raise TopicError(msg + "\nFix: restore the segment from a copy.")
            with opened(segment) as batches:
                for batch in batches:
                    parts.append(pa.record_batch(batch.columns, schema=SEGMENT))
                    position += batch.num_rows
        # The last segment has the last batch of every writer up to its end.
        writers = writers_of(chosen[-1])
        table = pa.Table.from_batches(parts, SEGMENT).combine_chunks()
        write_segment(self._path, chosen[0].first, table, writers, _ASIDE)

    def _tidy(self, *, is_synced: bool = False) -> None:
        """Remove what was merged, and what a merge left that did not come to its end."""
        for left in self._path.glob(f"*{_ASIDE}"):
            left.unlink()
        found = listed(self._path)
        if not found.covered:
            return
        for segment in found.segments:
            if any(segment.first <= c.first < (segment.end or 0) for c in found.covered):
                check(segment)
        if not is_synced:  # the names of merged segments are on the disk before others go
            sync_folder(self._path)
        with locked(self._path / "lock"):  # a list made by an append has all of them or none
            for segment in found.covered:
                segment.path.unlink()


def choose(segments: list[tuple[Segment, int]]) -> list[Segment]:
    """Return segments to be merged, side by side and of a size; they come with their bytes.

    The newest is never among them.
    """
    for size in _SIZES:
        run: list[Segment] = []
        total = 0
        for segment, length in segments[:-1]:
            is_small = length <= size
            if run and not (is_small and _fits(run, total, segment, length)):
                if _is_enough(run, total):
                    return run
                run, total = [], 0
            if is_small:
                run.append(segment)
                total += length
        if _is_enough(run, total):
            return run
    return []


def _fits(run: list[Segment], total: int, segment: Segment, length: int) -> bool:
    is_next = run[-1].end in (None, segment.first)
    return is_next and total + length <= _LARGEST and len(run) < _MANY


def _is_enough(run: list[Segment], total: int) -> bool:
    return len(run) >= _FEW or (total >= _LARGEST // 2 and len(run) >= _LARGE_ONES)


def _sizes(segments: list[Segment]) -> list[tuple[Segment, int]]:
    return [(segment, segment.path.stat().st_size) for segment in segments]


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold the lock of a file if nobody has it; gives whether it is held."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
