"""`update_state`: which rows of a table count as changed."""

import math
import re

import pyarrow as pa
import pytest

from millpond.state.layout import MOST_BYTES
from millpond.testing import LocalEngine, frame, run_local


def given_twice(first, second, size):
    """The rows that go on after the second batch; both tables also have `size` rows that stay."""
    tables = iter([first, second])
    stay = {"n": range(size), "x": [math.nan] * size}

    def update(batch, state):
        rows = pa.table(stay).to_pylist() + next(tables)
        return pa.table({name: [row[name] for row in rows] for name in ("n", "x")})

    engine = LocalEngine(frame().group_by("user").update_state(update), copy_functions=False)
    for _ in range(2):
        engine.feed([{"user": "ann"}])
        values = engine.run()
    return values[size + len(first) :]


@pytest.mark.parametrize("size", [3, 49, 50, 51, 200])
@pytest.mark.parametrize(
    ("first", "second", "is_changed"),
    [
        ({"n": -1, "x": math.nan}, {"n": -1, "x": math.nan}, False),
        ({"n": -1, "x": 1.0}, {"n": -1.0, "x": 1.0}, False),
        ({"n": -1, "x": 0.0}, {"n": -1, "x": -0.0}, False),
        ({"n": -1, "x": None}, {"n": -1, "x": math.nan}, True),
        ({"n": -1, "x": 1.0}, {"n": -1, "x": 1.5}, True),
        ({"n": -1, "x": 1.0}, {"n": -2, "x": 1.0}, True),
    ],
    ids=str,
)
def test_a_row_is_changed_by_one_meaning_whatever_the_size_of_the_table(
    size, first, second, is_changed
):
    changed = given_twice([first], [second], size)

    assert repr(changed) == repr([second] if is_changed else [])


@pytest.mark.parametrize("size", [1, 60])
def test_rows_with_lists_and_dicts_are_compared_by_what_they_hold(size):
    rows = [{"n": i, "x": {"a": [i, math.nan], "b": b"x"}} for i in range(size)]
    grown = [*rows, {"n": size, "x": {"a": [size], "b": b"x"}}]
    tables = iter([rows, grown])
    engine = LocalEngine(
        frame()
        .group_by("user")
        .update_state(lambda batch, state: pa.Table.from_pylist(next(tables))),
        copy_functions=False,
    )
    for _ in range(2):
        engine.feed([{"user": "ann"}])
        values = engine.run()

    assert values[size:] == grown[-1:]


def test_a_table_that_is_too_large_for_state_is_an_error_of_its_record():
    def update(batch, state):
        return pa.table({"blob": pa.array([bytes(MOST_BYTES)], pa.large_binary())})

    run = run_local(
        frame().group_by("user").update_state(update), [{"user": "ann"}], on_error="dead-letter"
    )

    assert list(run) == []
    (letter,) = run.dead_letters
    assert re.search(r"gave a table of 268,\d+,\d+ bytes(.|\n)*Fix: ", str(letter))
