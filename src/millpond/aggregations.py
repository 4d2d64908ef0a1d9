"""What is kept of many records, and what is told about them: `Sum("amount")`.

An aggregation takes a state, the value of a record and its timestamp, and gives the next state;
from a state it gives a result. States hold only types that the codec of state keeps exactly. The
same records give the same result however they are cut into runs: sums are exact, not rounded on
the way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    InvalidOperation,
    Rounded,
)
from types import NoneType
from typing import Any
from uuid import UUID

from millpond.arguments.async_functions import refuse_async
from millpond.column import field
from millpond.errors import ConfigError, MillpondError, shown

__all__ = [
    "Aggregation",
    "Collect",
    "Count",
    "CountDistinct",
    "Earliest",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "StdDev",
    "Sum",
    "Variance",
    "no_add",
]

# An exact sum: of ints; of floats (numerator, n) for numerator / 2**n, where the numerator is odd
# or n is 0, so that equal sums are equal states; of Decimals.
Total = int | tuple[int, int] | Decimal


def _context(digits: int, least: int = MIN_EMIN, most: int = MAX_EMAX) -> Context:
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

_EXACT = _context(_MOST_DIGITS, -_MOST_DIGITS, _MOST_DIGITS)
_EXACT.traps[Rounded] = True
_EXACT.traps[InvalidOperation] = True
_UNROUNDED = _context(MAX_PREC)


class Aggregation:
    """What is kept of a run of records. Base of the built-in ones and of your own.

    Your own one says what to `add`, and if it likes where to `start` and what the `result` is.
    With a `merge`, records are brought together before they move.

    >>> class Longest(Aggregation):
    ...     def start(self):
    ...         return ""
    ...
    ...     def add(self, state, value, timestamp):
    ...         return value if len(value) > len(state) else state
    >>> longest = Longest()
    >>> state = longest.add(longest.start(), "pond", 0)
    >>> longest.result(longest.add(state, "mill", 1))
    'pond'
    """

    column: str | None = None

    is_columnar: bool = False
    """Whether nothing is asked of a value but what its column has."""

    is_commutative: bool = False
    """Whether neither the order of `add` nor that of the parts of `merge` matters, ties aside."""

    def __init__(self, column: str | None = None) -> None:
        if column is not None and (not isinstance(column, str) or not column):
            kind = type(self).__name__
            msg = (
                f"{kind} takes the name of a column or None, got {shown(column)}.\n"
                f'Fix: pass a text, as in {kind}("amount"), or nothing to take the whole value.'
            )
            raise ConfigError(msg)
        self.column = column

    def __repr__(self) -> str:
        return self.signature

    @property
    def is_mergeable(self) -> bool:
        """Whether the states of two runs of records can be made one."""
        return type(self).merge is not Aggregation.merge

    @property
    def signature(self) -> str:
        """What is kept, in a word. Who has the same signature can read the state.

        The name of the class, with the column if there is one. Override it where more decides
        what a state looks like.
        """
        return f"{type(self).__name__}({self.column or ''})"

    def start(self) -> Any:
        """Return the state before the first record: None, unless overridden."""
        return None

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        """Return the state after one more record.

        Args:
            state: What `start`, `add` or `merge` returned.
            value: The whole value of the record.
            timestamp: That of the record, in milliseconds.
        """
        raise MillpondError(no_add(self))

    def add_many(self, state: Any, found: list[Any], timestamps: list[int]) -> Any:
        """Return the state after many more records: the same as `add` for each, maybe faster.

        Args:
            state: What `start`, `add` or `merge` returned.
            found: The values, or what their column has if the aggregation `is_columnar`.
            timestamps: Those of the records.
        """
        for value, timestamp in zip(found, timestamps, strict=True):
            state = self.add(state, value, timestamp)
        return state

    def merge(self, earlier: Any, later: Any) -> Any:
        """Return the state of two runs of records, of which one arrived after the other."""
        msg = (
            f"{self.signature} cannot merge the states of two runs of records.\n"
            "Fix: give it a merge(earlier, later)."
        )
        raise MillpondError(msg)

    def result(self, state: Any) -> Any:
        """Return what is told about the records: the state, unless overridden."""
        return state

    def result_by_arrival(self, state: Any) -> Any:
        """Return the result where it is the order of arrival that counts, and not the time."""
        return self.result(state)

    # --- the names that Quix Streams has ----------------------------------------------------

    def initialize(self) -> Any:
        """Return the state before the first record; see `start`."""
        return self.start()

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        """Return the state after one more record; see `add`."""
        return self.add(old, new, timestamp)

    def plain(self, state: Any) -> Any:
        """Return a state as a method that a subclass overrides is given it: without exact sums."""
        return state

    def _label(self) -> str:
        """The call, as it is written in a program."""
        return f"{type(self).__name__}({'' if self.column is None else repr(self.column)})"


class _Builtin(Aggregation):
    """Looks up the column and leaves out None; the rest is in `_take`."""

    is_columnar = True

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        if self.column is not None:
            value = field(value, self.column)
        return state if value is None else self._take(state, value, timestamp)

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        raise NotImplementedError

    def add_many(self, state: Any, found: list[Any], timestamps: list[int]) -> Any:
        kinds = set(map(type, found))
        known = found
        if NoneType in kinds:
            known = [value for value in found if value is not None]
            kinds.discard(NoneType)
        try:
            taken = self._take_many(state, known, kinds)
        except Exception:  # one by one, it is said which and why
            taken = None
        if taken is not None:
            return taken
        for value, timestamp in zip(found, timestamps, strict=True):
            state = state if value is None else self._take(state, value, timestamp)
        return state

    def _take_many(self, state: Any, values: list[Any], kinds: set[type]) -> Any:
        """Return the state with all values, or None where they must be taken one by one."""
        return None


class Count(_Builtin):
    """The number of values that are not None."""

    is_commutative = True

    def start(self) -> int:
        return 0

    def _take(self, state: int, value: Any, timestamp: int) -> int:
        return state + 1

    def _take_many(self, state: int, values: list[Any], kinds: set[type]) -> int:
        return state + len(values)

    def merge(self, earlier: int, later: int) -> int:
        return earlier + later


class _Numeric(_Builtin):
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
        value = _plain(value)
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
            return self._of_decimals(_EXACT.add, one, other)
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
        return self._of_decimals(_EXACT.multiply, total, total)

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


class Sum(_Numeric):
    """The exact sum: an int of ints, a float as soon as there is a float among them.

    A sum of floats is rounded once, when it is told. A sum of Decimals, or of Decimals and ints,
    is a Decimal. Over nothing it is 0.
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
        return self._quotient(*_ratio(state)) if type(state) is tuple else state


class Mean(_Numeric):
    """The exact sum through the count, rounded once: a float, or a Decimal of Decimals.

    Over nothing it is None. Decimals are rounded to 28 digits, or as many as their sum has.
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

    def result(self, state: Any) -> Any:
        total, count = state
        if not count:
            return None
        if type(total) is Decimal:
            return _context_of(total).divide(total, count)
        top, bottom = _ratio(total)
        return self._quotient(top, bottom * count)

    def plain(self, state: Any) -> Any:
        total, count = state
        return (self._quotient(*_ratio(total)) if type(total) is tuple else total), count


class Variance(_Numeric):
    """The mean of the squared distances to the mean, computed exactly and rounded once.

    With `ddof=1` it is the estimate for all there is, if the values are a sample of it. None
    where there are not more than `ddof` values.
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

    def result(self, state: Any) -> Any:
        count, total, squares = state
        if count <= self.ddof:
            return None
        (a, b), (c, d) = _ratio(total), _ratio(squares)
        top = count * c * b * b - a * a * d
        bottom = count * (count - self.ddof) * b * b * d
        if type(total) is Decimal:
            return _context_of(total).divide(top, bottom)
        return self._quotient(top, bottom)


class StdDev(Variance):
    """The square root of the `Variance`."""

    def result(self, state: Any) -> Any:
        variance = super().result(state)
        if variance is None:
            return None
        if type(variance) is Decimal:
            return _context_of(state[1]).sqrt(variance)
        return math.sqrt(variance)


def _context_of(total: Decimal) -> Context:
    return _context(max(_DIGITS, len(total.as_tuple().digits)))


def _ratio(total: Total) -> tuple[int, int]:
    if isinstance(total, tuple):
        return total[0], 1 << total[1]
    return total.as_integer_ratio()


# Types of which any two values have an order, but for NaN and unlike time zones.
_ORDERED = frozenset({bool, float, Decimal, bytes, datetime, date, time, timedelta, UUID})


class _Ordered(_Builtin):
    """Compares values of one type, whatever type that is."""

    is_commutative = True

    def _checked(self, value: Any) -> Any:
        """Refuse what would give another result in another order."""
        try:
            if type(value) in _ORDERED and value == value:  # NaN is not
                return value
            value = _plain(value)
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


class First(_Builtin):
    """The value that came first, None left out."""

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return value if state is None else state

    def merge(self, earlier: Any, later: Any) -> Any:
        return later if earlier is None else earlier


class Last(_Builtin):
    """The value that came last, None left out."""

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return value

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier if later is None else later


class Earliest(_Builtin):
    """The value with the smallest timestamp, None left out.

    Of those with the same timestamp it is the one that came first; this alone depends on order.
    """

    is_commutative = True

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return (value, timestamp) if state is None or timestamp < state[1] else state

    def merge(self, earlier: Any, later: Any) -> Any:
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return later if later[1] < earlier[1] else earlier

    def result(self, state: Any) -> Any:
        return None if state is None else state[0]


class Latest(_Builtin):
    """The value with the largest timestamp, None left out.

    Of those with the same timestamp it is the one that came last; this alone depends on order.
    """

    is_commutative = True

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return (value, timestamp) if state is None or timestamp >= state[1] else state

    def merge(self, earlier: Any, later: Any) -> Any:
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return later if later[1] >= earlier[1] else earlier

    def result(self, state: Any) -> Any:
        return None if state is None else state[0]


class Reduce(Aggregation):
    """What your functions make of the values, None among them.

    A state of None is no state: after a reducer that returned None, the initializer begins anew.

    Args:
        reducer: Takes the state and a value, returns the next state.
        initializer: Takes the first value, returns the first state.
        merge: Takes the states of an earlier and a later run of records, returns that of both.
        merger: The same under the name that Quix Streams has.
    """

    def __init__(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
        *,
        merger: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__()
        merge = merger if merge is None else merge
        for name, given in (("reducer", reducer), ("initializer", initializer), ("merge", merge)):
            if not callable(given) and not (name == "merge" and given is None):
                msg = (
                    f"Reduce takes a function as {name}, got {shown(given)}.\n"
                    "Fix: write Reduce(lambda state, value: ..., lambda value: ...)."
                )
                raise ConfigError(msg)
            refuse_async(given, f"Reduce({name}=...)")
        self._reducer = reducer
        self._initializer = initializer
        self._merge = merge

    @property
    def is_mergeable(self) -> bool:
        return self._merge is not None

    @property
    def signature(self) -> str:
        return f"Reduce({_name_of(self._reducer)}, {_name_of(self._initializer)})"

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        return self._initializer(value) if state is None else self._reducer(state, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        if self._merge is None:
            msg = (
                f"{self.signature} cannot merge the states of two runs of records.\n"
                "Fix: give it a merge=, a function of two states."
            )
            raise MillpondError(msg)
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self._merge(earlier, later)


def _name_of(function: Callable[..., Any]) -> str:
    named = getattr(function, "func", function)  # that of a functools.partial
    return str(getattr(named, "__name__", type(named).__name__))


class Collect(Aggregation):
    """The list of all values in the order of their time, None among them.

    Values of one timestamp are in the order in which they came.
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


class CountDistinct(_Builtin):
    """The number of unlike values, None left out: exact up to a limit, then a close estimate.

    Above `exact_to` unlike values it keeps a HyperLogLog sketch of 4 KiB, whose estimate is
    rarely off by more than 3 % and depends neither on order nor on merging. Numbers are alike if
    they are equal, as for `drop_duplicates`: 1, 1.0, True and Decimal("1.0") are one, and "1" is
    another. Values of other types are alike if they are of one type and equal; of each type of
    number, any NaN is like any other.
    """

    is_commutative = True

    def __init__(self, column: str | None = None, exact_to: int = 1000) -> None:
        super().__init__(column)
        if type(exact_to) is not int or exact_to < 0:
            msg = (
                f"CountDistinct takes a number from 0 as exact_to, got {shown(exact_to)}.\n"
                'Fix: write how many values to keep exactly, as in CountDistinct("user", 1000).'
            )
            raise ConfigError(msg)
        self.exact_to = exact_to

    @property
    def signature(self) -> str:
        parts = (self.column, str(self.exact_to))
        return f"{type(self).__name__}({', '.join(filter(None, parts))})"

    def start(self) -> set[bytes]:
        return {_BY_VALUE}

    def _take(self, state: set[bytes] | bytes, value: Any, timestamp: int) -> set[bytes] | bytes:
        try:
            coded = _coded(value)
        except KeyError:
            raise self._uncoded(value) from None
        if isinstance(state, bytes):
            return _sketch_with(state, (coded,))
        state = _by_value(state)
        state.add(coded)
        return self._bounded(state)

    def merge(self, earlier: set[bytes] | bytes, later: set[bytes] | bytes) -> set[bytes] | bytes:
        if isinstance(earlier, bytes):
            if isinstance(later, bytes):
                return _sketch_of_both(earlier, later)
            return _sketch_with(earlier, _by_value(later) - {_BY_VALUE})
        if isinstance(later, bytes):
            return _sketch_with(later, _by_value(earlier) - {_BY_VALUE})
        earlier = _by_value(earlier)
        earlier |= _by_value(later)
        return self._bounded(earlier)

    def _bounded(self, state: set[bytes]) -> set[bytes] | bytes:
        return state if len(state) - 1 <= self.exact_to else _sketch_of(state - {_BY_VALUE})

    def result(self, state: set[bytes] | bytes) -> int:
        if not isinstance(state, bytes):
            return len(_by_value(state)) - 1
        # There is a sketch because there were more than the limit: never tell fewer.
        return max(_estimate(state), self.exact_to + 1)

    def _uncoded(self, value: Any) -> MillpondError:
        return MillpondError(
            f"{self._label()} cannot tell values of type {type(value).__name__} apart, or of "
            f"what is inside: {shown(value)}.\n"
            "Fix: make it text, a number or a tuple of such before, or name "
            f"{'a' if self.column is None else 'another'} column."
        )


# Registers of a sketch, as a power of two: 4096 bytes, and a standard error of 1.6 %.
_LG_K = 12


def _sketch_of(values: Iterable[bytes]) -> bytes:
    """Return the sketch of values, of which there is one at least.

    All registers are there from the beginning, and the sketch has been through a union: so it
    estimates from its registers alone, and equal sets of values have equal bytes.
    """
    hll = _sketches()
    sketch = hll.hll_sketch(_LG_K, hll.tgt_hll_type.HLL_8, True)
    for coded in values:
        sketch.update(coded.decode("latin-1"))
    return _union(sketch, sketch)


def _sketch_with(data: bytes, values: Iterable[bytes]) -> bytes:
    sketch = _sketches().hll_sketch.deserialize(data)
    for coded in values:
        sketch.update(coded.decode("latin-1"))
    return bytes(sketch.serialize_compact())


def _sketch_of_both(one: bytes, other: bytes) -> bytes:
    read = _sketches().hll_sketch.deserialize
    return _union(read(one), read(other))


def _union(one: Any, other: Any) -> bytes:
    hll = _sketches()
    union = hll.hll_union(_LG_K)
    union.update(one)
    union.update(other)
    return bytes(union.get_result(hll.tgt_hll_type.HLL_8).serialize_compact())


def _estimate(data: bytes) -> int:
    return round(float(_sketches().hll_sketch.deserialize(data).get_estimate()))


@functools.cache
def _sketches() -> Any:
    """Imported when first needed: it loads NumPy."""
    import datasketches

    return datasketches


def _coded(value: Any) -> bytes:
    """Return bytes that are equal for numbers, or values of one type, that are equal."""
    kind = type(value)
    if kind not in _CODERS:
        value = _plain(value)
        kind = type(value)
    return _CODERS[kind](value)


def _coded_items(mark: bytes, coded: Iterable[bytes]) -> bytes:
    return mark + b"".join(b"%d:%b" % (len(item), item) for item in coded)


def _coded_float(value: float) -> bytes:
    return b"i%x" % int(value) if value.is_integer() else b"f" + repr(value).encode()


def _coded_decimal(value: Decimal) -> bytes:
    """Return the code of the int or float that equals a Decimal, or else one of its own."""
    if value.is_nan():
        return b"Dnan"
    if not value:
        return b"i0"
    if value.is_finite() and abs(value.adjusted()) <= _FLOAT_DIGITS:
        if value == value.to_integral_value():
            return b"i%x" % int(value)
        if value == float(value):
            return _coded_float(float(value))
    return b"D" + str(_UNROUNDED.normalize(value)).encode()


# The largest power of ten of a float; beyond it a Decimal equals none.
_FLOAT_DIGITS = 307

# In a set of codes: they tell values apart, not types. No value has this code.
_BY_VALUE = b""


def _by_value(state: set[bytes]) -> set[bytes]:
    """Return a state; what version 0.1 wrote kept equal numbers of unlike types apart."""
    return state if _BY_VALUE in state else {_BY_VALUE, *map(_recoded, state)}


def _recoded(code: bytes) -> bytes:
    mark, rest = code[:1], code[1:]
    if mark == b"b":
        return b"i" + rest
    if mark == b"f":
        return _coded_float(float(rest))
    if mark == b"D":
        return _coded_decimal(Decimal(rest.decode()))
    if mark not in (b"[", b"(", b"{", b"<", b"="):
        return code
    items = []
    while rest:
        length, _, rest = rest.partition(b":")
        items.append(_recoded(rest[: int(length)]))
        rest = rest[int(length) :]
    return _coded_items(mark, items if mark in (b"[", b"(") else sorted(items))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _coded_datetime(value: datetime) -> bytes:
    if value.utcoffset() is None:
        return b"N" + value.replace(tzinfo=None).isoformat().encode()
    return b"A%d" % ((value - _EPOCH) // _MICROSECOND)  # one moment, in whatever time zone


# Written to state: a change here makes values unlike that were counted before.
_CODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda v: b"0",
    str: lambda v: b"s" + v.encode("utf-8", "surrogatepass"),
    int: lambda v: b"i%x" % v,
    bool: lambda v: b"i%d" % v,
    float: _coded_float,
    bytes: lambda v: b"y" + v,
    Decimal: _coded_decimal,
    datetime: _coded_datetime,
    date: lambda v: b"d" + v.isoformat().encode(),
    time: lambda v: b"t" + v.isoformat().encode(),
    timedelta: lambda v: b"e%d" % (v // _MICROSECOND),
    UUID: lambda v: b"u" + v.bytes,
    list: lambda v: _coded_items(b"[", map(_coded, v)),
    tuple: lambda v: _coded_items(b"(", map(_coded, v)),
    set: lambda v: _coded_items(b"{", sorted(map(_coded, v))),
    frozenset: lambda v: _coded_items(b"<", sorted(map(_coded, v))),
    dict: lambda v: _coded_items(b"=", sorted(_coded(pair) for pair in v.items())),
}


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as what Python has for it, and everything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def no_add(given: Aggregation) -> str:
    return (
        f"{type(given).__name__} does not say what to do with a record.\n"
        "Fix: give it an add(self, state, value, timestamp) that returns the next state."
    )
