import dataclasses
import enum
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
