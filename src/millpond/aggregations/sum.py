"""`Sum`: the exact sum of a field."""

from __future__ import annotations

from typing import Any

from millpond.aggregations.numeric import Numeric, ratio

__all__ = ["Sum"]


class Sum(Numeric):
    """The exact sum: an int of ints, a float as soon as there is a float among them.

    A sum of floats is rounded once, in the result. A sum of Decimals, or of Decimals and ints,
    is a Decimal. Over nothing it is 0.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Sum()), [0.1, 0.2, 0.3, -0.3, -0.2])[-1]["x"]
    0.1
    """

    def start(self) -> int:
        return 0

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        if type(value) is int and type(state) is int:
            return state + value
        return self._plus(state, self._exact(value))

    def _take_many(self, state: Any, values: list[Any], kinds: set[type]) -> Any:
        total = self._exact_sum(values, kinds)
        return None if total is None else self._plus(state, total)

    def merge(self, earlier: Any, later: Any) -> Any:
        return self._plus(earlier, later)

    def result(self, state: Any) -> Any:
        return self.plain(state)

    def plain(self, state: Any) -> Any:
        return self._quotient(*ratio(state)) if type(state) is tuple else state
