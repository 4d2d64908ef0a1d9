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


def chain(first, second=20, change=lambda sdf: sdf):
    """A window of the results of another one."""
    app = mp.Application(loglevel=None)
    sdf = change(app.dataframe(app.topic("clicks", max_future=None))).group_by("user", name="user")
    inner = sdf.tumbling_window(first, name="first").agg(n=mp.Count()).final()
    return inner.tumbling_window(second, name="second").agg(n=mp.Sum("n")).final()


@pytest.mark.parametrize(
    "changed",
    [
        lambda: chain(10, change=lambda sdf: sdf.watermark(lateness=20)),
        lambda: chain(30),  # what comes before holds it back more
    ],
)
def test_a_window_after_a_window_gives_nothing_again(changed):
    engine, given = run(chain(10), [5, 15, 25, 65, 95])
    assert [window["start"] for window in given] == [0, 20, 60]

    engine = LocalEngine(changed(), after=engine, on_state_change="accept")
    for times in ([6, 26], [100], [200], [300]):
        engine.feed([("k", {"user": "ann"}, time) for time in times])
        engine.run()

    starts = [window["start"] for window in engine.values]
    assert not {0, 20, 60} & set(starts)
    assert len(starts) == len(set(starts))


def test_a_window_that_moves_to_a_watermark_that_is_there_gives_nothing_again():
    def program(from_slow):
        app = mp.Application(loglevel=None)
        sdf = app.dataframe(app.topic("clicks", max_future=None))
        slow = sdf.watermark(lateness=60)
        slow.group_by("user", name="slow").tumbling_window(50).count().final()
        fast = (slow if from_slow else sdf).group_by("user", name="user")
        return fast.tumbling_window(10).count().final()

    engine, given = run(program(from_slow=False), [5, 30])
    assert [window["start"] for window in given] == [0]

    engine, given = run(program(from_slow=True), [6, 7], after=engine)

    assert [window["start"] for window in given] == []


def test_a_new_window_on_a_watermark_that_another_one_moves_to_loses_nothing():
    def program(both):
        app = mp.Application(loglevel=None)
        one, other = (app.dataframe(app.topic(name, max_future=None)) for name in "ab")
        if both:
            other.group_by("user", name="new").tumbling_window(10).count().final()
            one = one.concat(other)
        return one.group_by("user", name="user").tumbling_window(10).count().final()

    engine = LocalEngine(program(both=False))
    engine.feed({"a": [("k", {"user": "ann"}, time) for time in (5, 100)]})
    engine.run()

    changed = LocalEngine(program(both=True), after=engine, on_state_change="accept")
    changed.feed({"b": [("k", {"user": "ann"}, time) for time in (10, 20, 40, 300)]})
    changed.run()

    assert {window["start"] for window in changed.values} == {10, 20, 40}
    assert sum(report.late for report in changed.reports) == 0
