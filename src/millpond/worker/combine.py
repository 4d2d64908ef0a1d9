"""Records brought together before they move: one row per key and window instead of one each.

Takes the records that a stage would send to a step that only aggregates, one by one or a batch
at once, and keeps what its aggregations ask for as columns; at the end of the task, gives rows
with the states of the aggregates. What is late for a window is reported by itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.aggregations import Aggregation, Count, Reduce
from millpond.aggregations.base import is_builtin
from millpond.aggregations.user_defined import Adapted
from millpond.arguments.windows import TimeWindow
from millpond.column import field
from millpond.errors import MillpondError
from millpond.program.steps import Aggregate, Window
from millpond.state.cursor import Cursor
from millpond.state.timers import StepClock
from millpond.wire import any_value
from millpond.wire.packed_rows import PATH, records_schema
from millpond.worker.emit import Push, StepFailure
from millpond.worker.time_window import starts_of

__all__ = ["Combiner"]

WriteKey = Callable[[Any, Any], bytes | None]

Key = str | bytes | None
"""A key as it is gathered: text as it is, which saves the encoding; others as they move."""

Row = tuple[Key, bytes, int, int, bytes | None]
"""What leaves: key, value, timestamp, and the first record in it: its number and its path."""

# Values decoded at a time: those that are let go soon are still in the processor's cache.
_AT_A_TIME = 1_000


class Combiner:
    """Gathers the records that leave a task by one edge, by key and window."""

    def __init__(
        self,
        step: Aggregate | Window,
        cursor: Cursor,
        clock: StepClock,
        write_key: WriteKey | None,
        order: list[str],
        *,
        keeps_path: bool,
    ) -> None:
        self._step = step
        self._cursor = cursor
        self._clock = clock
        self._write_key = write_key
        self._kept = _Kept(step, order)
        self._in_hand: list[bytes | None] = []
        """The keys of the records in hand, where they are passed on as they came."""
        self._entered: list[pa.RecordBatch] = []
        self._first = 0
        """The number of the first record in hand: records are numbered through a task."""
        self._mark = 0
        """How many records were gathered before those in hand."""
        self._keys: list[Key] = []
        self._columns: list[list[Any]] = [[] for _ in self._kept.names]
        self._times = array("q")
        self._numbers = array("q")
        self._paths: list[bytes | None] | None = [] if keeps_path else None
        """Where one record that entered gives several: which of them it is."""
        self._late: list[tuple[Key, list[int], Any, int, bool, int, bytes | None]] = []
        """Records that missed a window: key, windows, value, timestamp, missed all?, number,
        path."""

    def begin(self, entered: pa.RecordBatch) -> None:
        """Take the records of a batch from here on."""
        self._first = sum(batch.num_rows for batch in self._entered)
        self._mark = len(self._numbers)
        self._entered.append(entered.select(["key", "timestamp", "source", "partition", "offset"]))
        if self._write_key is None:
            self._in_hand = entered.column("key").to_pylist()

    def taken(self) -> np.ndarray:
        """Return the records in hand that were taken."""
        late = [number for *_, number, _ in self._late if number >= self._first]
        rows: np.ndarray = np.concatenate((self._numbers[self._mark :], np.array(late, np.int64)))
        return rows - self._first

    # --- record by record -------------------------------------------------------------------

    def push(self) -> Push:
        """Return the function that takes a record."""
        put, step = self._putter(), self._step
        if self._paths is not None:
            put = self._with_path(put, self._paths)
        if not isinstance(step, Window):
            return put
        assert isinstance(step.kind, TimeWindow)
        return self._window_push(step.kind, put)

    def _putter(self) -> Push:
        """Return what keeps a record for the windows that it does not miss."""
        cursor, key_of, pick = self._cursor, self._key_reader(), self._kept.picker()
        keys, times, numbers, columns = self._keys, self._times, self._numbers, self._columns
        only, is_text_enough = columns[0].append, self._write_key is not None

        def put_one(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            picked = pick(value)
            keys.append(key if is_text_enough and type(key) is str else key_of(value, key))
            only(picked)
            times.append(timestamp)
            numbers.append(self._first + cursor.index)

        def put(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            name, picked = key_of(value, key), pick(value)
            keys.append(name)
            for column, part in zip(columns, picked, strict=True):
                column.append(part)
            times.append(timestamp)
            numbers.append(self._first + cursor.index)

        return put_one if len(columns) == 1 else put

    def _with_path(self, put: Push, paths: list[bytes | None]) -> Push:
        cursor = self._cursor

        def put_with_path(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            put(value, key, timestamp, headers)
            paths.append(cursor.path)

        return put_with_path

    def _window_push(self, kind: TimeWindow, put: Push) -> Push:
        clock, late, key_of, cursor = self._clock, self._late, self._key_reader(), self._cursor
        duration, length = kind.duration_ms, kind.duration_ms + kind.grace_ms
        starts_at, is_tumbling = starts_of(kind), kind.step_ms == kind.duration_ms

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            if is_tumbling and timestamp - timestamp % duration + length > clock.late_mark:
                put(value, key, timestamp, headers)
                return
            starts = starts_at(timestamp)
            missed = [start for start in starts if start + length <= clock.late_mark]
            if missed:
                is_lost, number = len(missed) == len(starts), self._first + cursor.index
                path = cursor.path
                late.append((key_of(value, key), missed, value, timestamp, is_lost, number, path))
            if len(missed) < len(starts):
                put(value, key, timestamp, headers)

        return push

    def _key_reader(self) -> Callable[[Any, Any], Key]:
        write_key, cursor = self._write_key, self._cursor
        if write_key is None:
            return lambda value, key: self._in_hand[cursor.index]

        def key_of(value: Any, key: Any) -> Key:
            if type(key) is str:
                return key
            try:
                return write_key(value, key)
            except Exception as error:
                raise StepFailure(self._step, error) from error

        return key_of

    # --- a batch at once --------------------------------------------------------------------

    def take_all(
        self, entered: pa.RecordBatch, decode: Callable[[Any], Any], key: str | None
    ) -> bool:
        """Take all of some records, if none of them needs a look of its own; else none of them.

        Args:
            entered: The records.
            decode: Gives the value of bytes.
            key: The field that is the key; None: the key that they came with.
        """
        values, times = entered.column("value").to_pylist(), entered.column("timestamp").to_numpy()
        if self._is_any_late(times):
            return False
        pickers = self._kept.column_pickers()
        keys: list[Any] = []
        columns: list[list[Any]] = [[] for _ in pickers]
        try:
            for low in range(0, len(values), _AT_A_TIME):
                decoded = list(map(decode, values[low : low + _AT_A_TIME]))
                if key is not None:
                    keys += map(itemgetter(key), decoded)
                for column, pick in zip(columns, pickers, strict=True):
                    column += map(pick, decoded)
        except Exception:
            return False  # record by record, it is found out which one it is
        if key is not None and set(map(type, keys)) != {str}:
            return False
        self.begin(entered)
        self._keys += self._in_hand if key is None else keys
        for mine, column in zip(self._columns, columns, strict=True):
            mine += column
        self._times.frombytes(times.astype(np.int64, copy=False).tobytes())
        self._numbers.extend(range(self._first, self._first + len(values)))
        return True

    def _is_any_late(self, times: np.ndarray) -> bool:
        step = self._step
        if not isinstance(step, Window):
            return False
        assert isinstance(step.kind, TimeWindow)
        earliest = starts_of(step.kind)(int(times.min()))[0]
        return bool(earliest + step.kind.duration_ms + step.kind.grace_ms <= self._clock.late_mark)

    # --- at the end of the task -------------------------------------------------------------

    def drain(self) -> pa.RecordBatch | None:
        """Return a row for each key and window, and begin again.

        Raises:
            StepFailure: with the number of the record on which an aggregation failed.
        """
        # A late record is reported by itself: the windows that it missed, and whether all of them.
        rows = [
            *self._totals(),
            *(
                (key, any_value.encode((None, (starts, value, is_lost))), timestamp, number, path)
                for key, starts, value, timestamp, is_lost, number, path in self._late
            ),
        ]
        entered = self._entered
        self.clear()
        if not rows:
            return None
        keys, values, timestamps, numbers, paths = zip(*rows, strict=True)
        places = pa.Table.from_batches(entered).take(pa.array(numbers, pa.int64()))
        columns = [
            pa.array([self._bytes_of(key) for key in keys], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(timestamps, pa.int64()),
            *(places.column(name).combine_chunks() for name in ("source", "partition", "offset")),
        ]
        if self.columns:
            columns.append(pa.array(paths, pa.binary()))
        return pa.RecordBatch.from_arrays(columns, schema=records_schema(self.columns))

    @property
    def columns(self) -> int:
        """What its rows have besides."""
        return 0 if self._paths is None else PATH

    def _totals(self) -> Iterator[Row]:
        """Yield a row for each key and window, in the order of their first records."""
        if not self._keys:
            return
        codes = _Codes()
        of_key = np.fromiter(map(codes.__getitem__, self._keys), np.int64, len(self._keys))
        of_key = of_key.astype(np.min_scalar_type(len(codes)))  # small numbers sort faster
        names = list(codes)
        times, numbers = np.array(self._times), np.array(self._numbers)
        records, starts = self._windows(times)
        of_key = of_key[records]
        order = np.lexsort((records, of_key) if starts is None else (records, starts, of_key))
        records, of_key = records[order], of_key[order]
        is_new = of_key[1:] != of_key[:-1]
        if starts is not None:
            starts = starts[order]
            is_new |= starts[1:] != starts[:-1]
        begins = np.concatenate(([0], np.flatnonzero(is_new) + 1))
        ends = [*begins[1:].tolist(), len(records)]
        times, numbers = times[records], numbers[records]
        latest = np.maximum.reduceat(times, begins).tolist()
        firsts, stamps = numbers[begins], times.tolist()
        columns = [_taken(column, records) for column in self._columns]
        for i in np.argsort(firsts, kind="stable").tolist():
            low, high = int(begins[i]), ends[i]
            kept, moments = [column[low:high] for column in columns], stamps[low:high]
            try:
                states: Any = self._kept.states(kept, moments)
            except Exception:
                raise self._failure(kept, moments, numbers[low:high].tolist()) from None
            if starts is not None:
                states = (int(starts[low]), states)
            path = None if self._paths is None else self._paths[records[low]]
            yield names[of_key[low]], any_value.encode(states), latest[i], int(firsts[i]), path

    def _windows(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the records, each once per window that it is in, and the starts of these."""
        records, step = np.arange(len(times)), self._step
        if not isinstance(step, Window):
            return records, None
        kind = step.kind
        assert isinstance(kind, TimeWindow)
        last = times - times % kind.step_ms
        if kind.step_ms == kind.duration_ms:
            return records, last
        many = -(-kind.duration_ms // kind.step_ms)
        starts = np.concatenate([last - i * kind.step_ms for i in range(many)])
        records, again = np.tile(records, many), np.tile(times, many)
        is_in = (starts + kind.duration_ms > again) & ((starts >= 0) | (again < 0))
        is_in &= starts + kind.duration_ms + kind.grace_ms > self._clock.late_mark
        return records[is_in], starts[is_in]

    def _failure(self, kept: list[list[Any]], times: list[int], numbers: list[int]) -> StepFailure:
        """Return what went wrong, with the first record on which it goes wrong."""
        good, bad, reason = 0, len(numbers), self._error_of(kept, times, len(numbers))
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self._error_of(kept, times, middle)
            if found is None:
                good = middle
            else:
                bad, reason = middle, found
        if reason is None:
            msg = f"{self._step} failed on many records and then on none of them."
            reason = MillpondError(
                msg + "\nFix: let add_many give the state that add gives for the same values."
            )
        return StepFailure(self._step, reason, (numbers[bad - 1],))

    def _error_of(
        self, kept: list[list[Any]], times: list[int], count: int
    ) -> BaseException | None:
        """Return what goes wrong with the first so many records."""
        try:
            self._kept.states([column[:count] for column in kept], times[:count])
        except StepFailure as failure:
            return failure.error
        except Exception as error:
            return error
        return None

    def locate(self, number: int) -> tuple[pa.RecordBatch, int]:
        """Return the batch and the place in it of a record."""
        for batch in self._entered:
            if number < batch.num_rows:
                break
            number -= batch.num_rows
        return batch, number

    def _bytes_of(self, key: Key) -> bytes | None:
        if isinstance(key, str):
            assert self._write_key is not None
            return self._write_key(None, key)
        return key

    def clear(self) -> None:
        """Forget what was gathered."""
        for column in (self._keys, *self._columns, self._late, self._paths or []):
            column.clear()
        del self._times[:], self._numbers[:]
        self._entered, self._first, self._mark = [], 0, 0


class _Kept:
    """What is kept of a record until its aggregates are made: columns, or the whole value."""

    def __init__(self, step: Aggregate | Window, order: list[str]) -> None:
        self._step = step
        self._aggregations = [step.aggregations[name] for name in order]
        self._asks_for_all = any(not _is_of_column(a) for a in self._aggregations)
        names = (a.column for a in self._aggregations if a.column is not None)
        columns = [] if self._asks_for_all else list(dict.fromkeys(names))
        self.names: list[str | None] = [*columns] or [None]
        """The columns; None: the whole value, or, where only records are counted, whether any."""

    def picker(self) -> Callable[[Any], Any]:
        """Return what takes from a value what is kept of it: one thing, or a list of them."""
        step, name = self._step, self.names[0]
        if name is None:
            return self.column_pickers()[0]
        if len(self.names) > 1:
            return lambda value: [_field(step, value, column) for column in self.names]

        def pick(value: Any) -> Any:
            try:
                return value[name]
            except Exception:
                return _field(step, value, name)

        return pick

    def column_pickers(self) -> list[Callable[[Any], Any]]:
        """Return what takes each column; it fails without saying much."""
        if self._asks_for_all:
            return [_itself]
        return [_whether_any if name is None else itemgetter(name) for name in self.names]

    def states(self, columns: list[list[Any]], timestamps: list[int]) -> list[Any]:
        """Return the state of each aggregation."""
        return [
            a.add_many(a.start(), self._found(a, columns), timestamps) for a in self._aggregations
        ]

    def _found(self, aggregation: Aggregation, columns: list[list[Any]]) -> list[Any]:
        name = aggregation.column
        if self._asks_for_all:
            is_column = aggregation.is_columnar and name is not None
            values = columns[0]
            if is_column:
                return [_field(self._step, v, name) for v in values]
            # A function of the user's may change what it is given, and others have it too.
            return [any_value.copy_value(v) for v in values] if _is_users(aggregation) else values
        if name is None:
            return columns[0] if self.names[0] is None else [True] * len(columns[0])
        return columns[self.names.index(name)]


class _Codes(dict[Key, int]):
    """Numbers keys as they come."""

    def __missing__(self, key: Key) -> int:
        self[key] = code = len(self)
        return code


def _taken(column: list[Any], places: np.ndarray) -> list[Any]:
    return np.fromiter(column, object, len(column))[places].tolist()  # type: ignore[no-any-return]


def _itself(value: Any) -> Any:
    return value


def _whether_any(value: Any) -> Any:
    return None if value is None else True


def _is_users(aggregation: Aggregation) -> bool:
    """Tell whether it calls a function of the user's."""
    is_ours = is_builtin(type(aggregation))
    return isinstance(aggregation, Reduce | Adapted) or not is_ours


def _is_of_column(aggregation: Aggregation) -> bool:
    return type(aggregation) is Count or (
        aggregation.is_columnar and aggregation.column is not None
    )


def _field(step: Aggregate | Window, value: Any, name: Any) -> Any:
    try:
        return field(value, name)
    except Exception as error:
        raise StepFailure(step, error) from error
