"""Records brought together before they move: one row per key and window instead of one each.

Takes the records that a stage would send to a step that only aggregates; gives rows with the
states of their aggregates. What is late for a window is told of by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.aggregations import Aggregation, Count
from millpond.column import field
from millpond.connectors import inflight
from millpond.errors import MillpondError
from millpond.record import Origin
from millpond.runtime.batch import records_schema
from millpond.runtime.emit import Push, StepFailure
from millpond.runtime.windows import starts_of
from millpond.state.view import StepClock
from millpond.steps.kinds import Aggregate, Window
from millpond.windows import TimeWindow

__all__ = ["Combiner"]

WriteKey = Callable[[Any, Any], bytes | None]

Put = Callable[[Any, Any, int | None, int], None]
"""Takes value, key, start of the window, timestamp."""

Place = tuple[str | bytes | None, int | None]
"""A key, and the start of a window."""

Part = tuple[list[Any], list[int], list[int]]
"""What is kept, the timestamps and the numbers of the records that belong together."""


class _Kept:
    """What is kept of each record until its aggregates are made.

    Where only columns are asked for, only those: values that are let go at once are still in the
    processor's cache, those that wait for the end of the batch are not.
    """

    def __init__(self, step: Aggregate | Window) -> None:
        self._step = step
        self._aggregations = list(step.aggregations.values())
        self._asks_for_all = any(not _is_of_column(a) for a in self._aggregations)
        names = (a.column for a in self._aggregations if a.column is not None)
        self._columns = list(dict.fromkeys(names))

    @property
    def only_column(self) -> str | None:
        """The column that is all that is kept, or None."""
        is_one = len(self._columns) == 1 and not self._asks_for_all
        return self._columns[0] if is_one else None

    def picker(self) -> Callable[[Any], Any]:
        """Return the function that takes from a value what is kept of it."""
        columns, step = self._columns, self._step
        if self._asks_for_all:
            return lambda value: value
        if not columns:
            return lambda value: None if value is None else True
        if len(columns) > 1:
            return lambda value: tuple([_field(step, value, name) for name in columns])
        name = columns[0]

        def pick(value: Any) -> Any:
            try:
                return value[name]
            except Exception:
                return _field(step, value, name)

        return pick

    def states(self, kept: list[Any], timestamps: list[int]) -> list[Any]:
        """Return the state of each aggregation."""
        return [a.add_many(a.start(), self._found(a, kept), timestamps) for a in self._aggregations]

    def _found(self, aggregation: Aggregation, kept: list[Any]) -> list[Any]:
        name = aggregation.column
        if self._asks_for_all:
            is_column = aggregation.is_columnar and name is not None
            return [_field(self._step, v, name or "") for v in kept] if is_column else kept
        if name is None:
            return kept if not self._columns else [True] * len(kept)
        if len(self._columns) == 1:
            return kept
        place = self._columns.index(name)
        return [values[place] for values in kept]


def _is_of_column(aggregation: Aggregation) -> bool:
    return type(aggregation) is Count or (
        aggregation.is_columnar and aggregation.column is not None
    )


def _field(step: Aggregate | Window, value: Any, name: str) -> Any:
    try:
        return field(value, name)
    except Exception as error:
        raise StepFailure(step, error) from error


class Combiner:
    """Gathers the records that leave a task by one edge, by key and window."""

    def __init__(
        self,
        step: Aggregate | Window,
        origin: Origin,
        clock: StepClock,
        write_key: WriteKey | None,
    ) -> None:
        self._step = step
        self._origin = origin
        self._clock = clock
        self._write_key = write_key
        self._kept = _Kept(step)
        self._keys: list[bytes | None] = []
        """The keys of the records in hand, where they are passed on as they came."""
        self._entered: list[pa.RecordBatch] = []
        self._first = 0
        """The number of the first record in hand: records are numbered through a task."""
        self._taken: list[int] = []
        """The records in hand that were taken."""
        self._parts: dict[Place, Part] = {}
        self._late: list[tuple[Any, list[int], Any, int, bool, int]] = []
        """Records that missed a window: key, windows, value, timestamp, missed all?, number."""

    def begin(self, entered: pa.RecordBatch) -> None:
        """Take the records of a batch from here on."""
        self._first = sum(batch.num_rows for batch in self._entered)
        self._entered.append(entered.select(["key", "timestamp", "source", "partition", "offset"]))
        if self._write_key is None:
            self._keys = entered.column("key").to_pylist()

    def taken(self) -> list[int]:
        """Return the records of the batch that were taken, and begin anew."""
        taken, self._taken = self._taken, []
        return taken

    def push(self) -> Push:
        """Return the function that takes a record."""
        step = self._step
        if isinstance(step, Window):
            assert isinstance(step.kind, TimeWindow)
            return self._window_push(step.kind)
        return self._total_push()

    def _total_push(self) -> Push:
        put = self._putter()

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            put(value, key, None, timestamp)

        column = self._kept.only_column
        return push if column is None or self._write_key is None else self._fast_push(put, column)

    def _fast_push(self, put: Put, column: str) -> Push:
        """The commonest total of all, one column by a key of text, without the calls between."""
        origin, parts = self._origin, self._parts

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            part = parts.get((key, None)) if type(key) is str else None
            if part is None:
                put(value, key, None, timestamp)
                return
            try:
                part[0].append(value[column])
            except Exception:
                put(value, key, None, timestamp)  # says what is wrong
                return
            part[1].append(timestamp)
            index = origin.index
            part[2].append(self._first + index)
            self._taken.append(index)

        return push

    def _window_push(self, kind: TimeWindow) -> Push:
        put, clock, late, key_of = self._putter(), self._clock, self._late, self._key_reader()
        duration, length = kind.duration_ms, kind.duration_ms + kind.grace_ms
        starts_at = starts_of(kind)

        def push_tumbling(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            start = timestamp - timestamp % duration
            if start + length > clock.late_mark:
                put(value, key, start, timestamp)
            else:
                late.append((key_of(value, key), [start], value, timestamp, True, self._number()))

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            missed = []
            starts = starts_at(timestamp)
            for start in starts:
                if start + length > clock.late_mark:
                    put(value, key, start, timestamp)
                else:
                    missed.append(start)
            if missed:
                is_lost = len(missed) == len(starts)
                known = key_of(value, key)
                late.append((known, missed, value, timestamp, is_lost, self._number()))

        return push_tumbling if kind.step_ms == duration else push

    def _number(self) -> int:
        self._taken.append(self._origin.index)
        return self._first + self._origin.index

    def _putter(self) -> Put:
        """Return what puts a record to those of its key and window."""
        origin, key_of, parts = self._origin, self._key_reader(), self._parts
        pick = self._kept.picker()

        def put(value: Any, key: Any, start: int | None, timestamp: int) -> None:
            place = (key_of(value, key), start)
            part = parts.get(place) or parts.setdefault(place, ([], [], []))
            part[0].append(pick(value))
            part[1].append(timestamp)
            index = origin.index
            part[2].append(self._first + index)
            self._taken.append(index)

        return put

    def _key_reader(self) -> Callable[[Any, Any], str | bytes | None]:
        """Return what gives the key of a record; text as it is, which saves the encoding."""
        write_key, origin = self._write_key, self._origin
        if write_key is None:
            return lambda value, key: self._keys[origin.index]

        def key_of(value: Any, key: Any) -> str | bytes | None:
            if type(key) is str:
                return key
            try:
                return write_key(value, key)
            except Exception as error:
                raise StepFailure(self._step, error) from error

        return key_of

    def drain(self) -> pa.RecordBatch | None:
        """Return a row for each key and window, and begin anew.

        Raises:
            StepFailure: with the number of the record on which an aggregation failed.
        """
        rows = [
            (key, self._encoded(start, part), max(part[1]), part[2][0])
            for (key, start), part in self._parts.items()
        ]
        # A late record is told of by itself: the windows that it missed, and whether all of them.
        rows += [
            (key, inflight.encode((None, (starts, value, is_lost))), timestamp, number)
            for key, starts, value, timestamp, is_lost, number in self._late
        ]
        entered = self._entered
        self.clear()
        if not rows:
            return None
        keys, values, timestamps, numbers = zip(*rows, strict=True)
        places = pa.Table.from_batches(entered).take(pa.array(numbers, pa.int64()))
        columns = [
            pa.array([self._bytes_of(key) for key in keys], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(timestamps, pa.int64()),
            *(places.column(name).combine_chunks() for name in ("source", "partition", "offset")),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=records_schema(0))

    def locate(self, number: int) -> tuple[pa.RecordBatch, int]:
        """Return the batch and the place in it of a record."""
        for batch in self._entered:
            if number < batch.num_rows:
                break
            number -= batch.num_rows
        return batch, number

    def _bytes_of(self, key: str | bytes | None) -> bytes | None:
        """Return a key as it moves: keys of text are gathered as they are, to save the time."""
        if isinstance(key, str):
            assert self._write_key is not None
            return self._write_key(None, key)
        return key

    def _encoded(self, start: int | None, part: Part) -> bytes:
        kept, timestamps, _ = part
        try:
            states = self._kept.states(kept, timestamps)
        except Exception:
            raise self._failure(part) from None
        return inflight.encode(states if start is None else (start, states))

    def _failure(self, part: Part) -> StepFailure:
        """Return what went wrong, with the first record on which it goes wrong."""
        kept, timestamps, rows = part
        for count in range(1, len(rows) + 1):
            try:
                self._kept.states(kept[:count], timestamps[:count])
            except StepFailure as failure:
                return StepFailure(self._step, failure.error, (rows[count - 1],))
            except Exception as error:
                return StepFailure(self._step, error, (rows[count - 1],))
        msg = f"{self._step} failed on many records and on none of them."
        return StepFailure(self._step, MillpondError(msg + "\nFix: is its add_many right?"))

    def clear(self) -> None:
        """Forget what was gathered."""
        self._parts.clear()
        self._late.clear()
        self._entered, self._first, self._taken = [], 0, []
