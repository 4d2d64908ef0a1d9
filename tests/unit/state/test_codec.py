import dataclasses
import enum
import math
import pickle
from collections import Counter, OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_values import values

from millpond.errors import ConfigError, ValueTypeError
from millpond.state.codec import Codec

codec = Codec()
quick = settings(max_examples=150, deadline=None)


def there_and_back(value, codec=codec):
    return codec.decode(codec.encode(value))


def typed(value):
    """A form in which 1, True and 1.0, or a tuple and a list, are different."""
    if isinstance(value, dict):
        return dict, [(typed(k), typed(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), {repr(typed(item)) for item in sorted(value, key=repr)}
    if isinstance(value, datetime | time):
        return type(value), value.isoformat(), value.fold, value.tzinfo
    if isinstance(value, float | Decimal):
        return type(value), repr(value)
    return type(value), value


@quick
@given(values)
def test_every_value_comes_back_as_it_went_in(value):
    assert typed(there_and_back(value)) == typed(value)


@pytest.mark.parametrize(
    "value",
    [
        0, -1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**400, -(10**400),
        2**71, 2**72 - 1, -(2**71), True, False, None, 0.0, -0.0, math.inf, -math.inf, 5e-324,
        "", "ä€😀", "\x00", b"", b"\xff\x00", [], (), {}, set(), frozenset(), ((),), [[]], {"": {}},
        [(1, [2, (3,)]), {4: (5,)}], {(1, 2): {frozenset({3})}}, {1: 1, "1": 2, (1,): 3},
        {None: 1, True: 2, 1.5: 3, b"k": 4}, pytest.param({1, "1", (1,), None}, id="a set"),
        timedelta.min, timedelta.max, timedelta(microseconds=-1), date.min, date.max,
        datetime.min, datetime.max, time.min, time.max,
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30, seconds=-1))),
        datetime(2026, 1, 1, 1, 1, 1, 999999), time(2, 30, fold=1), time(1, tzinfo=UTC),
        Decimal("1.10"), Decimal("-0"), Decimal("1E+400"), Decimal("Infinity"),
        UUID(int=0), UUID(int=2**128 - 1),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_values_at_the_edges_come_back_as_they_went_in(value):
    assert typed(there_and_back(value)) == typed(value)


def test_nan_comes_back_as_nan():
    assert math.isnan(there_and_back(math.nan))
    assert math.isnan(there_and_back([math.nan])[0])
    assert there_and_back(Decimal("NaN")).is_nan()
    assert there_and_back(Decimal("sNaN")).is_snan()


def test_the_name_of_a_fixed_time_zone_comes_back():
    moment = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5), "EST"))

    assert there_and_back(moment).tzname() == "EST"


def test_the_order_of_a_dict_comes_back():
    assert list(there_and_back({"b": 1, "a": 2})) == ["b", "a"]
    assert list(there_and_back({2: 1, 1: 2})) == [2, 1]


def test_a_decoded_value_is_a_fresh_one():
    data = codec.encode([1])

    assert codec.decode(data) is not codec.decode(data)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("depth", [1, 50, 100, 200, 300, 500, 1000, 3000])
def test_a_deep_value_comes_back_or_is_refused(kind, depth):
    value = kind()
    for _ in range(depth):
        value = kind([value])

    try:
        data = codec.encode(value)
    except ValueTypeError as error:
        assert depth > 100
        assert "nested too deeply" in str(error)
    else:
        assert codec.decode(data) == value


def test_a_value_that_contains_itself_is_refused():
    value = []
    value.append(value)

    with pytest.raises(ValueTypeError, match="contains itself"):
        codec.encode(value)


# --- refusals -------------------------------------------------------------------------------

Point = namedtuple("Point", "x y")


class MyInt(int):
    pass


class MyZone(tzinfo):
    def utcoffset(self, moment):
        return timedelta(0)


@pytest.mark.parametrize(
    "value",
    [
        object(), 1j, MyInt(5), Point(1, 2), Counter("aa"), OrderedDict(a=1), bytearray(b"x"),
        memoryview(b"x"), range(3), (i for i in ()), len, [object()], {"a": {"b": 1j}}, {1j: 1},
        (MyInt(1),), np.int64(5), np.array([1]), np.float64(1.5),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_types_are_refused_with_a_fix(value):
    with pytest.raises(ValueTypeError, match="state cannot keep a value of type(.|\n)*Fix:"):
        codec.encode(value)


def test_the_error_for_numpy_values_says_how_to_make_plain_ones():
    with pytest.raises(ValueTypeError, match=r"value\.item\(\)"):
        codec.encode(np.int64(5))


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud800": 1}, ("x", "\ud83d")])
def test_a_lone_surrogate_is_refused(value):
    with pytest.raises(ValueTypeError, match="lone surrogate(.|\n)*Fix:"):
        codec.encode(value)


def test_a_time_zone_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueTypeError, match="time zone(.|\n)*Fix:"):
        codec.encode(datetime(2026, 1, 1, tzinfo=MyZone()))


def test_a_refusal_never_prints_a_whole_value():
    with pytest.raises(ValueTypeError) as caught:
        codec.encode(bytearray(10**6))

    assert len(str(caught.value)) < 1000


# --- registered types -----------------------------------------------------------------------


@dataclasses.dataclass
class Plain:
    a: int
    b: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: tuple
    at: datetime


@dataclasses.dataclass
class Computing:
    a: int

    def __post_init__(self):
        self.a += 1


class Color(enum.Enum):
    RED = "r"
    SAME = RED
    BLUE = object()


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Struct(msgspec.Struct):
    a: int
    b: set = msgspec.field(default_factory=set)


class EmptyStruct(msgspec.Struct, tag="empty", array_like=True):
    pass


class FrozenStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    long_name: tuple


class ComputingStruct(msgspec.Struct):
    a: int

    def __post_init__(self):
        self.a += 1


ALL = [
    Plain,
    Frozen,
    Computing,
    Color,
    Level,
    Rights,
    Struct,
    EmptyStruct,
    FrozenStruct,
    ComputingStruct,
]


@pytest.mark.parametrize(
    "value",
    [
        Plain(1, [Plain(2)]),
        Frozen((1, (2,)), datetime(2026, 1, 1, tzinfo=UTC)),
        Computing(1),
        Color.RED,
        Color.SAME,
        Color.BLUE,
        Level.LOW,
        Rights.READ,
        Rights.READ | Rights.WRITE,
        Rights(0),
        Struct(1, {2, 3}),
        EmptyStruct(),
        FrozenStruct(long_name=(1, 2)),
        ComputingStruct(1),
        {Color.RED: [Struct(1)], Level.LOW: (Plain(1),)},
    ],
    ids=str,
)
def test_registered_types_come_back_as_they_went_in(value):
    registered = Codec(ALL)

    back = there_and_back(value, registered)

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [Plain(1), Color.RED, Struct(1), [Level.LOW]], ids=str)
def test_types_that_are_not_registered_are_refused_with_the_call_to_make(value):
    with pytest.raises(ValueTypeError, match=r"Fix: call app.register_type\("):
        codec.encode(value)


def test_a_value_whose_type_is_no_longer_registered_says_so():
    data = Codec([Plain]).encode(Plain(1))

    with pytest.raises(ValueTypeError, match="'Plain', which is not registered"):
        codec.decode(data)


def test_a_field_added_later_is_missing_in_older_values_only():
    data = Codec([Plain]).encode(Plain(1))

    @dataclasses.dataclass
    class Newer:
        a: int
        b: list
        c: int = 5

    Newer.__qualname__ = "Plain"
    back = Codec([Newer]).decode(data)

    assert (back.a, back.b, back.c) == (1, [], 5)


def test_register_returns_the_type_so_that_it_decorates():
    assert Codec().register(Plain) is Plain


@pytest.mark.parametrize("wrong", [int, Plain(1), object, "Plain", None])
def test_register_refuses_other_things(wrong):
    with pytest.raises(ConfigError, match="register_type(.|\n)*Fix:"):
        Codec().register(wrong)


def test_two_types_of_one_name_from_two_modules_are_refused():
    other = dataclasses.make_dataclass("Plain", ["x"])
    other.__module__ = "elsewhere"

    with pytest.raises(ConfigError, match="two types named 'Plain'"):
        Codec([Plain, other])


def test_the_registry_travels_with_the_codec():
    copy = pickle.loads(pickle.dumps(Codec([Plain])))

    assert there_and_back(Plain(1), copy) == Plain(1)


def test_bytes_of_a_newer_kind_are_refused():
    data = msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"\xc0"))

    with pytest.raises(ValueTypeError, match="kind 99(.|\n)*Fix:"):
        codec.decode(data)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=2) | st.integers(0, 3) | st.booleans(), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def turned(value, numbers):
    """A value that is equal, but made otherwise."""
    if type(value) is dict:
        pairs = [(turned(k, numbers), turned(v, numbers)) for k, v in value.items()]
        numbers.shuffle(pairs)
        return dict(pairs)
    if type(value) in (list, tuple):
        return type(value)(turned(item, numbers) for item in value)
    if type(value) is int and float(min(max(value, -(2**60)), 2**60)) == value:
        return numbers.choice([value, float(value)])
    return value


@given(plain, plain, st.randoms(use_true_random=False))
def test_equal_values_have_the_same_bytes_where_that_is_asked_for(value, other, numbers):
    codec = Codec()
    again = turned(value, numbers)
    assert again == value

    assert codec.encode_equal(again) == codec.encode_equal(value)
    assert (codec.encode_equal(other) == codec.encode_equal(value)) == (other == value)


SAME = [
    [Decimal("1.0"), Decimal("1.00"), Decimal("1E+0"), 1, 1.0, True],
    [0.0, -0.0, Decimal("0.00"), Decimal("-0"), Decimal("0E+900"), 0, False],
    [Decimal("0.5"), Decimal("0.500"), 0.5],
    [Decimal("0.1"), Decimal("0.100")],
    [0.1],
    [
        Decimal("1E+400"),
    ],
    [Decimal("123456789012345678901234567890.1"), Decimal("123456789012345678901234567890.10")],
    [Decimal("100"), Decimal("1E+2"), 100],
]


@given(st.sampled_from(SAME).flatmap(lambda one: st.tuples(*[st.sampled_from(one)] * 2)))
def test_equal_numbers_have_the_same_bytes_whatever_their_type(pair):
    left, right = pair

    assert Codec().encode_equal([left]) == Codec().encode_equal([right])


def test_unequal_numbers_have_other_bytes():
    encoded = {Codec().encode_equal(numbers[0]) for numbers in SAME}

    assert len(encoded) == len(SAME)


@given(st.decimals(allow_nan=False), st.integers(0, 5))
def test_zeros_at_the_end_of_a_decimal_change_nothing(number, zeros):
    sign, digits, exponent = number.as_tuple()
    if not number.is_finite():
        return
    longer = Decimal((sign, (*digits, *[0] * zeros), exponent - zeros))

    assert Codec().encode_equal(longer) == Codec().encode_equal(number)
