"""`update_state` at work: a function of two tables, once per key group and batch.

Takes the records of a group as one Arrow table and the group's state as another; keeps the table
that the function gives and hands on its rows, all of them or those that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.errors import MillpondError, ValueTypeError, shown
from millpond.program.steps import UpdateState
from millpond.state.key_context import KeyContext
from millpond.state.layout import MOST_BYTES
from millpond.worker.emit import Push, StepFailure

__all__ = ["TableUpdate"]

_KEY, _TIMESTAMP = "_key", "_timestamp"

_NAN = object()


class TableUpdate:
    """The step at work; the state is an Arrow stream kept with the key group."""

    def __init__(self, step: UpdateState, context: KeyContext, give: Push) -> None:
        self._step = step
        self._context = context
        self._cursor = context.cursor
        self._give = give
        self._records: list[dict[str, Any]] = []
        self._rows: list[int] = []

    def push(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        """Put a record into the batch's table."""
        if not isinstance(value, dict):
            msg = f"update_state() needs values that are dicts, got {shown(value)}."
            error = MillpondError(msg + "\nFix: sdf.apply(lambda value: {'value': value}).")
            raise StepFailure(self._step, error)
        self._records.append({**value, _KEY: key, _TIMESTAMP: timestamp})
        self._rows.append(self._cursor.index)

    def forget(self, index: int) -> None:
        """Take back a record that failed elsewhere."""
        while self._rows and self._rows[-1] == index:
            self._rows.pop()
            self._records.pop()

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the call of the batch, then each row it gave, in the name of the last record."""
        if not self._records:
            return
        latest = max(record[_TIMESTAMP] for record in self._records)
        last, given = self._rows[-1], []

        def update() -> None:
            given.extend(self._update())

        yield last, update
        for number, row in enumerate(given):
            yield last, partial(self._emit, number, row, latest)

    def _update(self) -> list[dict[str, Any]]:
        """Call the function, keep the table it gives, and return the rows that go on."""
        records, numbers = self._records, tuple(self._rows)
        self._records, self._rows = [], []
        step = self._step
        try:
            before = self._load()
            state = before if before is not None else _empty(step.schema)
            after = self._called(_table(records), state)
            self._save(after)
            rows: list[dict[str, Any]] = after.to_pylist()
        except Exception as error:
            raise StepFailure(step, error, numbers) from error
        if step.emit == "changes" and before is not None:
            return _changed(rows, before.to_pylist())
        return rows

    def _emit(self, number: int, row: dict[str, Any], timestamp: int) -> None:
        self._cursor.at_child(number)
        self._cursor.at_time(timestamp)
        self._give(row, row.get(self._step.key_field or _KEY), timestamp, None)

    def _called(self, batch: pa.Table, state: pa.Table) -> pa.Table:
        step = self._step
        if step.tables == "pandas":
            result = step.function(batch.to_pandas(), state.to_pandas())
        else:
            result = step.function(batch, state)
        if isinstance(result, pa.RecordBatch):
            return pa.Table.from_batches([result])
        if isinstance(result, pa.Table):
            return result
        if type(result).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(result, preserve_index=False)
        msg = f"update_state() needs a table back, got {shown(result)}."
        raise MillpondError(msg + "\nFix: return a pyarrow.Table or a pandas DataFrame.")

    def _load(self) -> pa.Table | None:
        blob = self._context.pages.table(self._step.store)
        return None if blob is None else pa.ipc.open_stream(blob).read_all()

    def _save(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        kept = sink.getvalue()
        if kept.size > MOST_BYTES:
            msg = (
                f"update_state() gave a table of {kept.size:,} bytes for a key group; state keeps "
                f"tables of up to {MOST_BYTES:,} bytes.\n"
                "Fix: return fewer rows or columns, or divide the keys among more key groups."
            )
            raise ValueTypeError(msg)
        self._context.pages.put_table(self._step.store, kept.to_pybytes())


def _empty(schema: pa.Schema | None) -> pa.Table:
    return pa.table({}) if schema is None else schema.empty_table()


def _table(records: list[dict[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for record in records for name in record))
    try:
        return pa.table({name: pa.array([r.get(name) for r in records]) for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        msg = (
            f"the records of a batch do not make a table: {error}.\n"
            "Fix: give every record the same types before update_state()."
        )
        raise MillpondError(msg) from error


def _changed(rows: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {_as_equal(row) for row in old}
    return [row for row in rows if _as_equal(row) not in known]


def _as_equal(value: Any) -> Any:
    """Return something that can be hashed, and is the same for equal values and for any two NaN."""
    if isinstance(value, dict):
        return frozenset((name, _as_equal(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_as_equal(item) for item in value)
    return value if value == value else _NAN
