"""One partition of the embedded log: a folder of segments, to be read and appended to.

Takes tables of (key, value, timestamp, headers), gives them back by offset. Appending holds the
partition's lock. Small segments are merged into larger ones meanwhile (see `merging`), so a reader
that finds a file gone lists the folder again. A segment remembers the last batch of every writer,
in the file itself: a batch that is written again is a no-op.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.connectors.merging import Merger
from millpond.connectors.segments import (
    Listing,
    Segment,
    check,
    give_up,
    listed,
    locked,
    move_mark,
    opened,
    segments_gone,
    write_segment,
    writers_of,
    writing,
)
from millpond.errors import DamagedTopicError, TopicError

__all__ = ["Partition", "with_offsets"]

logger = logging.getLogger("millpond")

# Seconds after the last change of a folder from which on its time tells whether it changed again:
# file systems count in ticks of some milliseconds.
_TICK = 1.0

# How often a folder is listed where files are missing: they may be merged in that moment.
_LOOKS = 5

# Before the name of a writer: what its last batch read. Without it: the number of that batch.
_READS = "reads:"


class Partition:
    """One partition: a folder of segments. Remembers what it last saw of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._segments: list[Segment] = []
        self._seen = -1
        """When the folder was last changed, as of the list; -1: it must be listed again."""
        self._end = 0
        self._tail = 0
        """Where the records end that are there; before the end if the last ones were lost."""
        self._mark = 0
        self._given_up: tuple[tuple[int, int], ...] = ()
        self._writers: tuple[Segment | None, dict[str, Any]] = (None, {})
        self._mutex = threading.Lock()  # the run's callback thread, producers and consumers share
        self._merger = Merger(path)

    def end(self) -> int:
        """Return the offset of the next record to be appended."""
        self.segments()
        return self._end

    def segments(self, *, again: bool = False) -> list[Segment]:
        """Return the segments that are there now."""
        with self._mutex:
            changed = self._changed()
            if again or changed != self._seen or self._seen < 0:
                found = self._listed()
                self._segments, self._mark = found.segments, found.mark
                self._tail = self._end_of(found.segments[-1]) if found.segments else 0
                self._given_up = found.given_up
                self._tail = max([self._tail, *(end for _, end in found.given_up)])
                # Never back: a list that is made while files are merged may lack some.
                self._end = max(self._end, self._tail, self._mark)
                is_settled = time.time_ns() - changed > _TICK * 1e9
                self._seen = changed if is_settled else -1
            return self._segments

    def _changed(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return -1

    def _listed(self) -> Listing:
        """List the folder; once more where it looks as if files were merged in that moment."""
        with suppress(FileNotFoundError):
            found = listed(self.path)
            while not _is_dense(found):
                before, found = found, listed(self.path)
                if found == before:  # files were deleted
                    break
            return found
        return Listing([], [], 0)

    def _end_of(self, segment: Segment) -> int:
        if segment.end is not None:
            return segment.end
        with opened(segment) as parts:
            rows: int = sum(part.num_rows for part in parts)
        return segment.first + rows

    def read(self, start: int, end: int, *, skips_lost: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the records from `start` up to, not including, `end`.

        Args:
            start: The first offset.
            end: The offset after the last one.
            skips_lost: Whether segments that are damaged or gone are left out, with a warning.

        Raises:
            DamagedTopicError: one is damaged or gone, and is not left out.
        """
        if start >= end:
            return
        if end > self.end():
            raise self._missing(start, end)
        # Where some are left out, the others do not follow one another.
        says_offsets = skips_lost or self._lacks(start, end)
        position, looks = start, 0
        while (position := self._past_given_up(position)) < end:
            segment = self._at(position)
            before = position
            if segment is not None:
                try:
                    for part in self._read(segment, position, end):
                        yield with_offsets(part, position) if says_offsets else part
                        position += part.num_rows
                except FileNotFoundError:  # merged with others since it was listed
                    pass
                except DamagedTopicError as error:
                    position = self._after(error, position, skips_lost)
            looks = 0 if position > before else looks + 1
            if looks == _LOOKS:
                gone = segments_gone(self.path, position, self._next(position))
                position, looks = self._after(gone, position, skips_lost), 0
            if looks:
                self.segments(again=True)

    def _lacks(self, start: int, end: int) -> bool:
        """Tell whether some records of a range were given up."""
        return any(low < end and start < high for low, high in self._given_up)

    def _past_given_up(self, position: int) -> int:
        """Return the next offset that was not given up, and say what is left out."""
        after = self._after_given_up(position)
        if after > position:
            logger.warning("%s: offsets %d to %d were given up.", self.path, position, after - 1)
        return after

    def _after_given_up(self, position: int) -> int:
        """Return the offset after the records that were given up there, or the same offset."""
        for start, end in self._given_up:
            if start <= position < end:
                position = end
        return position

    def _after(self, error: DamagedTopicError, position: int, skips: bool) -> int:
        """Return the next offset after what is damaged or gone, or raise."""
        if not skips:
            raise error
        logger.warning("%s They are skipped.", str(error).partition("\n")[0])
        return self._next(position)

    def _read(self, segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
        position = segment.first
        with opened(segment) as parts:
            for part in parts:
                low, high = max(start, position), min(end, position + part.num_rows)
                if low < high:
                    yield part.slice(low - position, high - low)
                position += part.num_rows
                if position >= end:
                    return

    def _at(self, offset: int) -> Segment | None:
        """Return the segment that an offset is in, by the list there is."""
        place = bisect_right(self._segments, offset, key=lambda segment: segment.first) - 1
        return self._segments[place] if place >= 0 else None

    def _next(self, offset: int) -> int:
        """Return the first offset after one that is there, by the list there is; or the end."""
        later = (segment.first for segment in self._segments if segment.first > offset)
        return next(later, self._end)

    def _missing(self, start: int, end: int) -> TopicError:
        return TopicError(
            f"records {start} to {end} of {self.path} are not there (it has "
            f"0 to {self.end()}).\nFix: if the topic was deleted and created again, "
            "start over with app.clear_state(reset_offsets=True)."
        )

    def record_bytes(self, offset: int) -> int:
        """Return about how many bytes a record takes from an offset on."""
        end = self.end()
        segment = self._at(offset)
        if segment is None or offset >= end:
            return 0
        with suppress(FileNotFoundError):
            return segment.path.stat().st_size // max(1, self._end_of(segment) - segment.first)
        return 0

    def append(self, table: pa.Table, writer: str = "", batch: int = 0, reads: str = "") -> bool:
        """Add records at the end; return False where the writer's batch is there already.

        `reads` tells a batch from another one of its number: a digest of what it reads.
        """
        topic, number = self.path.parent.name, self.path.name
        with (
            writing(f"topic {topic!r}, partition {number},", self.path),
            locked(self.path / "lock"),
        ):
            end = self._end_to_write()
            last = self._segments[-1] if self._segments else None
            writers = dict(self._writers_of(last))
            if writer:
                if self._has(writers, writer, batch, reads):
                    return False
                writers[writer] = batch
                writers[_READS + writer] = reads
            if table.num_rows == 0:
                return True
            written = write_segment(self.path, end, table, writers, ".writing")
            self._writers = written, writers
            move_mark(self.path, self._mark, end + table.num_rows)
        self._merger.appended()
        return True

    def last_batch(self, writer: str) -> tuple[int, str]:
        """Return the number of a writer's last batch, and its `reads`; -1 where there is none."""
        segments = self.segments()
        writers = self._writers_of(segments[-1] if segments else None)
        return writers.get(writer, -1), writers.get(_READS + writer, "")

    def _end_to_write(self) -> int:
        """Return where the next record goes; to be called with the lock.

        Not where the last records are lost: others would get their offsets, or, as the last batch
        of each writer is lost with them, the same ones would be written twice.
        """
        end = self.end()
        if self._tail < end:
            self.segments(again=True)
        if self._tail < end:
            raise segments_gone(self.path, self._tail, end)
        return end

    def _writers_of(self, last: Segment | None) -> dict[str, Any]:
        if self._writers[0] != last:
            self._writers = last, {} if last is None else writers_of(last)
        return self._writers[1]

    def _has(self, writers: dict[str, Any], writer: str, batch: int, reads: str) -> bool:
        last = writers.get(writer, -1)
        if last > batch:  # only the last batch is ever replayed
            msg = (
                f"{self.path} has batch {last} of {writer!r}, which now writes batch "
                f"{batch}: its state directory was put back to an older copy.\n"
                "Fix: use the state directory that wrote the topic, or app.clear_state()."
            )
            raise TopicError(msg)
        known = writers.get(_READS + writer, "")
        if last == batch and known and reads and known != reads:
            msg = (
                f"{self.path} has batch {batch} of {writer!r}, which now writes another batch of "
                "that number: what the first one read is lost from the state directory.\n"
                "Fix: use the state directory that wrote the topic, or app.clear_state()."
            )
            raise TopicError(msg)
        return bool(last == batch)

    def merge(self) -> None:
        """Merge small segments, as appending does from time to time."""
        self._merger.merge()

    def give_up(self) -> list[tuple[int, int]]:
        """Let readers and writers go on without what is damaged or gone.

        Returns:
            The first offset of each range, and the one after its last.
        """
        lost: list[tuple[int, int, Segment | None]] = []
        with locked(self.path / "lock"):
            position, end, segments = 0, self.end(), self.segments(again=True)
            firsts = [*(segment.first for segment in segments[1:]), end]
            for segment, following in zip(segments, firsts, strict=False):
                lost.append((position, segment.first, None))
                position = segment.end if segment.end is not None else following
                if _is_damaged(segment):
                    lost.append((segment.first, position, segment))
            lost.append((position, end, None))
            # What was given up before is no news; a damaged file is, wherever it lies.
            lost = [place for place in lost if place[0] < place[1] and not self._is_known(*place)]
            for place in lost:
                give_up(self.path, *place)
            self.segments(again=True)
        return [(start, end) for start, end, _ in lost]

    def _is_known(self, start: int, end: int, damaged: Segment | None) -> bool:
        return damaged is None and self._after_given_up(start) >= end

    def verify(self, start: int = 0) -> tuple[list[DamagedTopicError], int]:
        """Read every segment with records from an offset on.

        Returns:
            What is damaged, and how many segments have no checksum.
        """
        damaged: list[DamagedTopicError] = []
        unsummed = 0
        position: int | None = start
        for segment in self.segments(again=True):
            if segment.end is not None and segment.end <= start:
                continue
            if position is not None and self._after_given_up(position) < segment.first:
                damaged.append(segments_gone(self.path, position, segment.first))
            position = segment.end
            try:
                unsummed += not check(segment)
                position = self._end_of(segment)
            except DamagedTopicError as error:
                damaged.append(error)
        if position is not None and self._after_given_up(position) < self._end:
            damaged.append(segments_gone(self.path, position, self._end))
        if not self.path.is_dir():
            msg = (
                f"the folder {self.path} is gone, with the records of a partition.\nFix: restore it"
            )
            damaged.append(DamagedTopicError(f"{msg} from a copy."))
        return damaged, unsummed


def _is_damaged(segment: Segment) -> bool:
    try:
        check(segment)
    except DamagedTopicError:
        return True
    return False


def _is_dense(found: Listing) -> bool:
    """Tell whether nothing seems to be missing."""
    ends = [0, *(segment.end for segment in found.segments)]
    firsts = [segment.first for segment in found.segments]
    is_whole = ends[-1] is None or ends[-1] >= found.mark
    return is_whole and all(
        end is None or end == first for end, first in zip(ends, firsts, strict=False)
    )


def with_offsets(part: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return records of a segment with their offsets, as readers of other brokers give them."""
    if "offset" in part.schema.names:
        return part
    offsets = pa.array(range(first, first + part.num_rows), pa.int64())
    return part.append_column("offset", offsets)
