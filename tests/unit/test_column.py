import operator

import pytest

from millpond.column import Column, StreamingSeries, field
from millpond.errors import ConfigError, MillpondError


def column(name, head="head"):
    return Column(lambda value, *rest: field(value, name), name, head)


def of(expression, value):
    return expression._evaluate(value)


@pytest.mark.parametrize(
    "operation",
    [
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.mod,
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
    ],
)
@pytest.mark.parametrize(("a", "b"), [(7, 3), (3, 7), (2, 2)])
def test_operators_mean_what_they_mean_in_python(operation, a, b):
    value = {"a": a, "b": b}

    assert of(operation(column("a"), column("b")), value) == operation(a, b)
    assert of(operation(column("a"), b), value) == operation(a, b)
    if operation is not operator.mod:
        assert of(operation(a, column("b")), value) == operation(a, b)


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_and_or_not(a, b):
    value = {"a": a, "b": b}

    assert of(column("a") & column("b"), value) is (a and b)
    assert of(column("a") | column("b"), value) is (a or b)
    assert of(~column("a"), value) is (not a)
    assert of(column("a") & b, value) is (a and b)
    assert of(column("a") | b, value) is (a or b)


def test_a_column_shows_its_expression():
    assert repr((column("a") + 1) > column("b")) == "Column(((a + 1) > b))"


def test_the_text_of_a_long_constant_is_cut():
    assert len(repr(column("a").isin(list(range(1000))))) < 80


def test_a_column_has_no_truth_value():
    with pytest.raises(ConfigError, match="Fix: use & for and"):
        bool(column("a") == 1)


def test_a_column_cannot_be_hashed():
    with pytest.raises(TypeError):
        hash(column("a"))


def test_columns_of_two_frames_do_not_mix():
    with pytest.raises(ConfigError, match="different frames(.|\n)*Fix:"):
        column("a", "one") + column("b", "two")


def test_a_column_of_a_column_asks_inside():
    assert of(column("a")["b"][0], {"a": {"b": [5]}}) == 5


def test_needs_of_the_parts_are_needs_of_the_whole():
    stateful = Column(lambda *record: 1, "s", "head", takes_state=True, takes_metadata=True)

    assert (column("a") + stateful)._takes_state
    assert (~stateful)._takes_metadata
    assert not (column("a") + 1)._takes_state


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1}, "no field 'a'; it has ['b']"),
        ({}, "no field 'a'"),
        (5, "type int"),
        (None, "type NoneType"),
        ("text", "type str"),
    ],
)
def test_a_field_that_is_not_there_gives_a_fix(value, text):
    with pytest.raises(MillpondError) as caught:
        field(value, "a")

    assert text in str(caught.value)
    assert "Fix:" in str(caught.value)


def test_an_index_after_the_end_gives_a_fix():
    with pytest.raises(MillpondError, match="2 items(.|\n)*Fix:"):
        field([1, 2], 5)


def test_streaming_series_is_the_other_name():
    assert StreamingSeries is Column
