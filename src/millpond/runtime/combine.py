"""Records brought together before they move: one row per key and window instead of one each.

Takes the records that a stage would send to a step that only aggregates; gives rows with the
states of their aggregates. What the step must see one by one (a late record) is sent as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.connectors import inflight
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


class Combiner:
    """Gathers the records that leave by one edge, by key and window."""

    def __init__(
        self,
        step: Aggregate | Window,
        origin: Origin,
        clock: StepClock,
        write_key: WriteKey | None,
        send: Push,
    ) -> None:
        self._step = step
        self._origin = origin
        self._clock = clock
        self._write_key = write_key
        self._send = send
        """Sends one record by itself."""
        self._totals = Totals(step.aggregations)
        self.keys: list[bytes | None] = []
        """The keys of the records that entered, where they are passed on as they came."""
        self.rows: list[int] = []
        """The records that were taken."""
        self._parts: dict[Any, list[Any]] = {}
        """(key, window) -> [states, first record, latest timestamp]"""

    def __len__(self) -> int:
        return len(self.rows)

    def push(self) -> Push:
        """Return the function that takes a record."""
        step = self._step
        if isinstance(step, Window):
            assert isinstance(step.kind, TimeWindow)
            return self._window_push(step.kind)
        return self._total_push()

    def _total_push(self) -> Push:
        add = self._add

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            add(self._key_of(value, key), None, value, timestamp)
            self.rows.append(self._origin.index)

        return push

    def _window_push(self, kind: TimeWindow) -> Push:
        add, clock, send = self._add, self._clock, self._send
        length = kind.duration_ms + kind.grace_ms
        starts_at = starts_of(kind)

        def push(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            starts = starts_at(timestamp)
            if starts[0] + length <= clock.watermark:  # type: ignore[index]
                send(value, key, timestamp, headers)
                return
            key_bytes = self._key_of(value, key)
            for start in starts:
                add(key_bytes, start, value, timestamp)
            self.rows.append(self._origin.index)

        return push

    def _key_of(self, value: Any, key: Any) -> bytes | None:
        if self._write_key is None:
            return self.keys[self._origin.index]
        try:
            return self._write_key(value, key)
        except Exception as error:
            raise StepFailure(self._step, error) from error

    def _add(self, key: bytes | None, start: int | None, value: Any, timestamp: int) -> None:
        part = self._parts.get((key, start))
        totals = self._totals
        try:
            if part is None:
                states = totals.add(totals.start(), value, timestamp)
                self._parts[key, start] = [states, self._origin.index, timestamp]
            else:
                part[0] = totals.add(part[0], value, timestamp)
                if timestamp > part[2]:
                    part[2] = timestamp
        except Exception as error:
            raise StepFailure(self._step, error) from error

    def take(self, entered: pa.RecordBatch) -> pa.RecordBatch:
        """Return one row for each key and window, and begin anew."""
        parts, self._parts = self._parts, {}
        self.rows = []
        is_window = isinstance(self._step, Window)
        firsts = pa.array([first for _, first, _ in parts.values()], pa.int64())
        values = [
            inflight.encode((start, states) if is_window else states)
            for (_, start), (states, _, _) in parts.items()
        ]
        places = entered.select(["source", "partition", "offset"]).take(firsts)
        columns = [
            pa.array([key for key, _ in parts], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([latest for _, _, latest in parts.values()], pa.int64()),
            *places.columns,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=records_schema(0))

    def clear(self) -> None:
        """Forget what was gathered."""
        self.rows, self._parts = [], {}
