"""Numbers that are added exactly, whatever their order and how they are cut into batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    InvalidOperation,
    Rounded,
)
from typing import Any

from millpond.aggregations.base import Builtin, plain
from millpond.errors import MillpondError, shown

__all__ = ["EXACT", "Numeric", "Total", "context", "context_of", "ratio"]

# An exact sum: of ints; of floats (numerator, n) for numerator / 2**n, where the numerator is odd
# or n is 0, so that equal sums are equal states; of Decimals.
Total = int | tuple[int, int] | Decimal


def context(digits: int, least: int = MIN_EMIN, most: int = MAX_EMAX) -> Context:
    """Everything is given, so that a changed default of the process changes no result."""
    return Context(
        prec=digits,
        rounding=ROUND_HALF_EVEN,
        Emin=least,
        Emax=most,
        capitals=1,
        clamp=0,
        flags=[],
        traps=[],
    )


# Digits of an exact sum of Decimals: far above what is counted, far below what fills the memory.
_MOST_DIGITS = 10_000

# Digits of a quotient of Decimals, if its parts do not have more: Python's own default.
_DIGITS = 28

EXACT = context(_MOST_DIGITS, -_MOST_DIGITS, _MOST_DIGITS)
EXACT.traps[Rounded] = True
EXACT.traps[InvalidOperation] = True


class Numeric(Builtin):
    """Adds up numbers without rounding."""

    is_commutative = True

    def _exact(self, value: Any) -> Total:
        kind = type(value)
        if kind is int:
            return value  # type: ignore[no-any-return]
        if kind is float:
            try:
                numerator, denominator = value.as_integer_ratio()
            except (ValueError, OverflowError):  # NaN, infinity
                raise self._not_finite(value) from None
            return numerator, denominator.bit_length() - 1
        if kind is Decimal:
            if not value.is_finite():
                raise self._not_finite(value)
            return value  # type: ignore[no-any-return]
        return self._exact(self._number(value))

    def _exact_sum(self, values: list[Any], kinds: set[type]) -> Any:
        """Return the exact sum of ints or of floats; None where it takes more care."""
        if kinds <= {int}:
            return sum(values)
        if kinds != {float}:
            return None
        total, rest = (0, 0), values
        while part := math.fsum(rest):  # rounded once; what was lost is summed up next
            numerator, denominator = part.as_integer_ratio()
            total = _sum_of_floats(total, (numerator, denominator.bit_length() - 1))
            rest = [*rest, -part]
        return total

    def _number(self, value: Any) -> int | float | Decimal:
        """Numbers of other types: bool, NumPy's, subclasses."""
        value = plain(value)
        for kind in (int, float, Decimal):
            if isinstance(value, kind):
                return kind(value)
        fix = "convert it before, or name another column"
        if self.column is None:
            fix = f'convert it before, or name a column, as in {type(self).__name__}("amount")'
        msg = (
            f"{self._label()} needs numbers, got {type(value).__name__}: {shown(value)}.\n"
            f"Fix: {fix}."
        )
        raise MillpondError(msg)

    def _plus(self, one: Any, other: Any) -> Total:
        if type(one) is tuple:
            if type(other) is tuple:
                return _sum_of_floats(one, other)
            if type(other) is int:
                return _sum_of_floats(one, (other, 0))
        elif type(other) is not tuple:
            if type(one) is int and type(other) is int:
                return one + other
            if type(one) is float:  # from a method that a subclass overrides
                return self._plus(self._exact(one), other)
            return self._of_decimals(EXACT.add, one, other)
        elif type(one) is int:
            return _sum_of_floats((one, 0), other)
        elif type(one) is float:
            return self._plus(self._exact(one), other)
        msg = (
            f"{self._label()} got both floats and Decimals, which cannot be added exactly.\n"
            "Fix: convert them before, so that all are floats or all are Decimals."
        )
        raise MillpondError(msg)

    def _squared(self, total: Any) -> Total:
        if type(total) is tuple:
            numerator, shift = total
            return numerator * numerator, 2 * shift
        if type(total) is int:
            return total * total
        return self._of_decimals(EXACT.multiply, total, total)

    def _of_decimals(self, operation: Callable[[Any, Any], Decimal], *numbers: Any) -> Decimal:
        try:
            return operation(*numbers)
        except DecimalException:
            msg = (
                f"{self._label()} got Decimals whose exact sum has more than {_MOST_DIGITS} "
                "digits.\nFix: round them before, for example with quantize()."
            )
            raise MillpondError(msg) from None

    def _quotient(self, top: int, bottom: int) -> float:
        try:
            return top / bottom  # of ints: rounded once, correctly
        except OverflowError:
            msg = (
                f"the result of {self._label()} is too large for a float.\n"
                "Fix: scale the values down before, or give Decimals."
            )
            raise MillpondError(msg) from None

    def _not_finite(self, value: Any) -> MillpondError:
        return MillpondError(
            f"{self._label()} got {value}, which cannot be added to other numbers.\n"
            "Fix: filter it out before, or make it None, which is left out."
        )


def _sum_of_floats(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    top, shift = one
    its_top, its_shift = other
    if shift > its_shift:  # an odd numerator and an even one: stays odd
        return top + (its_top << shift - its_shift), shift
    if shift < its_shift:
        return (top << its_shift - shift) + its_top, its_shift
    top += its_top
    if not shift or top & 1:
        return top, shift
    spare = min(shift, (top & -top).bit_length() - 1) if top else shift
    return top >> spare, shift - spare


def context_of(total: Decimal) -> Context:
    return context(max(_DIGITS, len(total.as_tuple().digits)))


def ratio(total: Total) -> tuple[int, int]:
    if isinstance(total, tuple):
        return total[0], 1 << total[1]
    return total.as_integer_ratio()
