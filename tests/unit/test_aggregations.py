import functools
import hashlib
import math
import pickle
import statistics
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, getcontext, localcontext
from enum import Enum, IntEnum
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import aggregations
from millpond.aggregations import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    StdDev,
    Sum,
    Variance,
)
from millpond.aggregations.user_defined import as_aggregation
from millpond.errors import ConfigError, MillpondError
from millpond.state.codec import Codec

CODEC = Codec()


def state_of(aggregation, values, timestamps=None):
    """The state after the values, at timestamps 0, 1, 2, ... by default."""
    state = aggregation.start()
    for value, timestamp in zip(values, timestamps or range(len(values)), strict=True):
        state = aggregation.add(state, value, timestamp)
    return state


def outcome(aggregation, values, timestamps=None):
    return aggregation.result(state_of(aggregation, values, timestamps))


def same(one, other):
    """Equal, and of one type."""
    return type(one) is type(other) and one == other


def concatenated(state, value):
    return f"{state}{value}"


def joined(earlier, later):
    return earlier + later


class Longest(Aggregation):
    """One of the user's, with all there is."""

    def start(self):
        return ""

    def add(self, state, value, timestamp):
        return value if len(value) > len(state) else state

    def merge(self, earlier, later):
        return later if len(later) > len(earlier) else earlier

    def result(self, state):
        return len(state)


class OnlyAdds(Aggregation):
    def add(self, state, value, timestamp):
        return (state or 0) + value


class NeverAdds(Aggregation):
    pass


class QuixPower:
    """As it is written for Quix Streams."""

    def __init__(self, column=None):
        self.column = column

    def initialize(self):
        return 1

    def agg(self, old, new, timestamp):
        return old * (new if self.column is None else new[self.column])

    def result(self, value):
        return value


class QuixNamed(QuixPower):
    state_suffix = "Power/v2"


class Alike:
    """Has the methods, and is not derived from anything."""

    is_commutative = True

    def start(self):
        return 0

    def add(self, state, value, timestamp):
        return state + value

    def result(self, state):
        return state


class AlikeWithMerge(Alike):
    signature = "Alike v2"

    def merge(self, earlier, later):
        return earlier + later


# --- what Quix Streams says -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregation", "values", "expected"),
    [
        (Sum(), [1, 2], 3),
        (Sum(), [0], 0),
        (Sum(), [], 0),
        (Sum(), [1, None, 2], 3),
        (Sum(), [None], 0),
        (Sum("foo"), [{"foo": 1}, {"foo": 2}], 3),
        (Sum("foo"), [{"foo": 1}, {"foo": None}], 1),
        (Count(), [1, "2", None], 2),
        (Count(), [1, "2", object()], 3),
        (Count("foo"), [{"foo": 1}, {"foo": 2}, {"foo": 3}], 3),
        (Count("foo"), [{"foo": 1}, {"foo": None}, {"foo": 3}], 2),
        (Mean(), [1, 2], 1.5),
        (Mean(), [0], 0.0),
        (Mean(), [1, None, 2], 1.5),
        (Mean(), [None], None),
        (Mean(), [], None),
        (Mean("foo"), [{"foo": 1}, {"foo": 2}], 1.5),
        (Mean("foo"), [{"foo": 1}, {"foo": None}], 1.0),
        (Reduce(concatenated, str), ["A", "B", "C"], "ABC"),
        (Reduce(concatenated, str), [], None),
        (Max(), [3, 1, 2], 3),
        (Max(), [3, None, 2], 3),
        (Max(), [None, 3, 2], 3),
        (Max(), [None], None),
        (Max("foo"), [{"foo": 3}, {"foo": 1}], 3),
        (Max("foo"), [{"foo": 3}, {"foo": None}], 3),
        (Min(), [3, 1, 2], 1),
        (Min(), [3, None, 2], 2),
        (Min(), [None, 3, 2], 2),
        (Min(), [None], None),
        (Min("foo"), [{"foo": 3}, {"foo": 1}], 1),
        (Min("foo"), [{"foo": 3}, {"foo": None}], 3),
        (Collect(), [], []),
        (Collect(), [0, 1, None, 0], [0, 1, None, 0]),
        (Collect("foo"), [{"foo": 1}, {"foo": None}], [1, None]),
        (First(), [None, 1, 2], 1),
        (Last(), [1, 2, None], 2),
        (First(), [], None),
        (Last(), [], None),
        (Earliest(), [], None),
        (Latest(), [], None),
        (CountDistinct(), [], 0),
        (CountDistinct(), [None, "a", "a", "b"], 2),
        (Variance(), [], None),
        (StdDev(), [None], None),
    ],
)
def test_values_give_the_result(aggregation, values, expected):
    assert same(outcome(aggregation, values), expected)


@pytest.mark.parametrize(
    ("aggregation", "records", "expected"),
    [
        (First(), [(1, 1), (2, 2), (3, 3)], 1),
        (First(), [(1, 3), (2, 2), (3, 1)], 1),
        (First("foo"), [({"foo": 1}, 3), ({"foo": 2}, 2)], 1),
        (First("foo"), [({"foo": None}, 3), ({"foo": 2}, 2)], 2),
        (Last(), [(1, 1), (2, 2), (3, 3)], 3),
        (Last(), [(1, 3), (2, 2), (3, 1)], 3),
        (Last("foo"), [({"foo": 1}, 3), ({"foo": None}, 2)], 1),
        (Earliest(), [(1, 1), (2, 2), (3, 3)], 1),
        (Earliest(), [(1, 3), (2, 2), (3, 1)], 3),
        (Earliest(), [(1, 1), (2, 1), (3, 1)], 1),
        (Earliest("foo"), [({"foo": 1}, 3), ({"foo": 2}, 2), ({"foo": None}, 1)], 2),
        (Latest(), [(1, 1), (2, 2), (3, 3)], 3),
        (Latest(), [(1, 3), (2, 2), (3, 1)], 1),
        (Latest(), [(1, 1), (2, 1), (3, 1)], 3),
        (Latest("foo"), [({"foo": 1}, 1), ({"foo": 2}, 2), ({"foo": None}, 3)], 2),
    ],
)
def test_time_and_order_decide(aggregation, records, expected):
    values, timestamps = zip(*records, strict=True)

    assert outcome(aggregation, values, timestamps) == expected


def test_a_state_of_none_lets_the_initializer_begin_again():
    aggregation = Reduce(lambda state, value: None if value == 0 else state + value, lambda v: v)

    assert outcome(aggregation, [1, 2, 0, 5, 6]) == 11


def test_the_initializer_and_the_reducer_are_given_none_too():
    assert outcome(Reduce(concatenated, str), [None, 1, None]) == "None1None"


# --- columns --------------------------------------------------------------------------------

WITH_COLUMN = [
    Count, Sum, Mean, Min, Max, First, Last, Earliest, Latest, Collect, CountDistinct, Variance,
    StdDev,
]  # fmt: skip


@pytest.mark.parametrize("kind", WITH_COLUMN)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"bar": 1}, "no field 'foo'; it has ['bar']"),
        (5, "asked of a value of type int"),
        (None, "asked of a value of type NoneType"),
        ([1], "asked of a value of type list"),
    ],
)
def test_a_missing_column_is_an_error(kind, value, text):
    aggregation = kind("foo")

    with pytest.raises(MillpondError) as caught:
        aggregation.add(aggregation.start(), value, 0)

    assert text in str(caught.value)
    assert "Fix:" in str(caught.value)


@pytest.mark.parametrize("kind", WITH_COLUMN)
@pytest.mark.parametrize("column", [5, "", b"foo", ["foo"]])
def test_a_column_is_a_text_or_none(kind, column):
    with pytest.raises(ConfigError) as caught:
        kind(column)

    assert f"{kind.__name__} takes the name of a column or None, got {column!r}" in str(
        caught.value
    )
    assert f'Fix: pass a text, as in {kind.__name__}("amount")' in str(caught.value)


# --- sums are exact -------------------------------------------------------------------------

FLOATS = st.floats(-1e300, 1e300, allow_nan=False)
INTS = st.integers(-(2**70), 2**70)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.builds(
    lambda digits, exponent: Decimal((0, (digits,), exponent)),
    st.integers(0, 9),
    st.integers(-40, 40),
)
NUMBERS = st.one_of(
    st.lists(INTS | st.booleans() | st.none()),
    st.lists(FLOATS | INTS | st.booleans() | st.none()),
    st.lists(DECIMALS | INTS | st.none()),
)


def test_the_sum_of_ints_is_an_int_of_any_size():
    assert same(outcome(Sum(), [2**70, 1, True]), 2**70 + 2)


def test_a_float_makes_the_sum_a_float_wherever_it_comes():
    assert same(outcome(Sum(), [1, 2.0]), 3.0)
    assert same(outcome(Sum(), [2.0, 1]), 3.0)
    assert same(outcome(Sum(), [-0.0]), 0.0)


def test_the_sum_of_decimals_is_an_exact_decimal_whatever_the_context():
    with localcontext() as context:
        context.prec = 3
        total = outcome(Sum(), [Decimal("123456.789"), 1, Decimal("0.0001")])

    assert same(total, Decimal("123457.7891"))


def test_floats_add_up_without_rounding_on_the_way():
    assert outcome(Sum(), [1e16, 1.0, -1e16]) == 1.0
    assert outcome(Sum(), [0.1] * 10) == math.fsum([0.1] * 10)
    assert outcome(Sum(), [2**53, 0.5, 0.5]) == float(2**53 + 1)
    assert outcome(Mean(), [1e308, 1e308]) == 1e308


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.bool_(True), 1),
        (np.float64(0.1), 0.1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.array(3), 3),
        (IntEnum("Level", {"LOW": 3}).LOW, 3),
        (type("Money", (Decimal,), {})("1.5"), Decimal("1.5")),
        (type("Meters", (float,), {})(1.5), 1.5),
    ],
)
def test_numbers_of_other_types_are_taken_as_numbers_of_python(value, expected):
    assert same(outcome(Sum(), [value]), expected)
    assert same(CODEC.decode(CODEC.encode(state_of(Mean(), [value])))[1], 1)


@given(st.lists(FLOATS))
def test_a_sum_of_floats_is_that_of_fsum(values):
    assert outcome(Sum(), values) == math.fsum(values)


@given(NUMBERS)
def test_a_sum_is_the_rounded_exact_sum(values):
    numbers = [value for value in values if value is not None]
    exact = sum(map(Fraction, numbers), Fraction())
    kinds = {type(number) for number in numbers}

    total = outcome(Sum(), values)

    if float in kinds:
        assert same(total, exact.numerator / exact.denominator)
    else:
        assert type(total) is (Decimal if Decimal in kinds else int)
        assert Fraction(total) == exact


@given(st.lists(st.one_of(FLOATS, INTS), min_size=1))
def test_a_mean_is_the_rounded_exact_mean(values):
    exact = sum(map(Fraction, values), Fraction()) / len(values)

    assert same(outcome(Mean(), values), exact.numerator / exact.denominator)


def test_the_mean_of_decimals_is_a_decimal():
    assert same(outcome(Mean(), [Decimal("1.10"), Decimal("1.20"), 1]), Decimal("1.10"))
    assert outcome(Mean(), [Decimal(1), Decimal(1), Decimal(0)]) == Decimal("0." + "6" * 27 + "7")
    assert outcome(Mean(), [Decimal("1" * 40)]) == Decimal("1" * 40)


@given(st.lists(st.floats(-1e150, 1e150) | st.integers(-(2**70), 2**70)), st.sampled_from([0, 1]))
def test_a_variance_is_the_rounded_exact_variance(values, ddof):
    numbers = list(map(Fraction, values))

    variance = outcome(Variance(ddof=ddof), values)
    deviation = outcome(StdDev(ddof=ddof), values)

    if len(values) <= ddof:
        assert variance is None
        assert deviation is None
    else:
        mean = sum(numbers, Fraction()) / len(numbers)
        exact = sum(((n - mean) ** 2 for n in numbers), Fraction()) / (len(numbers) - ddof)
        assert same(variance, exact.numerator / exact.denominator)
        assert same(deviation, math.sqrt(variance))


def test_the_variance_of_decimals_is_a_decimal():
    values = [Decimal("0.1"), Decimal("0.2"), Decimal("0.4")]

    assert same(outcome(Variance("a", 1), [{"a": v} for v in values]), statistics.variance(values))
    assert same(outcome(StdDev(ddof=1), values), statistics.variance(values).sqrt())
    assert same(outcome(StdDev(), [Decimal(2), Decimal(4)]), Decimal(1))


def test_equal_sums_have_equal_states():
    assert state_of(Sum(), [0.5, 0.25, 0.25]) == state_of(Sum(), [1.0]) == (1, 0)
    assert state_of(Sum(), [0.1, -0.1]) == (0, 0)
    assert state_of(Sum(), [5e-324, 1e300, -1e300]) == state_of(Sum(), [5e-324]) == (1, 1074)


def test_a_changed_decimal_context_changes_no_result():
    values = [Decimal(1), Decimal(1), Decimal(0)]
    expected = outcome(Mean(), values), outcome(StdDev(), values)

    with localcontext() as context:
        context.prec = 2

        assert (outcome(Mean(), values), outcome(StdDev(), values)) == expected
    assert getcontext().prec == 28


# --- what numbers cannot be -----------------------------------------------------------------

NUMERIC = [Sum, Mean, Variance, StdDev]
NOT_FINITE = [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("Infinity"), np.float64("nan")]


@pytest.mark.parametrize("kind", NUMERIC)
@pytest.mark.parametrize("value", NOT_FINITE, ids=repr)
def test_what_is_not_finite_is_refused(kind, value):
    with pytest.raises(MillpondError) as caught:
        outcome(kind("amount"), [{"amount": 1}, {"amount": value}])

    assert f"{kind.__name__}('amount') got {value}, which cannot be added" in str(caught.value)
    assert "Fix: filter it out before, or make it None" in str(caught.value)


@pytest.mark.parametrize("kind", NUMERIC)
@pytest.mark.parametrize(
    "value", ["12", b"1", [1], 1j, Fraction(1, 2), np.array([1, 2]), np.str_("1")]
)
def test_what_is_no_number_is_refused(kind, value):
    with pytest.raises(MillpondError) as caught:
        outcome(kind("amount"), [{"amount": value}])

    assert f"{kind.__name__}('amount') needs numbers, got " in str(caught.value)
    assert "Fix: convert it before, or name another column." in str(caught.value)


def test_a_forgotten_column_is_hinted_at():
    with pytest.raises(MillpondError) as caught:
        outcome(Sum(), [{"amount": 1}])

    assert "Sum() needs numbers, got dict: {'amount': 1}." in str(caught.value)
    assert 'Fix: convert it before, or name a column, as in Sum("amount").' in str(caught.value)


@pytest.mark.parametrize("kind", NUMERIC)
@pytest.mark.parametrize("values", [[1.5, Decimal(1)], [Decimal(1), 1.5], [1, 1.5, Decimal(1)]])
def test_floats_and_decimals_do_not_mix(kind, values):
    aggregation = kind("amount")

    with pytest.raises(MillpondError) as caught:
        outcome(aggregation, [{"amount": value} for value in values])

    assert f"{kind.__name__}('amount') got both floats and Decimals" in str(caught.value)
    assert "Fix: convert them before" in str(caught.value)


def test_states_of_floats_and_of_decimals_do_not_merge():
    with pytest.raises(MillpondError, match=r"Sum\(\) got both floats and Decimals(.|\n)*Fix:"):
        Sum().merge(state_of(Sum(), [1.5]), state_of(Sum(), [Decimal(1)]))


@pytest.mark.parametrize("kind", NUMERIC)
@pytest.mark.parametrize("values", [["1E+9000", "1E-9000"], ["1E-999999"], ["1E+999999"]])
def test_decimals_of_too_many_digits_are_refused(kind, values):
    with pytest.raises(MillpondError) as caught:
        outcome(kind(), list(map(Decimal, values)))

    assert f"{kind.__name__}() got Decimals whose exact sum has more than 10000 digits." in str(
        caught.value
    )
    assert "Fix: round them before" in str(caught.value)


@pytest.mark.parametrize(
    ("aggregation", "values"),
    [
        (Sum(), [1e308, 1e308]),
        (Mean(), [10**400]),
        (Variance(), [1e200, 0]),
        (StdDev(), [1e200, 0]),
    ],
)
def test_a_result_too_large_for_a_float_is_an_error(aggregation, values):
    state = state_of(aggregation, values)

    with pytest.raises(MillpondError) as caught:
        aggregation.result(state)

    assert f"the result of {aggregation!r} is too large for a float." in str(caught.value)
    assert "Fix: scale the values down" in str(caught.value)


def test_a_sum_that_was_too_large_may_come_back():
    assert outcome(Sum(), [1e308, 1e308, -1e308]) == 1e308


@pytest.mark.parametrize("kind", [Variance, StdDev])
@pytest.mark.parametrize("ddof", [2, -1, 1.0, True, None])
def test_ddof_is_0_or_1(kind, ddof):
    with pytest.raises(ConfigError) as caught:
        kind("amount", ddof=ddof)

    assert f"{kind.__name__} takes ddof=0 or ddof=1, got {ddof!r}" in str(caught.value)
    assert "Fix: use 0 for all there is" in str(caught.value)


# --- the smallest and the largest -----------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [2, 1, 3],
        [2.5, 1, 3],
        ["b", "a", "c"],
        [b"b", b"a", b"c"],
        [True, False, True],
        [Decimal(2), 1.5, 3],
        [(2, None), (1, "a"), (3, 1.5)],
        [[2], [1], [3]],
        [datetime(2024, 1, 2), datetime(2024, 1, 1), datetime(2024, 1, 3)],
        [date(2024, 1, 2), date(2024, 1, 1), date(2024, 1, 3)],
        [timedelta(2), timedelta(1), timedelta(3)],
        [UUID(int=2), UUID(int=1), UUID(int=3)],
        [math.inf, -math.inf, 0.0],
    ],
)
def test_min_and_max_are_those_of_python(values):
    assert same(outcome(Min(), values), min(values))
    assert same(outcome(Max(), values), max(values))


@pytest.mark.parametrize("kind", [Min, Max])
@pytest.mark.parametrize("values", [[1, 1.0], [1.0, 1], [True, 1], [Decimal("1.0"), 1]])
def test_of_equal_values_of_unlike_type_the_first_stays(kind, values):
    aggregation = kind()

    assert outcome(aggregation, values) is values[0]
    assert aggregation.merge(values[0], values[1]) is values[0]


@pytest.mark.parametrize("kind", [Min, Max])
def test_numbers_of_numpy_become_numbers_of_python(kind):
    assert same(outcome(kind(), [np.float64(1.5)]), 1.5)
    assert same(outcome(kind(), [np.int64(1)]), 1)


@pytest.mark.parametrize("kind", [Min, Max])
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        Decimal("NaN"),
        Decimal("sNaN"),
        np.float64("nan"),
        (1, math.nan),
        {1},
        frozenset({1}),
        [(1, {2})],
        {"amount": 1},
        pytest.param(object(), id="object()"),
        1j,
        np.array([1, 2]),
    ],
    ids=repr,
)
def test_what_has_no_order_is_refused(kind, value):
    with pytest.raises(MillpondError) as caught:
        outcome(kind("amount"), [{"amount": value}])
    with pytest.raises(MillpondError, match="or name a column"):
        outcome(kind(), [value])

    assert f"{kind.__name__}('amount') got " in str(caught.value)
    assert "which has no place in an order.\nFix: filter it out before" in str(caught.value)


@pytest.mark.parametrize("kind", [Min, Max])
@pytest.mark.parametrize(
    "values", [[1, "a"], ["a", 1], [datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)]]
)
def test_what_cannot_be_compared_is_refused(kind, values):
    aggregation = kind("amount")
    expected = f"{kind.__name__}('amount') cannot compare {values[1]!r} ({type(values[1]).__name__}"

    with pytest.raises(MillpondError) as added:
        outcome(aggregation, [{"amount": value} for value in values])
    with pytest.raises(MillpondError) as merged:
        aggregation.merge(*values)

    assert expected in str(added.value)
    assert "Fix: convert the values before" in str(added.value)
    assert str(merged.value) == str(added.value)


# --- collecting and reducing ----------------------------------------------------------------


def test_what_was_reported_does_not_grow_with_the_state():
    aggregation = Collect()
    state = state_of(aggregation, [1, 2])

    result = aggregation.result(state)
    aggregation.add(state, 3, 0)

    assert result == [1, 2]


def test_reduce_merges_only_with_a_merger():
    without, with_merge = Reduce(concatenated, str), Reduce(concatenated, str, merge=joined)

    assert not without.is_mergeable
    assert with_merge.is_mergeable
    assert with_merge.merge("a", "b") == "ab"
    assert with_merge.merge(None, "b") == "b"
    assert with_merge.merge("a", None) == "a"
    with pytest.raises(MillpondError) as caught:
        without.merge("a", "b")
    assert "Reduce(concatenated, str) cannot merge" in str(caught.value)
    assert "Fix: give it a merge=" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((5, str), "reducer"), ((joined, 0), "initializer"), ((joined, str, 5), "merge")],
)
def test_reduce_takes_functions(arguments, name):
    with pytest.raises(ConfigError) as caught:
        Reduce(*arguments)

    assert f"Reduce takes a function as {name}, got " in str(caught.value)
    assert "Fix: write Reduce(lambda state, value: ..., lambda value: ...)." in str(caught.value)


# --- distinct values ------------------------------------------------------------------------

PLUS_2 = timezone(timedelta(hours=2))
JOHANNESBURG = ZoneInfo("Africa/Johannesburg")

UNLIKE = [
    1, "1", b"1", 0, "", b"", -1, 1.5, Decimal("0.1"), 0.1, 2**70, math.inf, math.nan,
    Decimal("NaN"), Decimal("Infinity"), Decimal("-1E+30"), "é", "\ud800", (), [], {}, set(),
    frozenset(), (1,), [1], ("1",), [None], [[]], [[], []], ["a", "b"], ["ab"], {"a": 1},
    {"b": 1}, {1}, frozenset({1}), datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), time(1), time(1, tzinfo=UTC), timedelta(1),
    UUID(int=1),
]  # fmt: skip


def test_values_of_unlike_types_are_unlike():
    assert outcome(CountDistinct(), UNLIKE) == len(UNLIKE)


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0],
        [math.nan, -math.nan, float("nan")],
        [Decimal("1.0"), Decimal("1.00"), Decimal("0.1E+1")],
        [Decimal(0), Decimal("-0.00")],
        [Decimal("NaN"), Decimal("-NaN1")],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{3, 1, 2}, {1, 2, 3}],
        [datetime(2024, 1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 3, tzinfo=PLUS_2)],
        [datetime(2024, 7, 1, 1, tzinfo=UTC), datetime(2024, 7, 1, 3, tzinfo=JOHANNESBURG)],
        [datetime(2024, 1, 1, fold=1), datetime(2024, 1, 1)],
        [np.int64(1), 1],
        [np.float32(0.5), 0.5],
        [1, 1.0, True, Decimal("1.0"), np.int8(1)],
        [0, 0.0, -0.0, False, Decimal("-0.00")],
        [1.5, Decimal("1.50")],
        [2**70, float(2**70), Decimal(2**70)],
        [(1, [2]), (1.0, [Decimal(2)])],
        [{"a": 1}, {"a": True}],
        [{1}, {1.0}],
    ],
)  # fmt: skip
def test_equal_values_are_alike_as_for_drop_duplicates(values):
    assert outcome(CountDistinct(), values) == 1
    assert outcome(CountDistinct(exact_to=0), values) == 1


MIXED = st.one_of(
    st.integers(-(2**70), 2**70), st.booleans(), st.floats(allow_nan=False),
    st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9),
    st.sampled_from([0, 1, 2]), st.sampled_from([0.0, 1.0, 0.5, -0.0]),
    st.sampled_from([Decimal("0.50"), Decimal("1.00"), Decimal("-0")]),
)  # fmt: skip


@given(st.lists(MIXED, max_size=30))
def test_as_many_values_are_counted_as_drop_duplicates_lets_pass(values):
    encode = Codec().encode_equal

    assert outcome(CountDistinct(), values) == len({encode(value) for value in values})


@pytest.mark.parametrize(
    ("before", "count"),
    [
        ({b"i1", b"b1", b"f1.0", b"D1"}, 1),
        ({b"f-0.0", b"D0", b"b0", b"i0"}, 1),
        ({b"f1.5", b"D1.5", b"D0.1", b"f0.1", b"Dnan", b"fnan", b"finf", b"DInfinity"}, 7),
        ({b"[2:i14:f1.0", b"[2:i12:i1", b"{4:f2.02:i1", b"{2:i12:i2"}, 2),
        ({b"=11:(2:sk4:f1.0", b"=9:(2:sk2:i1", b"=9:(2:sk2:b1"}, 1),
        ({b"sa", b"ya", b"si1:b", b"0"}, 4),
    ],
)
def test_states_that_kept_types_apart_are_counted_by_value(before, count):
    aggregation = CountDistinct()

    assert aggregation.result(set(before)) == count
    for other in (set(before), state_of(aggregation, [1, "new"])):
        merged = aggregation.merge(set(before), other)
        assert aggregation.result(merged) in (count, count + 1, count + 2)
        assert aggregation.merge(set(merged), set(before)) == merged
    once = aggregation.merge(set(before), state_of(aggregation, [7]))
    again = aggregation.add(set(once), Decimal("7.0"), 0)
    assert aggregation.result(once) == aggregation.result(again) == count + 1


def test_moments_at_the_ends_of_time_are_counted():
    ends = (
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    )

    assert outcome(CountDistinct(), ends) == 2


def test_the_count_is_exact_up_to_the_limit_and_close_above():
    values = [f"user{n}" for n in range(20_000)]

    assert outcome(CountDistinct(exact_to=20_000), values) == 20_000
    assert outcome(CountDistinct(), values[:1000]) == 1000
    assert outcome(CountDistinct(), values[:1001]) >= 1001
    assert outcome(CountDistinct(), values) == pytest.approx(20_000, rel=0.03)
    assert outcome(CountDistinct(exact_to=0), values[:1]) == 1


def test_a_sketch_keeps_values_of_unlike_types_apart():
    assert outcome(CountDistinct(exact_to=0), UNLIKE * 2) == len(UNLIKE)


def test_states_that_were_written_once_are_read_for_ever():
    exact = state_of(CountDistinct(), [5, "a", 1.5, True, Decimal("1.50"), ["a", None], {"k": 1}])
    sketch = state_of(CountDistinct(exact_to=9), [f"user{n}" for n in range(3000)])

    assert exact == {b"", b"i5", b"sa", b"f1.5", b"i1", b"[2:sa1:0", b"=9:(2:sk2:i1"}
    assert hashlib.sha256(sketch).hexdigest()[:16] == "ddf88e0d7fb99289"
    assert CountDistinct(exact_to=9).result(sketch) == 2966


class Color(Enum):
    RED = 1


@pytest.mark.parametrize("value", [object(), Color.RED, [Color.RED], {"a": (1, Color.RED)}, 1j])
def test_values_that_cannot_be_distinguished_are_refused(value):
    with pytest.raises(MillpondError) as caught:
        outcome(CountDistinct("user"), [{"user": value}])
    with pytest.raises(MillpondError, match="or name a column"):
        outcome(CountDistinct(), [value])

    assert f"CountDistinct('user') cannot tell values of type {type(value).__name__}" in str(
        caught.value
    )
    assert "Fix: make it text, a number or a tuple" in str(caught.value)


@pytest.mark.parametrize("exact_to", [-1, 1.5, "many", None, True])
def test_the_limit_is_a_number_from_0(exact_to):
    with pytest.raises(ConfigError) as caught:
        CountDistinct("user", exact_to)

    assert f"CountDistinct takes a number from 0 as exact_to, got {exact_to!r}" in str(caught.value)
    assert "Fix: write how many values to keep exactly" in str(caught.value)


def test_the_library_of_sketches_is_loaded_only_when_one_is_needed():
    code = (
        "import sys; from millpond.aggregations import CountDistinct; few = CountDistinct('a', 1); "
        "state = few.add(few.start(), {'a': 1}, 0); before = 'datasketches' in sys.modules; "
        "few.add(state, {'a': 2}, 0); print(before, 'datasketches' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False True"


# --- any way of cutting the records gives the same ------------------------------------------

WORDS = st.lists(st.text(max_size=3) | st.none())
VALUES = st.lists(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
    | st.sampled_from([0.0, 1.0, -0.0, (1, 2), [1], {"a": 1}, Decimal(1), b"1", {1, 2}])
)  # fmt: skip
ORDERED = WORDS | st.lists(
    st.integers(-3, 3) | st.sampled_from([1.0, -1.0, -0.0, True]) | st.none()
)
SPREAD = st.lists(st.floats(-1e150, 1e150) | st.sampled_from([0.5, 0.25, -0.5, 5e-324]))

CASES = [
    (Count(), VALUES),
    (Sum(), NUMBERS | SPREAD),
    (Mean(), NUMBERS | SPREAD),
    (Variance(), NUMBERS | SPREAD),
    (StdDev(ddof=1), NUMBERS | SPREAD),
    (Min(), ORDERED),
    (Max(), ORDERED),
    (First(), VALUES),
    (Last(), VALUES),
    (Earliest(), VALUES),
    (Latest(), VALUES),
    (Collect(), VALUES),
    (CountDistinct(), VALUES),
    (CountDistinct(exact_to=3), VALUES),
    (CountDistinct(exact_to=0), VALUES),
    (Reduce(concatenated, str, joined), VALUES),
]
NAMES = [repr(case[0]) for case in CASES]
COMMUTATIVE = [case for case in CASES if case[0].is_commutative]


def kept(state):
    """The state as it comes back from the store."""
    return CODEC.decode(CODEC.encode(state))


def result_of(aggregation, state):
    try:
        return aggregation.result(state)
    except MillpondError as error:  # too large for a float
        return str(error)


@pytest.mark.parametrize(("aggregation", "values"), CASES, ids=NAMES)
@given(data=st.data())
def test_many_at_once_are_the_same_as_one_by_one(aggregation, values, data):
    found = data.draw(values)
    times = data.draw(st.lists(st.integers(0, 5), min_size=len(found), max_size=len(found)))
    before = data.draw(st.integers(0, len(found)))
    start, one_by_one = aggregation.start(), aggregation.start()
    for value, timestamp in zip(found, times, strict=True):
        one_by_one = aggregation.add(one_by_one, value, timestamp)
    for value, timestamp in zip(found[:before], times[:before], strict=True):
        start = aggregation.add(start, value, timestamp)

    at_once = aggregation.add_many(start, found[before:], times[before:])

    assert kept(at_once) == kept(one_by_one)
    assert repr(result_of(aggregation, at_once)) == repr(result_of(aggregation, one_by_one))


@pytest.mark.parametrize("aggregation", [Sum(), Mean(), Min(), Max(), Variance()], ids=repr)
@pytest.mark.parametrize("wrong", [math.nan, "2", [1]], ids=repr)
def test_many_at_once_are_refused_with_the_same_words(aggregation, wrong):
    with pytest.raises(MillpondError) as one_by_one:
        aggregation.add(aggregation.add(aggregation.start(), 1.5, 0), wrong, 0)
    with pytest.raises(MillpondError) as at_once:
        aggregation.add_many(aggregation.start(), [1.5, wrong], [0, 0])

    assert str(at_once.value) == str(one_by_one.value)


def merged_in_any_order(aggregation, states, data):
    """Merge neighbours, in whatever order, until there is one state."""
    while len(states) > 1:
        at = data.draw(st.integers(0, len(states) - 2))
        states[at : at + 2] = [aggregation.merge(kept(states[at]), kept(states[at + 1]))]
    return states[0]


@pytest.mark.parametrize(("aggregation", "lists"), CASES, ids=NAMES)
def test_runs_that_are_merged_are_one_run(aggregation, lists):
    @settings(deadline=None)
    @given(lists, st.data())
    def holds(values, data):
        timestamps = [data.draw(st.integers(0, 3)) for _ in values]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
        edges = [0, *cuts, len(values)]
        runs = [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]

        whole = state_of(aggregation, values, timestamps)
        parts = [state_of(aggregation, values[run], timestamps[run]) for run in runs]
        merged = merged_in_any_order(aggregation, parts, data)

        assert CODEC.encode(merged) == CODEC.encode(whole)
        assert repr(result_of(aggregation, merged)) == repr(result_of(aggregation, whole))

    assert aggregation.is_mergeable
    holds()


@pytest.mark.parametrize(("aggregation", "lists"), CASES, ids=NAMES)
def test_states_are_kept_exactly_between_any_two_records(aggregation, lists):
    @settings(deadline=None)
    @given(lists)
    def holds(values):
        state = aggregation.start()
        for timestamp, value in enumerate(values):
            state = aggregation.add(kept(state), value, timestamp)
            assert same(kept(state), state)

        assert CODEC.encode(state) == CODEC.encode(state_of(aggregation, values))

    holds()


@pytest.mark.parametrize(
    ("aggregation", "lists"), COMMUTATIVE, ids=[repr(a) for a, _ in COMMUTATIVE]
)
def test_order_does_not_matter_where_it_is_said_so(aggregation, lists):
    @settings(deadline=None)
    @given(lists, st.data())
    def holds(values, data):
        records = list(enumerate(values))  # no two have the same timestamp
        mixed = data.draw(st.permutations(records))
        at = data.draw(st.integers(0, len(records)))

        whole = state_of(aggregation, values)
        shuffled = state_of(aggregation, [v for _, v in mixed], [t for t, _ in mixed])
        parts = [
            state_of(aggregation, [v for _, v in part], [t for t, _ in part])
            for part in (mixed[:at], mixed[at:])
        ]
        expected = result_of(aggregation, whole)

        assert shuffled == whole
        assert result_of(aggregation, aggregation.merge(*map(kept, parts))) == expected
        assert result_of(aggregation, aggregation.merge(*map(kept, reversed(parts)))) == expected

    holds()


@pytest.mark.parametrize(("exact_to", "size"), [(1000, 3000), (1000, 900), (10, 200)])
def test_many_distinct_values_give_one_state_however_they_come(exact_to, size):
    aggregation = CountDistinct(exact_to=exact_to)
    values = [f"user{n}" for n in range(size)]

    forward, backward = state_of(aggregation, values), state_of(aggregation, values[::-1])
    parts = [state_of(aggregation, values[at : at + size // 2]) for at in range(0, size, size // 7)]
    merged = functools.reduce(aggregation.merge, map(kept, parts))

    assert forward == backward == merged


@given(VALUES)
def test_order_is_kept_where_it_matters(values):
    there = [value for value in values if value is not None]

    assert outcome(Collect(), values) == values
    assert outcome(First(), values) == (there[0] if there else None)
    assert outcome(Last(), values) == (there[-1] if there else None)


@given(VALUES, st.integers(0, 50))
def test_a_count_of_distinct_values_within_the_limit_is_exact(values, exact_to):
    unlike = {Codec().encode_equal(v) for v in values if v is not None}

    if len(unlike) <= exact_to:
        assert outcome(CountDistinct(exact_to=exact_to), values) == len(unlike)
    else:
        assert outcome(CountDistinct(exact_to=exact_to), values) > exact_to


# --- what an aggregation says about itself --------------------------------------------------


@pytest.mark.parametrize(
    ("aggregation", "signature"),
    [
        (Count(), "Count()"),
        (Sum("amount"), "Sum(amount)"),
        (Mean("amount"), "Mean(amount)"),
        (Variance("amount", ddof=1), "Variance(amount)"),
        (StdDev("amount"), "StdDev(amount)"),
        (CountDistinct("user"), "CountDistinct(user, 1000)"),
        (CountDistinct(exact_to=5), "CountDistinct(5)"),
        (Reduce(concatenated, str), "Reduce(concatenated, str)"),
        (Reduce(functools.partial(concatenated), Alike().start), "Reduce(concatenated, start)"),
        (Longest(), "Longest()"),
        (Longest("word"), "Longest(word)"),
        (as_aggregation(QuixPower(), "a"), "QuixPower()"),
        (as_aggregation(QuixPower("x"), "a"), "QuixPower(x)"),
        (as_aggregation(QuixNamed(), "a"), "Power/v2"),
        (as_aggregation(Alike(), "a"), "Alike()"),
        (as_aggregation(AlikeWithMerge(), "a"), "Alike v2"),
    ],
)
def test_the_signature_names_what_is_kept(aggregation, signature):
    assert aggregation.signature == signature
    assert repr(aggregation) == signature


def test_the_built_in_ones_say_what_may_be_done_with_them():
    def those(ask: str) -> Iterable[str]:
        return {type(case[0]).__name__ for case in CASES if getattr(case[0], ask)}

    everything = {type(case[0]).__name__ for case in CASES}

    assert those("is_mergeable") == everything
    assert those("is_commutative") == everything - {"Collect", "First", "Last", "Reduce"}


def test_the_public_names_are_sorted_and_there():
    assert aggregations.__all__ == sorted(aggregations.__all__)
    assert all(hasattr(aggregations, name) for name in aggregations.__all__)


@pytest.mark.parametrize(
    "aggregation",
    [
        *(case[0] for case in CASES),
        *(kind("foo") for kind in WITH_COLUMN),
        Longest("foo"),
        as_aggregation(QuixPower("foo"), "a"),
        as_aggregation(AlikeWithMerge(), "a"),
    ],
    ids=repr,
)
def test_an_aggregation_can_be_pickled(aggregation):
    copy = pickle.loads(pickle.dumps(aggregation))

    assert copy.signature == aggregation.signature
    assert copy.is_mergeable == aggregation.is_mergeable
    assert copy.start() == aggregation.start()


# --- those of the user ----------------------------------------------------------------------


def test_an_own_class_says_what_it_likes_and_no_more():
    adds, longest = OnlyAdds(), Longest()

    assert outcome(adds, [1, 2]) == 3
    assert outcome(adds, []) is None
    assert not adds.is_mergeable
    assert not adds.is_commutative
    assert outcome(longest, ["mill", "ponds"]) == 5
    assert longest.is_mergeable
    assert as_aggregation(longest, "longest") is longest


def test_an_own_class_without_merge_does_not_merge():
    with pytest.raises(MillpondError) as caught:
        OnlyAdds("amount").merge(1, 2)

    assert "OnlyAdds(amount) cannot merge the states of two runs of records." in str(caught.value)
    assert "Fix: give it a merge(earlier, later)." in str(caught.value)


def test_an_own_class_must_say_what_to_add():
    text = r"NeverAdds does not say what to do with a record.\nFix: give it an add\(self, state,"

    with pytest.raises(ConfigError, match="^total: " + text):
        as_aggregation(NeverAdds(), "total")
    with pytest.raises(MillpondError, match="^" + text):
        NeverAdds().add(None, 1, 0)


def test_an_aggregation_of_quix_streams_is_taken():
    aggregation = as_aggregation(QuixPower("x"), "power")

    assert isinstance(aggregation, Aggregation)
    assert outcome(aggregation, [{"x": 2}, {"x": 3}]) == 6
    assert not aggregation.is_mergeable
    assert not aggregation.is_commutative
    with pytest.raises(MillpondError, match=r"QuixPower\(x\) cannot merge(.|\n)*Fix:"):
        aggregation.merge(1, 2)


def test_an_object_with_the_methods_is_taken():
    without, with_merge = (
        as_aggregation(Alike(), "total"),
        as_aggregation(AlikeWithMerge(), "total"),
    )

    assert outcome(without, [1, 2]) == 3
    assert without.is_commutative
    assert not without.is_mergeable
    assert with_merge.is_mergeable
    assert with_merge.merge(1, 2) == 3


@pytest.mark.parametrize(
    ("given_", "texts"),
    [
        (Count, ["total needs an aggregation, got the class Count.", "Fix: write Count(...)"]),
        (QuixPower, ["got the class QuixPower.", "Fix: write QuixPower(...)"]),
        (joined, ["total needs an aggregation, got function:", "Fix: use Reduce(reducer, init"]),
        (len, ["got builtin_function_or_method", "Fix: use Reduce("]),
        (
            "amount",
            ["total needs an aggregation, got str: 'amount'.", 'Fix: use one such as Sum("'],
        ),
        (None, ["got NoneType: None.", "Fix: use one such as"]),
        (object(), ["got object: ", "your own subclass of Aggregation"]),
    ],
)
def test_what_is_no_aggregation_is_refused(given_, texts):
    with pytest.raises(ConfigError) as caught:
        as_aggregation(given_, "total")

    assert all(text in str(caught.value) for text in texts)
