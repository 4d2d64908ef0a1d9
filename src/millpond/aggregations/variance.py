"""`Variance` and `StdDev`: how far numbers are spread, from exact sums."""

from __future__ import annotations

import math
from decimal import (
    Decimal,
)
from typing import Any

from millpond.aggregations.numeric import Numeric, context_of, ratio
from millpond.errors import ConfigError, shown

__all__ = ["StdDev", "Variance"]


class Variance(Numeric):
    """The mean of the squared distances to the mean, computed exactly and rounded once.

    With `ddof=1` it is the estimate for all there is, if the values are a sample of it. None
    where there are not more than `ddof` values.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Variance()), [1, 2, 3, 4])[-1]["x"]
    1.25
    """

    def __init__(self, column: str | None = None, ddof: int = 0) -> None:
        super().__init__(column)
        if type(ddof) is not int or ddof not in (0, 1):
            msg = (
                f"{type(self).__name__} takes ddof=0 or ddof=1, got {shown(ddof)}.\n"
                "Fix: use 0 for all there is, 1 for a sample of it."
            )
            raise ConfigError(msg)
        self.ddof = ddof

    def start(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        count, total, squares = state
        number = self._exact(value)
        return count + 1, self._plus(total, number), self._plus(squares, self._squared(number))

    def merge(self, earlier: Any, later: Any) -> Any:
        return (
            earlier[0] + later[0],
            self._plus(earlier[1], later[1]),
            self._plus(earlier[2], later[2]),
        )

    def result(self, state: Any) -> float | Decimal | None:
        count, total, squares = state
        if count <= self.ddof:
            return None
        (a, b), (c, d) = ratio(total), ratio(squares)
        top = count * c * b * b - a * a * d
        bottom = count * (count - self.ddof) * b * b * d
        if type(total) is Decimal:
            return context_of(total).divide(top, bottom)
        return self._quotient(top, bottom)


class StdDev(Variance):
    """The square root of the `Variance`.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=StdDev()), [2, 6])[-1]["x"]
    2.0
    """

    def result(self, state: Any) -> float | Decimal | None:
        variance = super().result(state)
        if variance is None:
            return None
        if type(variance) is Decimal:
            return context_of(state[1]).sqrt(variance)
        return math.sqrt(variance)
