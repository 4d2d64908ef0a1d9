"""Where records leave a stage: one `Emitter` per edge and output.

Takes records one by one, keeps only what changed since they entered the stage (most often the
value alone), and gives Arrow batches; everything else is taken from the input columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millpond.connectors.serde import fast
from millpond.errors import IgnoreMessage
from millpond.program.steps import Step
from millpond.state.cursor import Cursor
from millpond.wire.packed_rows import HEADERS, PATH, TOPIC, records_schema

__all__ = ["Changes", "Emitter", "Push", "StepFailure", "failed"]

# What a record takes besides its key, value and headers (bytes).
_PER_ROW = 64

Push = Callable[[Any, Any, int, Any], None]
"""A step at work: called with value, key, timestamp, headers."""


class StepFailure(Exception):
    """A step failed; carries the step to where the record is known."""

    def __init__(
        self, step: Step, error: BaseException, rows: tuple[int, ...] = (), firing: Any = None
    ) -> None:
        super().__init__(f"{step} failed: {type(error).__name__}")
        self.step = step
        self.error = error
        self.rows = rows
        """The records it failed on, where they are others than the one in hand."""
        self.firing = firing
        """What failed, where it was not the record but a timer that was due before it."""


def failed(step: Step, error: Exception) -> None:
    """Wrap what a user's function raised; `IgnoreMessage` ends the record here, like a filter."""
    if not isinstance(error, IgnoreMessage):
        raise StepFailure(step, error) from error


class Changes:
    """Which fields may differ from those of the record that entered the stage."""

    __slots__ = (
        "checked_value",
        "headers",
        "key",
        "path",
        "timestamp",
        "topic",
        "value",
        "with_key",
    )

    def __init__(
        self,
        value: Callable[[Any], bytes | None] | None = None,
        key: Callable[[Any, Any], bytes | None] | None = None,
        *,
        timestamp: bool = False,
        headers: Callable[[Any], bytes | None] | None = None,
        path: bool = False,
        topic: bool = False,
        with_key: bool = False,
    ) -> None:
        self.value = fast(value) if value else None
        """Gives the bytes of a value that is not None; None: as it came in."""
        self.checked_value = value
        """The same with a better error, asked where the fast one failed."""
        self.key = key
        """Gives the bytes of the key from (value, key); None: as it came in."""
        self.timestamp = timestamp
        self.headers = headers
        self.path = path
        self.topic = topic
        self.with_key = with_key
        """Whether the pair (value, key) is what is encoded as the value."""


class Emitter:
    """Gathers the records that leave by one edge or output."""

    def __init__(self, cursor: Cursor, changes: Changes, step: Step) -> None:
        self._cursor = cursor
        self._step = step
        self._changes = changes
        self.rows: list[int] = []
        self.values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[bytes | None] = []
        self._paths: list[bytes | None] = []
        self._topics: list[str] = []
        self._columns: list[list[Any]] = [self.rows]
        self._counted = 0
        for wanted, column in (
            (changes.value, self.values),
            (changes.key, self._keys),
            (changes.timestamp, self._timestamps),
            (changes.headers, self._headers),
            (changes.path, self._paths),
            (changes.topic, self._topics),
        ):
            if wanted:
                self._columns.append(column)

    def __len__(self) -> int:
        return len(self.rows)

    def recent_bytes(self) -> int:
        """Return how many bytes of values were added since this was asked last."""
        recent = self.values[self._counted :]
        self._counted = len(self.values)
        return sum(map(len, filter(None, recent)))

    def push(self) -> Push:
        """Return the function that takes a record."""
        changes, cursor = self._changes, self._cursor
        add_row, add_value, encode = self.rows.append, self.values.append, changes.value
        others = changes.key or changes.timestamp or changes.headers or changes.path
        if others or changes.topic or changes.with_key:
            return self._push_all
        if encode is None:
            return lambda value, key, timestamp, headers: add_row(cursor.index)

        def push_value(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            try:
                add_value(None if value is None else encode(value))
            except Exception as error:
                raise self._failure(value, error) from error
            add_row(cursor.index)

        return push_value

    def _push_all(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        self.add((value, key) if self._changes.with_key else value, key, timestamp, headers, "")

    def _failure(self, value: Any, error: Exception) -> StepFailure:
        try:
            if self._changes.checked_value:
                self._changes.checked_value(value)
        except Exception as better:
            error = better
        return StepFailure(self._step, error)

    def add(self, value: Any, key: Any, timestamp: int, headers: Any, topic: str) -> None:
        """Take a record, encoding every field before any is added."""
        changes = self._changes
        try:
            value_bytes = changes.value(value) if changes.value and value is not None else None
            key_bytes = changes.key(value, key) if changes.key else None
            header_bytes = changes.headers(headers) if changes.headers else None
        except Exception as error:
            raise self._failure(value, error) from error
        self.rows.append(self._cursor.index)
        if changes.value:
            self.values.append(value_bytes)
        if changes.key:
            self._keys.append(key_bytes)
        if changes.timestamp:
            self._timestamps.append(timestamp)
        if changes.headers:
            self._headers.append(header_bytes)
        if changes.path:
            self._paths.append(self._cursor.path)
        if changes.topic:
            self._topics.append(topic)

    def cut_to(self, length: int) -> None:
        """Forget what was added after `length`."""
        for column in self._columns:
            del column[length:]
        self._counted = min(self._counted, length)

    def weight(self, carried: dict[str, int]) -> int:
        """Return the bytes of all that the record in hand has led to.

        Args:
            carried: The bytes of the key, value and headers with which it came.
        """
        low = len(self.rows)
        while low and self.rows[low - 1] == self._cursor.index:
            low -= 1
        rows, replaced = len(self.rows) - low, self._replaced()
        return rows * _PER_ROW + sum(
            sum(map(len, filter(None, replaced[name][0][low:])))
            if name in replaced
            else rows * size
            for name, size in carried.items()
        )

    def take(self, entered: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield what was gathered, with its optional columns, and begin again.

        It is one batch, or several where one could not hold it.
        """
        yield from self._parts(entered, 0, len(self.rows))
        self.cut_to(0)

    def _parts(
        self, entered: pa.RecordBatch, low: int, high: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        try:
            part = self._part(entered, low, high)
        except pa.ArrowInvalid:  # 2 GiB of keys, say: that is what a column holds
            if high - low < 2:
                raise
            middle = (low + high) // 2
            yield from self._parts(entered, low, middle)
            yield from self._parts(entered, middle, high)
        else:
            yield part

    def _replaced(self) -> dict[str, tuple[list[Any], pa.DataType]]:
        """Return the columns that are not those of the records that entered."""
        changes = self._changes
        every = (
            ("value", changes.value, self.values, pa.binary()),
            ("key", changes.key, self._keys, pa.binary()),
            ("timestamp", changes.timestamp, self._timestamps, pa.int64()),
            ("headers", changes.headers, self._headers, pa.binary()),
            ("path", changes.path, self._paths, pa.binary()),
            ("topic", changes.topic, self._topics, pa.string()),
        )
        return {name: (column, kind) for name, wanted, column, kind in every if wanted}

    def _part(self, entered: pa.RecordBatch, low: int, high: int) -> tuple[pa.RecordBatch, int]:
        replaced = self._replaced()
        kept = [n for n in entered.schema.names if n not in replaced and n != "topic"]
        rows, taken = self.rows[low:high], entered.select(kept)
        is_whole = len(rows) == entered.num_rows and rows == list(range(len(rows)))
        taken = taken if is_whole else taken.take(pa.array(rows, pa.int64()))
        found = {name: taken.column(name) for name in kept}
        for name, (column, kind) in replaced.items():
            found[name] = pa.array(column[low:high], kind)
            if isinstance(found[name], pa.ChunkedArray):
                msg = f"the column {name} needs more than 2 GiB"
                raise pa.ArrowInvalid(msg)
        if "headers" in found and found["headers"].null_count == len(rows):
            del found["headers"]
        flags = sum(
            bit
            for bit, name in ((HEADERS, "headers"), (PATH, "path"), (TOPIC, "topic"))
            if name in found
        )
        schema = records_schema(flags)
        batch = pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)
        return batch, flags
