"""Where a stage is, as numbers that others read while it works and after its process is gone.

Takes the records that a stage is about to run; keeps its place in a buffer, which a worker shares
with the driver as a file. In the loop it costs a number every 256 records. A task that runs again
because its process was lost is exact: it notes every record and every step before they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from millpond.wire.packed_rows import records_schema

__all__ = ["IDLE", "READS", "RUNS", "SIZE", "SPARE", "Place", "Spot"]

# What a process does.
IDLE, RUNS, READS = 0, 1, 2

# Bytes of a place; up to where there are numbers; from where on others may write.
SIZE, _NUMBERS, SPARE = 8192, 256, 512

(
    _DOING,
    _TURN,
    _TASK,
    _STAGE,
    _GROUP,
    _SOURCE,
    _PARTITION,
    _FIRST,
    _LAST_SOURCE,
    _LAST_PARTITION,
    _LAST,
    _INDEX,
    _STEP,
    _EXACT,
    _KEY_BYTES,
) = range(15)

# The columns that say where a record came from; they have the same places in all batches.
_PLACES = [records_schema(0).get_field_index(name) for name in ("source", "partition", "offset")]

# What stands for a key that is not known, and one that is None.
_UNKNOWN, _NONE = -2, -1


@dataclass(frozen=True)
class Spot:
    """A place as it was read."""

    doing: int
    turn: int
    """Counts what was begun: the records of a range, or of a key group."""
    task: int
    stage: int
    group: int
    source: int
    partition: int
    first: int
    """The first offset of what was begun; where it is exact, the record's or a timer's moment."""
    last_source: int
    last_partition: int
    last: int
    index: int
    """How many records were done at least."""
    step: int
    """Which step of the plan was at work; -1: not known."""
    is_exact: bool
    key: bytes | None = None
    has_key: bool = False

    @classmethod
    def read(cls, buffer: bytes) -> Spot:
        found = memoryview(buffer)[:_NUMBERS].cast("q").tolist()
        exact, length = found[_EXACT], found[_KEY_BYTES]
        key = None if length < 0 else bytes(buffer[_NUMBERS : _NUMBERS + length])
        names = [field.name for field in fields(cls)][:_EXACT]
        values: dict[str, Any] = dict(zip(names, found, strict=False))
        return cls(**values, is_exact=bool(exact), key=key, has_key=length != _UNKNOWN)


class Place:
    """The place of one process, written by it.

    Args:
        buffer: Where it is kept; None: where nobody looks.
        task: Which task of Spark's this is.
        is_exact: Whether each record is noted.
    """

    def __init__(self, buffer: Any = None, task: int = -1, *, is_exact: bool = False) -> None:
        view = memoryview(bytearray(SIZE) if buffer is None else buffer)
        self._numbers, self._key = view[:_NUMBERS].cast("q"), view[_NUMBERS:SPARE]
        self._numbers[_TASK], self._numbers[_EXACT] = task, is_exact
        self._entered: pa.RecordBatch | None = None
        self.is_exact = is_exact

    def enter(self, stage: int, group: int, entered: pa.RecordBatch) -> None:
        """Begin with records."""
        numbers, rows = self._numbers, entered.num_rows
        numbers[_TURN] += 1
        numbers[_STAGE], numbers[_GROUP], numbers[_INDEX], numbers[_STEP] = stage, group, 0, -1
        numbers[_KEY_BYTES] = _UNKNOWN
        numbers[_SOURCE] = numbers[_LAST_SOURCE] = -1
        if rows:
            # By number: looking for a column's name takes as long as all else here.
            source, partition, offset = (entered.column(at) for at in _PLACES)
            numbers[_SOURCE], numbers[_LAST_SOURCE] = source[0].as_py(), source[rows - 1].as_py()
            numbers[_PARTITION] = partition[0].as_py()
            numbers[_LAST_PARTITION] = partition[rows - 1].as_py()
            numbers[_FIRST], numbers[_LAST] = offset[0].as_py(), offset[rows - 1].as_py()
        self._entered = entered if self.is_exact else None
        numbers[_DOING] = RUNS

    def reading(self, source: int, partition: int, start: int, end: int) -> None:
        """Begin to read a range."""
        numbers = self._numbers
        numbers[_TURN] += 1
        numbers[_STAGE], numbers[_GROUP], numbers[_INDEX], numbers[_STEP] = 0, -1, 0, -1
        numbers[_KEY_BYTES] = _UNKNOWN
        numbers[_SOURCE] = numbers[_LAST_SOURCE] = source
        numbers[_PARTITION] = numbers[_LAST_PARTITION] = partition
        numbers[_FIRST], numbers[_LAST] = start, end - 1
        numbers[_DOING] = READS

    def leave(self) -> None:
        """Have nothing in hand."""
        self._numbers[_DOING] = IDLE
        self._entered = None

    def reach(self, index: int) -> None:
        """Say that the records in front of an index are done."""
        self._numbers[_INDEX] = index

    def each(self, records: Iterable[Any]) -> Iterable[Any]:
        """Return records, each of which is noted where that is wanted."""
        return self._noted(records) if self.is_exact else records

    def _noted(self, records: Iterable[Any]) -> Iterator[Any]:
        assert self._entered is not None
        names = ("source", "partition", "offset", "key")
        columns = (self._entered.column(name).to_pylist() for name in names)
        for place, record in zip(zip(*columns, strict=True), records, strict=False):
            self._note(*place)
            yield record

    def due(self, key: bytes | None, at: int) -> None:
        """Note what is no record but a timer, or a window that closes."""
        if self.is_exact:
            self._note(-1, -1, at, key)

    def _note(self, source: int, partition: int, offset: int, key: bytes | None) -> None:
        numbers = self._numbers
        numbers[_SOURCE], numbers[_PARTITION], numbers[_FIRST] = source, partition, offset
        numbers[_KEY_BYTES] = _NONE
        if key is not None:
            cut = key[: len(self._key)]
            self._key[: len(cut)] = cut
            numbers[_KEY_BYTES] = len(cut)

    def stepping(self, number: int, push: Callable[..., None]) -> Callable[..., None]:
        """Return the function of a step, which is noted while it runs."""
        numbers = self._numbers

        def noted(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            before, numbers[_STEP] = numbers[_STEP], number
            push(value, key, timestamp, headers)
            numbers[_STEP] = before

        return noted
