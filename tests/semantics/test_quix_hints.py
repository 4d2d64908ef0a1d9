"""What is said of a method that an object does not have."""

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.testing import frame


def window():
    return frame().tumbling_window(10, grace_ms=5, name="mine")


@pytest.mark.parametrize(
    ("ask", "fix"),
    [
        (lambda: window().final, r"say first what is aggregated: .*agg\(n=Count\(\)\)"),
        (lambda: window().current, r"then \.current\(\)"),
        (lambda: window().apply, r"\.final\(\) gives a frame"),
        (lambda: window().cuont, "did you mean 'count'"),
        (lambda: window().count().agg, "give all of them to one agg"),
        (lambda: window().count().sum, "give all of them to one agg"),
        (lambda: window().count().to_topic, r"window\.final\(\) or window\.current\(\)"),
        (lambda: window().count().finals, "did you mean 'final'"),
        (lambda: frame().sum, "define a window first"),
        (lambda: frame().final, "go on with sdf.apply"),
        (lambda: frame().aply, "did you mean 'apply'"),
        (lambda: frame().flat_map, "expand=True"),
        (lambda: frame().compose, "run_local"),
        (lambda: frame().qqqqqq, "use one of agg, apply, "),
        (lambda: frame().join_lookup, r"join_table\(\) brings the row"),
        (lambda: frame()["a"].sum, "sdf.agg"),
        (lambda: frame()["a"].isnul, "did you mean 'isnull'"),
        (lambda: mp.Application(loglevel=None).add_source, r"dataframe\(source=\.\.\.\)"),
        (lambda: mp.Application(loglevel=None).tpic, "did you mean 'topic'"),
        (lambda: mp.Record(b"k", 1, 2).error, r"record\.value"),
    ],
)
def test_a_method_of_another_object_says_what_to_write(ask, fix):
    with pytest.raises(
        AttributeError, match=rf"has no '\w+' \(test_quix_hints.py:\d+\).\nFix: .*{fix}"
    ):
        ask()


def test_an_application_of_quix_cloud_says_what_to_call():
    with pytest.raises(ConfigError, match=r"Quix Cloud here \(test_quix_hints.py:\d+\).\nFix: App"):
        mp.Application.Quix(consumer_group="shop")


@pytest.mark.parametrize("make", [frame, window, lambda: window().count(), lambda: frame()["a"]])
def test_protocols_that_ask_for_private_names_get_the_plain_answer(make):
    thing = make()

    assert not hasattr(thing, "_repr_html_")
    assert getattr(thing, "__deepcopy__", None) is None
    assert not callable(getattr(thing, "write", None))


def test_a_window_definition_tells_its_lengths_and_a_window_its_name():
    hopping, sessions = frame().hopping_window(10, 5), frame().session_window(7, grace_ms=3)

    assert (window().duration_ms, window().grace_ms, window().step_ms) == (10, 5, None)
    assert (hopping.duration_ms, hopping.step_ms) == (10, 5)
    assert (sessions.inactivity_gap_ms, sessions.grace_ms) == (7, 3)
    with pytest.raises(ConfigError, match=r"has no duration_ms(.|\n)*Fix:"):
        _ = sessions.duration_ms
    assert window().sum().name == "mine_tumbling_window_10_sum"
