"""Records brought together before they move: one row per key and window instead of one each.

Takes the records that a stage would send to a step that only aggregates; gives rows with the
states of their aggregates. What is late for a window is told of by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

Place = tuple[str | bytes | None, int | None]
"""A key, and the start of a window."""

Part = tuple[list[Any], list[int], list[int]]
"""What is kept, the timestamps and the places of the records that belong together."""


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

    def picker(self) -> Callable[[Any], Any]:
        """Return the function that takes from a value what is kept of it."""
        columns, step = self._columns, self._step
        if self._asks_for_all:
            return lambda value: value
        if not columns:
            return lambda value: None if value is None else True
        if len(columns) > 1:
            return lambda value: tuple([_field(step, value, name) for name in columns])
        (name,) = columns

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
    """Gathers the records that leave by one edge, by key and window."""

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
        self.keys: list[bytes | None] = []
        """The keys of the records that entered, where they are passed on as they came."""
        self._parts: dict[Place, Part] = {}
        self._late: list[tuple[Any, list[int], Any, int, bool, int]] = []
        """Records that missed a window: key, windows, value, timestamp, missed all?, place."""
        self._ready: list[tuple[Any, bytes, int, int]] = []
        """The rows to send: key, value, timestamp, place."""

    def __len__(self) -> int:
        return len(self._ready)

    def push(self) -> Push:
        """Return the function that takes a record."""
        step = self._step
        if isinstance(step, Window):
            assert isinstance(step.kind, TimeWindow)
            return self._window_push(step.kind)
        return self._total_push()

    def _total_push(self) -> Push:
        origin, key_of, parts = self._origin, self._key_reader(), self._parts
        by_text = self._write_key is not None

        pick = self._kept.picker()

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            place = (key if by_text and type(key) is str else key_of(value, key), None)
            part = parts.get(place) or parts.setdefault(place, ([], [], []))
            part[0].append(pick(value))
            part[1].append(timestamp)
            part[2].append(origin.index)

        return push

    def _window_push(self, kind: TimeWindow) -> Push:
        origin, key_of, parts = self._origin, self._key_reader(), self._parts
        by_text = self._write_key is not None
        clock, late = self._clock, self._late
        duration, length = kind.duration_ms, kind.duration_ms + kind.grace_ms
        starts_at = starts_of(kind)

        pick = self._kept.picker()

        def put(place: Place, value: Any, timestamp: int) -> None:
            part = parts.get(place) or parts.setdefault(place, ([], [], []))
            part[0].append(pick(value))
            part[1].append(timestamp)
            part[2].append(origin.index)

        def push_tumbling(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            start = timestamp - timestamp % duration
            known = key if by_text and type(key) is str else key_of(value, key)
            if start + length > clock.late_mark:
                put((known, start), value, timestamp)
            else:
                late.append((known, [start], value, timestamp, True, origin.index))

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            known = key if by_text and type(key) is str else key_of(value, key)
            missed = []
            starts = starts_at(timestamp)
            for start in starts:
                if start + length > clock.late_mark:
                    put((known, start), value, timestamp)
                else:
                    missed.append(start)
            if missed:
                is_lost = len(missed) == len(starts)
                late.append((known, missed, value, timestamp, is_lost, origin.index))

        return push_tumbling if kind.step_ms == duration else push

    def _key_reader(self) -> WriteKey:
        write_key, origin = self._write_key, self._origin
        if write_key is None:
            return lambda value, key: self.keys[origin.index]

        def key_of(value: Any, key: Any) -> bytes | None:
            try:
                return write_key(value, key)
            except Exception as error:
                raise StepFailure(self._step, error) from error

        return key_of

    def forget(self, index: int) -> None:
        """Nothing is gathered where failed records are let go."""

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what makes the states of all that was gathered."""
        if self._parts or self._late:
            yield 0, self._make

    def _make(self) -> None:
        rows = [
            (key, self._encoded(start, part), max(part[1]), part[2][0])
            for (key, start), part in self._parts.items()
        ]
        # A late record is told of by itself: the windows that it missed, and whether all of them.
        rows += [
            (key, inflight.encode((None, (starts, value, is_lost))), timestamp, row)
            for key, starts, value, timestamp, is_lost, row in self._late
        ]
        self._ready = rows

    def take(self, entered: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
        """Return a row for each key and window, and the records in them, and begin anew."""
        taken = [row for _, _, rows in self._parts.values() for row in rows]
        taken += [row for *_, row in self._late]
        keys, values, timestamps, rows = zip(*self._ready, strict=True)
        self.clear()
        places = entered.select(["source", "partition", "offset"])
        columns = [
            pa.array([self._bytes_of(key) for key in keys], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(timestamps, pa.int64()),
            *places.take(pa.array(rows, pa.int64())).columns,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=records_schema(0)), taken

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
        self._ready = []
