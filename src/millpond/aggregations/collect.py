"""`Collect`: all values, in the order of their times."""

from __future__ import annotations

from typing import Any

from millpond.aggregations.base import Aggregation
from millpond.column import field

__all__ = ["Collect", "Items"]


class Collect(Aggregation):
    """The list of all values in the order of their time, None among them.

    Values of one timestamp are in the order in which they came.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Collect()), [("ann", "b", 20), ("ann", "a", 10)])[-1]["x"]
    ['a', 'b']
    """

    is_columnar = True

    def start(self) -> list[tuple[int, Any]]:
        return []

    def add(self, state: list[tuple[int, Any]], value: Any, timestamp: int) -> list[Any]:
        state.append((timestamp, value if self.column is None else field(value, self.column)))
        return state

    def add_many(self, state: list[Any], found: list[Any], timestamps: list[int]) -> list[Any]:
        state.extend(zip(timestamps, found, strict=True))
        return state

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        earlier.extend(later)
        return earlier

    def result(self, state: list[Any]) -> list[Any]:
        if isinstance(state, Items):
            return list(state)
        return [value for _, value in sorted(state, key=_time)]

    def result_by_arrival(self, state: list[tuple[int, Any]]) -> list[Any]:
        return [value for _, value in state]


class Items(list[Any]):
    """What was collected, as a `result` of the user's is given it: values in their order."""


def _time(item: tuple[int, Any]) -> int:
    return item[0]
