"""`Min` and `Max`: the smallest and the largest value of a field."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import (
    Decimal,
)
from typing import Any
from uuid import UUID

from millpond.aggregations.base import Builtin, plain
from millpond.errors import MillpondError, shown

__all__ = ["Max", "Min"]

# Types of which any two values have an order, but for NaN and unlike time zones.
_ORDERED = frozenset({bool, float, Decimal, bytes, datetime, date, time, timedelta, UUID})


class _Ordered(Builtin):
    """Compares values of one type, whatever type that is."""

    is_commutative = True

    def _checked(self, value: Any) -> Any:
        """Refuse what would give another result in another order."""
        try:
            if type(value) in _ORDERED and value == value:  # NaN is not
                return value
            value = plain(value)
            has_order = not _is_unordered(value) and not value < value
        except (TypeError, ValueError, ArithmeticError):  # has no <, or none that says yes or no
            has_order = False
        if has_order:
            return value
        msg = (
            f"{self._label()} got {shown(value)}, which has no place in an order.\n"
            "Fix: filter it out before, make it None, which is left out, or name "
            f"{'a' if self.column is None else 'another'} column."
        )
        raise MillpondError(msg)

    def _take_many(self, state: Any, values: list[Any], kinds: set[type]) -> Any:
        if kinds == {int} or (kinds == {float} and not math.isnan(sum(values))):
            return self._take(state, self._of(values), 0)
        return None

    def _of(self, values: list[Any]) -> Any:
        raise NotImplementedError

    def _unlike(self, state: Any, value: Any) -> MillpondError:
        return MillpondError(
            f"{self._label()} cannot compare {shown(value)} ({type(value).__name__}) with "
            f"{shown(state)} ({type(state).__name__}).\n"
            "Fix: convert the values before, so that any two of them can be compared."
        )

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier if later is None else self._take(earlier, later, 0)


class Min(_Ordered):
    """The smallest value, or None if there was none.

    Of equal values of unlike type, such as 1 and 1.0, it is the one that came first.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Min("ms")), [{"ms": 7}, {"ms": 2}])[-1]["x"]
    2
    """

    def _of(self, values: list[Any]) -> Any:
        return min(values)

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        kind = type(value)
        if kind is not int and kind is not str:
            value = self._checked(value)
        try:
            return value if state is None or value < state else state
        except TypeError:
            raise self._unlike(state, value) from None


class Max(_Ordered):
    """The largest value, or None if there was none.

    Of equal values of unlike type, such as 1 and 1.0, it is the one that came first.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Max("ms")), [{"ms": 7}, {"ms": 2}])[-1]["x"]
    7
    """

    def _of(self, values: list[Any]) -> Any:
        return max(values)

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        kind = type(value)
        if kind is not int and kind is not str:
            value = self._checked(value)
        try:
            return value if state is None or value > state else state
        except TypeError:
            raise self._unlike(state, value) from None


def _is_unordered(value: Any) -> bool:
    """NaN, or a set: neither before nor after others, nor equal to them."""
    if isinstance(value, tuple | list):
        return any(map(_is_unordered, value))
    return isinstance(value, set | frozenset) or bool(value != value)
