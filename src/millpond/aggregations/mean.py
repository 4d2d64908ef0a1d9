"""`Mean`: the exact sum of a field, divided once."""

from __future__ import annotations

from decimal import (
    Decimal,
)
from typing import Any

from millpond.aggregations.numeric import Numeric, context_of, ratio

__all__ = ["Mean"]


class Mean(Numeric):
    """The exact sum divided by the count, rounded once: a float, or a Decimal of Decimals.

    Over nothing it is None. Decimals are rounded to 28 digits, or as many as their sum has.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Mean("ms")), [{"ms": 1}, {"ms": None}, {"ms": 2}])[-1]["x"]
    1.5
    """

    def start(self) -> tuple[int, int]:
        return 0, 0

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        total, count = state
        if type(value) is int and type(total) is int:
            return total + value, count + 1
        return self._plus(total, self._exact(value)), count + 1

    def _take_many(self, state: Any, values: list[Any], kinds: set[type]) -> Any:
        total = self._exact_sum(values, kinds)
        return None if total is None else (self._plus(state[0], total), state[1] + len(values))

    def merge(self, earlier: Any, later: Any) -> Any:
        return self._plus(earlier[0], later[0]), earlier[1] + later[1]

    def result(self, state: Any) -> float | Decimal | None:
        total, count = state
        if not count:
            return None
        if type(total) is Decimal:
            return context_of(total).divide(total, count)
        top, bottom = ratio(total)
        return self._quotient(top, bottom * count)

    def plain(self, state: Any) -> Any:
        total, count = state
        return (self._quotient(*ratio(total)) if type(total) is tuple else total), count
