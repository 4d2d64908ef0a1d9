import dataclasses
import enum
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from unit_values import values

from millpond.errors import ValueTypeError
from millpond.state.codec import Codec
from millpond.state.plain import from_plain, from_text, to_plain, to_text

quick = settings(max_examples=200, deadline=None)


@dataclasses.dataclass
class Point:
    x: int
    y: tuple


class Color(enum.Enum):
    RED = 1


@quick
@given(values)
def test_every_value_becomes_json_and_comes_back_byte_for_byte(value):
    data = Codec().encode(value)

    text = json.dumps(to_plain(data), allow_nan=False)

    assert from_plain(json.loads(text)) == data


@quick
@given(values)
def test_every_value_becomes_a_word_and_comes_back(value):
    data = Codec().encode(value)

    assert from_text(to_text(data)) == data


@quick
@given(st.dictionaries(st.sampled_from(["$tuple", "$x", "a"]), st.integers(0, 3), max_size=2))
def test_a_dict_that_looks_like_one_of_our_marks_stays_a_dict(value):
    data = Codec().encode(value)

    assert Codec().decode(from_plain(to_plain(data))) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"\x00\xff", {"$bytes": "AP8="}),
        (math.inf, {"$float": "inf"}),
        ([1, 0.5, None, True, "a"], [1, 0.5, None, True, "a"]),
        ({"a": (1,)}, {"a": {"$tuple": [1]}}),
        ({"$tuple": (1,)}, {"$dict": {"$tuple": {"$tuple": [1]}}}),
        (2**64, {"$int": "18446744073709551616"}),
        (-(2**63) - 1, {"$int": "-9223372036854775809"}),
        (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
        ({1, 2}, {"$set": [1, 2]}),
        (frozenset({1}), {"$frozenset": [1]}),
        ({1: "a"}, {"$pairs": [[1, "a"]]}),
        (date(2026, 1, 2), {"$date": "2026-01-02"}),
        (time(1, 2), {"$time": ["01:02:00", 0, None]}),
        (Decimal("1.10"), {"$decimal": "1.10"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_reads_in_json_as_the_documents_say_and_comes_back(value, plain):
    codec = Codec()

    assert to_plain(codec.encode(value)) == plain
    assert from_plain(plain) == codec.encode(value)


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 2, 3, 4, 5, 6, UTC), timedelta(days=-1, microseconds=1)], ids=str
)
def test_a_time_comes_back_from_json(value):
    plain = json.loads(json.dumps(to_plain(Codec().encode(value))))

    (mark,) = plain
    assert mark == f"${type(value).__name__}"
    assert Codec().decode(from_plain(plain)) == value


def test_a_set_is_written_in_one_order_whoever_has_edited_it():
    assert from_plain({"$set": [3, 1, 2]}) == Codec().encode({1, 2, 3})


def test_a_number_that_was_marked_as_large_and_is_not_is_a_number():
    assert from_plain({"$int": "5"}) == Codec().encode(5)
    assert from_plain(2**64) == Codec().encode(2**64)


def test_what_a_newer_release_has_written_is_kept_as_it_is():
    data = msgspec.msgpack.encode(Ext(77, msgspec.msgpack.encode([1])))

    assert to_plain(data) == {"$ext:77": "kQE="}
    assert from_plain({"$ext:77": "kQE="}) == data


@pytest.mark.parametrize(
    ("value", "word"), [("ann", "ann"), ("5", '"5"'), (5, "5"), ("null", '"null"'), ("", "")]
)
def test_text_is_a_word_unless_it_reads_like_something_else(value, word):
    assert to_text(Codec().encode(value)) == word
    assert from_text(word) == Codec().encode(value)


def test_values_of_types_that_are_not_known_here_are_shown_and_come_back():
    codec = Codec([Point, Color])
    data = codec.encode([Point(1, (2, 3)), Color.RED])

    plain = to_plain(data)

    assert plain == [{"$Point": {"x": 1, "y": {"$tuple": [2, 3]}}}, {"$enum:Color": "RED"}]
    assert codec.decode(from_plain(plain)) == [Point(1, (2, 3)), Color.RED]


@pytest.mark.parametrize("mark", ["$foo:a.b", "$foo:a", "$:", "$enum:1"])
def test_a_type_of_a_kind_that_is_not_known_is_refused(mark):
    with pytest.raises(ValueTypeError, match=r"no value(.|\n)*Fix:"):
        from_plain({mark: 1})


def test_a_mark_that_is_none_is_refused():
    with pytest.raises(ValueTypeError, match=r"no value(.|\n)*Fix:"):
        from_plain({"$no such:thing!": 1})
