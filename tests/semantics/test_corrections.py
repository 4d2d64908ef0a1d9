"""Windows that a late record reopens: what their results say, and what may follow them."""

import re

import pytest

from millpond import Count, Last, Sum
from millpond.errors import ConfigError
from millpond.testing import frame, run_local

CLICKS = [("k", 1, 5), ("k", 1, 12), ("k", 1, 30), ("k", 1, 6), ("k", 1, 50)]


def corrected(sdf):
    return sdf.tumbling_window(10, corrections_ms=1_000).agg(n=Count())


@pytest.mark.parametrize(
    "follow",
    [
        lambda sdf: sdf.tumbling_window(100),
        lambda sdf: sdf.group_by(lambda value: "all", name="all").hopping_window(100, 50),
        lambda sdf: sdf.apply(lambda value: value["n"]).session_window(100),
        lambda sdf: sdf.watermark().sliding_window(100),
        lambda sdf: sdf.concat(frame_of(sdf).apply(lambda value: value)).tumbling_count_window(2),
    ],
)
@pytest.mark.parametrize("output", ["final", "current"])
def test_a_window_of_corrected_results_is_refused_where_it_is_written(follow, output):
    results = getattr(corrected(frame()), output)()

    with pytest.raises(ConfigError, match=r"count results twice(.|\n)*test_corrections.py:\d+ has"):
        follow(results)


@pytest.mark.parametrize(
    ("choose", "is_refused"),
    [
        (lambda sdf: sdf[sdf["revision"] == 0], False),
        (lambda sdf: sdf.filter(lambda value: value["revision"] == 0), False),
        (lambda sdf: sdf.filter(lambda value: any(v == "revision" for v in value)), False),
        (lambda sdf: sdf[sdf["n"] > 1], True),
        (lambda sdf: sdf.filter(lambda value: value["n"] > 1), True),
        (lambda sdf: sdf.filter(bool), True),
    ],
)
def test_only_a_filter_that_looks_at_the_revision_chooses_among_results(choose, is_refused):
    chosen = choose(corrected(frame()).final())

    if is_refused:
        with pytest.raises(ConfigError, match="count results twice"):
            chosen.tumbling_window(100)
    else:
        chosen.tumbling_window(100).count().final()


def test_totals_that_count_corrected_results_again_are_warned_of(caplog):
    results = corrected(frame()).final()
    first = results[results["revision"] == 0]  # as the warning says

    run_local(first.agg(total=Sum("n")), CLICKS)
    run_local(corrected(frame()).final().agg(last=Last("n")), CLICKS)
    assert not caplog.messages

    again = corrected(frame()).final()
    run_local(again.agg(total=Sum("n"), last=Last("n"), n=Count()), CLICKS)
    assert re.fullmatch(
        r"agg \(test_corrections.py:\d+\) counts a corrected result again in total, n: the window "
        r"at test_corrections.py:\d+ has corrections_ms. Fix: keep .*",
        caplog.messages[0],
    )


def frame_of(sdf):
    return sdf.apply(lambda value: value)


def test_the_first_results_of_corrected_windows_add_up():
    results = corrected(frame()).final()
    first = results[results["revision"] == 0]  # as the error says
    total = first.apply(lambda window: window["n"]).tumbling_window(100).agg(n=Sum())

    records = [*CLICKS, ("k", 1, 500), ("k", 1, 2_000)]
    assert [w["n"] for w in run_local(total.final(), records, batches=1)][:1] == [4]


def test_late_records_of_a_corrected_window_may_have_a_window():
    window = corrected(frame())
    window.final()
    window.late().tumbling_window(10).count().final()


def test_every_result_of_a_window_with_corrections_has_its_revision():
    results = run_local(corrected(frame()).current(), CLICKS, batches=1)

    assert [(w["start"], w["n"], w["revision"]) for w in results] == [
        (0, 1, 0),
        (10, 1, 0),
        (30, 1, 0),
        (0, 2, 1),
        (50, 1, 0),
    ]


def test_a_window_that_a_callback_closes_has_its_revision():
    window = frame().tumbling_window(
        10, corrections_ms=1_000, after_update=lambda n, *record: n == 2
    )

    assert run_local(window.count().final(), [("k", 1, 1), ("k", 1, 2)]) == [
        {"start": 0, "end": 10, "value": 2, "revision": 0}
    ]
