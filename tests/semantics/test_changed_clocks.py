"""A changed program takes the time from another place: what was given is not given again."""

import pytest

import millpond as mp
from millpond.testing import LocalEngine


def windows(change=lambda sdf: sdf, topics=("clicks",), length=10):
    app = mp.Application(loglevel=None)
    first, *others = (app.dataframe(app.topic(name, max_future=None)) for name in topics)
    for other in others:
        first = first.concat(other)
    sdf = change(first).group_by("user", name="user")
    return sdf.tumbling_window(length).count().final()


def run(sdf, times, after=None):
    engine = LocalEngine(sdf, after=after)
    name = engine.plan.topics[0]
    engine.feed([("k", {"user": "ann"}, time) for time in times], name)
    return engine, list(engine.run())


@pytest.mark.parametrize(
    "change",
    [
        lambda sdf: sdf.watermark(lateness=20),
        lambda sdf: sdf.watermark(on=lambda value: 9),
        lambda sdf: sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp),
    ],
)
def test_windows_that_were_given_stay_closed_under_a_new_watermark(change):
    engine, given = run(windows(), [5, 30])
    assert [window["start"] for window in given] == [0]

    changed = windows(change)
    engine, given = run(changed, [6, 7], after=engine)

    assert given == []
    assert sum(report.late for report in engine.reports) == 2


def test_a_new_watermark_goes_on_where_the_old_one_was_and_moves_with_its_own_records():
    engine, _ = run(windows(), [5, 30])

    engine, given = run(windows(lambda sdf: sdf.watermark(lateness=20)), [31, 55], after=engine)
    assert given == []  # 35 is not enough for the window up to 40
    engine, given = run(windows(lambda sdf: sdf.watermark(lateness=20)), [61], after=engine)

    assert [(window["start"], window["value"]) for window in given] == [(30, 2)]


def test_the_first_watermark_of_a_program_begins_with_its_records():
    engine, given = run(windows(), [5, 3, 12])

    assert [window["value"] for window in given] == [2]
