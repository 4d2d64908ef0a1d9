"""`Count`: how many records."""

from __future__ import annotations

from typing import Any

from millpond.aggregations.base import Builtin

__all__ = ["Count"]


class Count(Builtin):
    """The number of values that are not None.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Count("paid")), [{"paid": 3}, {"paid": None}])[-1]["x"]
    1
    """

    is_commutative = True

    def start(self) -> int:
        return 0

    def _take(self, state: int, value: Any, timestamp: int) -> int:
        return state + 1

    def _take_many(self, state: int, values: list[Any], kinds: set[type]) -> int:
        return state + len(values)

    def merge(self, earlier: int, later: int) -> int:
        return earlier + later
