"""Tables as the user asks for them: `app.table(...)`, `sdf.join_table(table)`, `table.join(other)`.

Takes the arguments of these methods, checks them, and makes steps. A join by the key is one step. A
join by a field moves the records to the row that they name, and gives them their key back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

from millpond.arguments.callsite import here
from millpond.arguments.duration import Duration, milliseconds
from millpond.arguments.joins import AsTable, Broadcast, ForeignKey, How, JoinKind, TwoTables
from millpond.arguments.user_functions import check_function, named
from millpond.errors import ConfigError, shown
from millpond.frame import StreamingDataFrame
from millpond.joined import (
    JoinedFrame,
    OnMerge,
    check_field,
    check_sides,
    check_word,
    join_step,
    joined,
    merger,
)
from millpond.program.graph import Graph
from millpond.program.key_types import check_key, check_meets, key_type
from millpond.program.steps import Read, Step

__all__ = ["Table", "as_table", "join_table"]

On = str | Callable[[Any], Any]

# How many copies of a table a broadcast join has. So many tasks can work on it.
COPIES = 16


class Table(StreamingDataFrame):
    """The last value of each key of a frame. A value of None deletes the row.

    As a frame it has the changes. Made by `Application.table()` or `StreamingDataFrame.as_table()`.
    """

    def __init__(
        self, graph: Graph, head: Step, ttl_ms: int | None, history_ms: int | None, name: str
    ) -> None:
        super().__init__(graph, head, ttl_ms)
        self._history_ms = history_ms
        self._name = name

    def join(
        self,
        other: Table,
        how: How = "inner",
        on_merge: OnMerge = "raise",
        name: str | None = None,
        *,
        on: On | None = None,
    ) -> Table:
        """Return the rows of two tables that belong together, as a table.

        Each change of either side gives the new row, or None where there is none any more.

        >>> from millpond.testing import LocalEngine, frame
        >>> rows = frame()
        >>> names = rows[rows.contains("name")].as_table(name="names")
        >>> towns = rows[rows.contains("town")].as_table(name="towns")
        >>> engine = LocalEngine(names.join(towns))
        >>> engine.feed([("ann", {"name": "Ann"}), ("ann", {"town": "Ulm"})])
        >>> engine.run()
        [{'name': 'Ann', 'town': 'Ulm'}]

        Args:
            other: The other table.
            how: "inner": where both have a row. "left", "right", "outer": also where only that
                side, or either, has one, with None for the other. By a field: "inner" or "left".
            on_merge: What a row of both is; see `join_interval`.
            name: The name under which rows are kept; by default those of the tables.
            on: By which field of this table, or function of its value, a row names the key of the
                other one. Default: both have the same key.
        """
        words: tuple[str, ...] = ("inner", "left", "right", "outer") if on is None else _SIDES
        check_word("how", how, words)
        if not isinstance(other, Table):
            raise ConfigError(_not_a_table(other, "join()", "towns.join(names)"))
        name = name or f"{self._name}-{other._name}"
        if on is None:
            frame = joined(self, other, TwoTables(how), on_merge, name)
            return Table(self._graph, frame._head, self._ttl_ms, None, name)
        return _join_by_field(self, other, how, on_merge, name, on)


_SIDES = ("inner", "left")


def as_table(frame: StreamingDataFrame, history: Duration | None, name: str | None) -> Table:
    """Return a frame as a table."""
    head = frame._head
    given = name or (head.source.name if isinstance(head, Read) else "table")
    own = given.replace("/", "-")
    history_ms = None if history is None else milliseconds(history, "history", least=0)
    return Table(
        frame._graph, head, frame._ttl_ms, history_ms, "table" if own == "default" else own
    )


def join_table(
    left: StreamingDataFrame,
    table: Any,
    on: On | None,
    how: Literal["inner", "left"],
    on_merge: OnMerge,
    name: str | None,
    wait_for_table: bool,
    broadcast: bool,
) -> JoinedFrame:
    """Return the frame of a join with a table."""
    if not isinstance(table, Table):
        raise ConfigError(_not_a_table(table, "join_table()", "orders.join_table(customers)"))
    if isinstance(left, Table):
        msg = f"a table is joined with a table by join(), not by join_table() ({here()})."
        raise ConfigError(f"{msg}\nFix: {left._name}.join({table._name}).")
    check_word("how", how, _SIDES)
    name = name or table._name
    if broadcast:
        if table._history_ms is not None:
            msg = f"a broadcast table has no history ({here()})."
            raise ConfigError(f"{msg}\nFix: leave out history, or broadcast=True.")
        return _join_copies(left, table, on, Broadcast(how, wait_for_table), on_merge, name)
    kind = AsTable(how, table._history_ms, wait_for_table)
    if on is None:
        return joined(left, table, kind, on_merge, name)
    field, merge = _field(on), merger(on_merge)
    check_field(on, table)
    moved = _with_key(left).group_by(
        named(lambda record: field(record[1]), _on_name(on)), name=_on_name(on)
    )
    return _given_back(moved, table, kind, lambda record, row: merge(record[1], row), name)


# --- records that go to the row they name, and back ---------------------------------------------


def _with_key(frame: StreamingDataFrame) -> StreamingDataFrame:
    """Return the records as (key, value): a key of its own to come back to."""
    carry = named(lambda value, key, timestamp, headers: (key, value), "with key")
    return frame.apply(carry, metadata=True)


def _given_back(
    moved: StreamingDataFrame,
    table: StreamingDataFrame,
    kind: JoinKind,
    merge: Callable[[Any, Any], Any],
    name: str,
) -> JoinedFrame:
    """Join records that begin with their own key, and give them that key back."""
    check_sides(moved, table)
    step = join_step(moved, table, kind, lambda record, row: (record[0], merge(record, row)), name)
    home = _home(JoinedFrame(moved._graph, step, moved._ttl_ms))
    return JoinedFrame(moved._graph, step, moved._ttl_ms, home._head, _late_value)


def _home(frame: StreamingDataFrame) -> StreamingDataFrame:
    back = frame.group_by(named(lambda record: record[0], "own key"), name="key")
    return back.apply(named(lambda record: record[-1], "value"))


def _late_value(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a late record with the value that the user knows."""
    if report["side"] == "right":
        return report
    return {**report, "value": report["value"][-1]}


def _join_copies(
    left: StreamingDataFrame,
    table: Table,
    on: On | None,
    kind: Broadcast,
    on_merge: OnMerge,
    name: str,
) -> JoinedFrame:
    merge = merger(on_merge)
    field = None if on is None else _field(on)
    check_field(on, table)
    meets = key_type(table._head)
    turns = count()

    def asking(value: Any, key: Any, timestamp: int, headers: Any) -> tuple[Any, Any, Any]:
        asked = key if field is None else field(value)
        check_meets(asked, meets)
        return key, asked, value

    def copied(value: Any, key: Any, timestamp: int, headers: Any) -> list[tuple[int, Any, Any]]:
        check_key(key)
        return [(number, key, value) for number in range(COPIES)]

    # Each record to the next copy: which one it meets makes no difference.
    dealt = left.apply(named(asking, "with key"), metadata=True).group_by(
        named(lambda record: next(turns) % COPIES, "copy"), name="copy"
    )
    copies = table.apply(named(copied, "copies"), expand=True, metadata=True)
    rows = copies.group_by(named(lambda row: row[0], "copy"), name="copy")
    return _given_back(dealt, rows, kind, lambda record, row: merge(record[2], row), name)


def _join_by_field(
    left: Table, named_table: Table, how: How, on_merge: OnMerge, name: str, on: On
) -> Table:
    """Join rows with the rows that they name: each change goes to the old and to the new one."""
    field, merge, meets = _field(on), merger(on_merge), key_type(named_table._head)
    check_field(on, named_table)

    def route(key: Any, change: tuple[Any, Any, int], before: Any) -> tuple[Any, Any]:
        mine, value, at = change
        if before is not None and at < before[1]:
            return [], before  # older than the row that is there
        sent = []
        if value is None:
            return [] if before is None else [(before[0], mine, None)], None
        asked = field(value)
        check_meets(asked, meets)
        if before is not None and before[0] != asked:
            sent.append((before[0], mine, None))
        return [*sent, (asked, mine, value)], (asked, at)

    carry = named(lambda value, key, timestamp, headers: (key, value, timestamp), "with key")
    changes = left.apply(carry, metadata=True)
    changes = changes.stateful_map(f"{name}-on", named(route, _on_name(on)))
    sent = changes.apply(named(lambda messages: messages, "to the rows"), expand=True)
    moved = sent.group_by(named(lambda message: message[0], _on_name(on)), name=_on_name(on))
    check_sides(moved, named_table)
    step = join_step(moved, named_table, ForeignKey(how), merge, name)
    home = _home(StreamingDataFrame(left._graph, step, left._ttl_ms))
    return Table(left._graph, home._head, left._ttl_ms, None, name)


def _field(on: On) -> Callable[[Any], Any]:
    if isinstance(on, str):
        return lambda value: value[on]
    check_function(on, 1, "on")
    return on


def _on_name(on: On) -> str:
    found = on if isinstance(on, str) else getattr(on, "__name__", "on")
    return "on" if found == "<lambda>" else found


def _not_a_table(given: Any, what: str, call: str) -> str:
    fix = "app.table(app.topic(...)), or as_table() of a frame"
    return f"{what} takes a table, got {shown(given)} ({here()}).\nFix: {call}, with {fix}."
