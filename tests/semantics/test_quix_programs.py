"""What a program that was written for Quix Streams 3.28.1 counts on, beside windows."""

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.testing import frame, run_local


@pytest.mark.parametrize(
    "ask",
    [
        bool,
        lambda sdf: sdf and sdf,
        lambda sdf: sdf or sdf,
        lambda sdf: not sdf,
        lambda sdf: sdf[(sdf.apply(lambda v: v > 1)) and sdf["a"] > 1],
        lambda sdf: bool(sdf["a"]),
        lambda sdf: sdf["a"] and sdf["b"],
    ],
    ids=["bool", "and", "or", "not", "apply and", "column", "column and"],
)
def test_a_frame_or_a_column_has_no_truth_value(ask):
    with pytest.raises(ConfigError, match=r"no truth value of its own(.|\n)*Fix: "):
        ask(frame())


def test_the_size_of_a_record_is_that_of_its_value():
    app = mp.Application(loglevel=None)
    sdf = app.dataframe(app.topic("clicks"))
    sdf = sdf.apply(lambda value: (value, mp.message_context().size))

    values = run_local(sdf, [("k", {"a": 1}), ("k", None), ("k", {"a": 1000})])

    assert values == [({"a": 1}, 7), (None, 0), ({"a": 1000}, 10)]


@pytest.mark.parametrize("cut", [None, 1])
def test_branches_come_out_record_by_record(cut):
    sdf = frame()
    sdf.apply(lambda value: ("first", value))
    sdf[sdf.apply(lambda value: value > 1)].apply(lambda value: ("second", value))

    assert run_local(sdf, [1, 2, 3], batches=cut) == [
        ("first", 1),
        ("first", 2),
        ("second", 2),
        ("first", 3),
        ("second", 3),
    ]
