"""Records brought together before they move: one row per key and window instead of one each.

Takes the records that a stage would send to a step that only aggregates; gives rows with the
states of their aggregates. What is late for a window is told of by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millpond.connectors import inflight
from millpond.errors import MillpondError
from millpond.record import Origin
from millpond.runtime.batch import records_schema
from millpond.runtime.emit import Push, StepFailure
from millpond.runtime.totals import Totals
from millpond.runtime.windows import starts_of
from millpond.state.view import StepClock
from millpond.steps.kinds import Aggregate, Window
from millpond.windows import TimeWindow

__all__ = ["Combiner"]

WriteKey = Callable[[Any, Any], bytes | None]

Place = tuple[str | bytes | None, int | None]
"""A key, and the start of a window."""

Part = tuple[list[Any], list[int], list[int]]
"""Values, timestamps and places of the records that belong together."""


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
        self._totals = Totals(step.aggregations)
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

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            place = (key if by_text and type(key) is str else key_of(value, key), None)
            part = parts.get(place) or parts.setdefault(place, ([], [], []))
            part[0].append(value)
            part[1].append(timestamp)
            part[2].append(origin.index)

        return push

    def _window_push(self, kind: TimeWindow) -> Push:
        origin, key_of, parts = self._origin, self._key_reader(), self._parts
        by_text = self._write_key is not None
        clock, late = self._clock, self._late
        duration, length = kind.duration_ms, kind.duration_ms + kind.grace_ms
        starts_at = starts_of(kind)

        def put(place: Place, value: Any, timestamp: int) -> None:
            part = parts.get(place) or parts.setdefault(place, ([], [], []))
            part[0].append(value)
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
        values, timestamps, _ = part
        try:
            states = self._totals.of(values, timestamps)
        except Exception:
            raise self._failure(part) from None
        return inflight.encode(states if start is None else (start, states))

    def _failure(self, part: Part) -> StepFailure:
        """Return what went wrong, with the record it went wrong on."""
        states = self._totals.start()
        for value, timestamp, row in zip(*part, strict=True):
            try:
                states = self._totals.add(states, value, timestamp)
            except Exception as error:
                return StepFailure(self._step, error, (row,))
        msg = f"{self._step} failed on many records and on none of them."
        return StepFailure(self._step, MillpondError(msg + "\nFix: is its add_many right?"))

    def clear(self) -> None:
        """Forget what was gathered."""
        self._parts.clear()
        self._late.clear()
        self._ready = []
