"""Millpond's sources as one Spark source.

Takes readers by name; gives Spark rows that only *describe* ranges of records (source,
partition, start, end): the stage that needs the records reads them itself, so they cross no
process on the way. One Spark source serves all of ours, so adding a topic changes no checkpoint.
The time of a batch is decided here too and written down with its offsets: see `driver.timekeeper`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millpond.connectors.protocols import Offsets, SourceReader
from millpond.driver.clock_jumps import JumpWatch
from millpond.driver.timekeeper import Clockwork, Timekeeper
from millpond.errors import TopicError
from millpond.spark.code_shipping import Shipment
from millpond.spark.internals.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from millpond.storage.batch_source import clock_in
from millpond.storage.clock_file import known_time_in

__all__ = ["CLOCK", "FORMAT", "RANGES", "WAKE", "MillpondSource", "source_of"]

FORMAT = "millpond"
CLOCK = "clock"
RANGES = "source int, partition string, start long, end long, clock binary"

# The `source` of a range that is none: it wakes a key group (its `start`) of a scope (`partition`).
WAKE = -1

# Seconds between two looks at a source that does not answer.
_PAUSE = 0.5

# Below this many records a batch is read by one task: a task costs more than they do.
_SMALL_BATCH = 2_000

# Bytes of records that a batch reads at most; below the 2 GiB of an Arrow column, with room for
# what functions add to them.
_BATCH_BYTES = 512 * 1024 * 1024

All = dict[str, Offsets]


@dataclass
class Ranges(InputPartition):
    """The ranges that one task reads."""

    ranges: list[tuple[int, str, int, int, bytes]]

    def __post_init__(self) -> None:
        super().__init__(0)


class MillpondSource(DataSource):
    """The data source `millpond` of one run."""

    shipment: Shipment

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return RANGES

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return RangeReader(self.shipment.load_readers())


def source_of(carried: Shipment) -> type[MillpondSource]:
    """Return the source that carries what its readers need.

    It is in a class, not in an option of the source: Spark's page, its log of events and its log at
    level DEBUG show options, and a reader may hold a password.
    """

    class SourceOfRun(MillpondSource):
        shipment = carried

    return SourceOfRun


@dataclass
class ReaderSettings:
    """What the reader process must know."""

    readers: dict[str, SourceReader]
    starts: All
    reset: str
    limit: int | None
    tasks: int
    work: Clockwork
    clock_file: str
    """Where the driver leaves what it knows about the time."""
    until: All = field(default_factory=dict)
    """Up to where sources are read at most."""
    replay: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Offsets of batches that must be cut as they were cut before, by the number of their clock."""
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each source that waits the tables that must have been read before."""
    room: int | None = None
    """How many records the first batch may read where the run ends after a count of outputs."""


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides what each batch reads. Offsets: {"millpond": {source: {partition: offset}}}."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._names = list(settings.readers)
        self._final: All | None = None
        self._asked: dict[str, tuple[float, Offsets]] = {}
        """When each source was last asked for its ends, and what it said."""
        self._keeper = Timekeeper(settings.work)
        self._wall = JumpWatch()
        self._clock_read: tuple[int, int, int] | None = None
        self._room = settings.room
        self._loaded: All = {}
        """Where each table that others wait for ended when the run began."""
        self._begun_at: int | None = None
        """The number of the clock when the run began."""

    def initialOffset(self) -> dict[str, Any]:
        return {FORMAT: {name: self._initial(name) for name in self._names}}

    def _initial(self, name: str) -> Offsets:
        settings = self._settings
        if name in settings.starts:
            return settings.starts[name]
        # A list, a rate or a folder is read from its beginning, whatever the reset says.
        return settings.readers[name].initial(settings.reset)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._settings.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._final = {}
        self._keeper.waits = False

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        again = self._settings.replay.get(clock_in(start).seq + 1)
        if again is not None:
            return self._replayed(again)
        begin = self._with_new_sources(start[FORMAT])
        ends = {name: self._latest(name, begin[name]) for name in self._names}
        while self._final == {} and any(map(self._is_away, self._names)):
            time.sleep(_PAUSE)  # a drain must know what there is; the reader's patience has an end
            ends = {name: self._latest(name, begin[name]) for name in self._names}
        for name, most in self._settings.until.items():
            found = ends.get(name, {})
            ends[name] = {p: min(end, most.get(p, end)) for p, end in found.items()}
        ends.update({name: offsets for name, offsets in begin.items() if name not in ends})
        alive = _moved(begin, ends)
        if self._final is not None:
            self._final = self._final or ends
            ends = {name: self._final.get(name, ends[name]) for name in ends}
        ends = self._held(begin, ends)
        if isinstance(limit, ReadMaxRows):
            ends = self._within(begin, ends, limit.max_rows)
        last = start.get(CLOCK, {})
        self._hear_of(clock_in(start).seq)
        if self._room is not None:
            ends = _cut(begin, ends, self._room)
        now = time.time_ns() // 1_000_000
        jump = self._wall.look(now, time.monotonic())
        tick = self._keeper.next(last, now, _moved(begin, ends), alive, jump)
        return start if tick is None else {FORMAT: ends, CLOCK: self._keeper.to_offset(tick)}

    def _replayed(self, planned: dict[str, Any]) -> dict[str, Any]:
        """Return a batch as it was cut, with every group woken.

        A step that was not in the program then may have something due in a group without records.
        """
        every = list(range(self._settings.work.groups))
        wake = dict.fromkeys(self._settings.work.stages, every)
        return {**planned, CLOCK: {**planned.get(CLOCK, {}), "wake": wake}}

    def _held(self, begin: All, ends: All) -> All:
        """Return ends at which sources that wait for a table stay where they are."""
        waits = self._settings.waits
        tables = {table for names in waits.values() for table in names if table in self._names}
        for table in tables - self._loaded.keys():
            if not self._is_away(table):
                self._loaded[table] = ends[table]
        loading = {
            table
            for table in tables
            if any(
                begin[table].get(partition, 0) < end
                for partition, end in self._loaded.get(table, {"": 1}).items()
            )
        }
        return {
            name: begin[name] if loading.intersection(waits.get(name, ())) else offsets
            for name, offsets in ends.items()
        }

    def _hear_of(self, seq: int) -> None:
        """Read what the driver has learned from the last batch, if there is anything new."""
        file = Path(self._settings.clock_file)
        if self._begun_at is None:
            self._begun_at = seq
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_ino, seq)
            if version != self._clock_read:
                self._clock_read = version
                known = known_time_in(file.read_bytes(), file)
                self._keeper.load(known.of_timekeeper(), seq)
                if seq != self._begun_at:  # what an earlier run wrote is about that run
                    self._room = known.room or None
        except (FileNotFoundError, ValueError):
            if self._keeper.seq != seq:
                self._keeper.load(None, seq)

    def _within(self, begin: All, ends: All, most: int) -> All:
        """Return ends of at most so many records, and of no more than make a batch's bytes.

        A file counts as one record. Each folder has its share of the bytes, and so have all topics.
        """
        moved = _moved(begin, ends)
        folders = list(filter(self._counts_files, moved))
        share = _BATCH_BYTES // max(1, len(folders) + (len(moved) > len(folders)))
        limited = _limited(begin, ends, min(most, self._most_by_size(begin, ends, share)))
        within = {name: dict(offsets) for name, offsets in limited.items()}
        for name in folders:
            reader = self._settings.readers[name]
            for partition, end in limited[name].items():
                low = begin[name].get(partition, 0)
                within[name][partition] = reader.fitting(low, end, share)
        return within

    def _most_by_size(self, begin: All, ends: All, most: int) -> int:
        """Return how many records of the largest kind that waits make so many bytes."""
        sizes = [
            self._settings.readers[name].record_bytes(partition, begin[name].get(partition, 0))
            for name, offsets in ends.items()
            if name in self._settings.readers
            for partition, end in offsets.items()
            if end > begin[name].get(partition, 0)
        ]
        return max(1, most // int(max([1, *sizes])))

    def _counts_files(self, name: str) -> bool:
        return name in self._names and self._settings.readers[name].counts_files

    def _with_new_sources(self, begin: All) -> All:
        return {**{name: self._initial(name) for name in self._names if name not in begin}, **begin}

    def _is_away(self, name: str) -> bool:
        return self._settings.readers[name].away_since is not None

    def _latest(self, name: str, begin: Offsets) -> Offsets:
        ends = self._ends(name, begin)
        for partition, end in ends.items():
            if end < begin.get(partition, 0):
                msg = (
                    f"source {name!r}, partition {partition}, ends at {end}, but this group has "
                    f"read it up to {begin[partition]}: was it deleted and created again?\n"
                    "Fix: start over with app.clear_state(reset_offsets=True)."
                )
                raise TopicError(msg)
        return {p: max(end, begin.get(p, 0)) for p, end in {**begin, **ends}.items()}

    def _ends(self, name: str, begin: Offsets) -> Offsets:
        reader, now = self._settings.readers[name], time.monotonic()
        at, ends = self._asked.get(name, (-math.inf, {}))
        if now - at >= reader.fresh_for:
            ends = reader.ends(begin)
            self._asked[name] = now, ends
        return ends

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Ranges]:
        begin = self._with_new_sources(start[FORMAT])
        ranges = [
            (self._names.index(name), partition, begin[name].get(partition, 0), offset)
            for name, offsets in end[FORMAT].items()
            if name in self._names
            for partition, offset in offsets.items()
            if offset > begin[name].get(partition, 0)
        ]
        tick = self._keeper.from_offset(end.get(CLOCK, {}))
        clock = tick.clock.encode()
        tasks = self._settings.tasks
        files = [place for place in ranges if self._counts_files(self._names[place[0]])]
        records = [place for place in ranges if place not in files]
        shares = [
            [*some, *others]
            for some, others in zip_longest(
                _shared_out(records, tasks, _SMALL_BATCH),
                _shared_out(files, tasks, 1),
                fillvalue=(),
            )
        ]
        woken = [(WAKE, scope, g, 0) for scope, groups in tick.groups.items() for g in groups]
        if woken:
            shares = shares or [[]]
            shares[0] += woken
        return [Ranges([(*place, clock) for place in part]) for part in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ranges)
        columns = list(zip(*partition.ranges, strict=True))
        types = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["source", "partition", "start", "end", "clock"])


def _moved(begin: All, ends: All) -> list[str]:
    """Return the sources that have records between two places."""
    return [
        name
        for name, offsets in ends.items()
        if any(end > begin[name].get(partition, 0) for partition, end in offsets.items())
    ]


def _limited(begin: All, ends: All, most: int) -> All:
    """Return ends that hold at most so many records in all, taken evenly from what waits."""
    waiting = [
        (name, partition, end - begin[name].get(partition, 0))
        for name, offsets in ends.items()
        for partition, end in offsets.items()
    ]
    total = sum(count for _, _, count in waiting)
    if total <= most:
        return ends
    limited: All = {name: {} for name in ends}
    for name, partition, count in waiting:
        share = count * most // total
        # Everything that waits moves by at least one, or a small partition would starve.
        taken = min(count, max(share, 1)) if count else 0
        limited[name][partition] = begin[name].get(partition, 0) + taken
    return limited


def _cut(begin: All, ends: All, most: int) -> All:
    """Return ends that hold exactly so many records, if so many wait.

    What was read least comes first, so that no partition waits forever.
    """
    waiting = sorted(
        (begin[name].get(partition, 0), name, partition, end)
        for name, offsets in ends.items()
        for partition, end in offsets.items()
    )
    cut: All = {name: {} for name in ends}
    for low, name, partition, end in waiting:
        taken = min(end - low, most)
        cut[name][partition] = low + taken
        most -= taken
    return cut


def _shared_out(
    ranges: list[tuple[int, str, int, int]], tasks: int, least: int
) -> Iterator[list[tuple[int, str, int, int]]]:
    """Yield the ranges of each task: equal shares, cut inside partitions where need be.

    What is no more than `least` in all is for one task.
    """
    total = sum(end - start for _, _, start, end in ranges)
    if total == 0:
        return
    share = total if total <= least else -(-total // tasks)
    mine: list[tuple[int, str, int, int]] = []
    room = share
    for source, partition, start, end in ranges:
        while start < end:
            cut = min(end, start + room)
            mine.append((source, partition, start, cut))
            room -= cut - start
            start = cut
            if room == 0:
                yield mine
                mine, room = [], share
    if mine:
        yield mine
