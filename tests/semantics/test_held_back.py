"""A watermark that stands still says for which source it waits, since when, and what to do."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import millpond as mp
from millpond.testing import ListSource, LocalEngine, ManualClock

SECOND, MINUTE = 1_000, 60_000
NOW = 10**9
TEN_SECONDS_OF_A = [("k", 1, second * SECOND) for second in range(11)]


def application():
    return mp.Application(consumer_group="held", loglevel=None)


def counted(sdf):
    return sdf.tumbling_window(SECOND).count().final()


def two_topics(**options):
    """Windows over two topics, of which the second has some options."""
    app = application()
    a, b = app.dataframe(app.topic("a")), app.dataframe(app.topic("b", **options))
    return counted(a.concat(b))


def run(program, clock, **records):
    engine = LocalEngine(program, clock=clock)
    for name, items in records.items():
        engine.feed(items, name)
    engine.run()
    return engine


def test_a_topic_without_a_record_is_named_as_what_windows_wait_for(caplog):
    engine = run(two_topics(), ManualClock(NOW), a=TEN_SECONDS_OF_A)

    assert engine.values == []
    [held] = engine.reports[-1].held_back
    assert (held.source, held.since, held.watermark, held.ahead) == ("b", None, None, 10_000)
    [logged] = [r for r in caplog.records if r.levelno == logging.WARNING]
    said, fix = logged.getMessage().split("\n")
    assert said.startswith("nothing has come from 'b' yet, so the watermark has no value")
    assert "other records are at 1970-01-01 00:00:10 UTC" in said
    assert "window 'tumbling_window_1000_count' (test_held_back.py:" in said
    assert fix == (
        "Fix: check that its name is right; or add idle_after=timedelta(minutes=1) to "
        "app.topic('b', ...)."
    )


def test_a_topic_that_went_quiet_is_named_with_the_time_of_its_last_record():
    clock = ManualClock(NOW)
    engine = run(two_topics(), clock, a=TEN_SECONDS_OF_A[:4], b=[("k", 1, 3_000)])
    assert engine.reports[-1].held_back == []

    clock.advance(MINUTE)
    engine.feed(TEN_SECONDS_OF_A[4:], "a")
    engine.run()

    [held] = engine.reports[-1].held_back
    assert (held.source, held.since, held.watermark, held.ahead) == ("b", NOW, 3_000, 10_000)
    assert "since 1970-01-12 13:46:40 UTC, so the watermark stays at" in str(held)


def test_a_topic_that_is_only_a_little_behind_holds_nothing_back(caplog):
    engine = run(two_topics(), ManualClock(NOW), a=[("k", 1, 10_700)], b=[("k", 1, 10_200)])

    assert engine.reports[-1].held_back == []
    assert caplog.records == []


def test_every_topic_without_a_record_is_named():
    app = application()
    a, b, c = (app.dataframe(app.topic(name)) for name in "abc")
    engine = run(counted(a.concat(b).concat(c)), ManualClock(NOW), a=TEN_SECONDS_OF_A)

    assert [held.source for held in engine.reports[-1].held_back] == ["b", "c"]


def test_the_only_stream_of_a_window_is_named_when_it_is_quiet(caplog):
    app = application()
    clock = ManualClock(NOW)
    engine = run(counted(app.dataframe(app.topic("a"))), clock, a=TEN_SECONDS_OF_A)
    assert engine.reports[-1].held_back == []

    clock.advance(MINUTE)

    [held] = engine._keeper.held_back(clock())
    assert (held.source, held.since, held.watermark, held.ahead) == ("a", NOW, 10_000, None)
    assert caplog.records == []  # the end of a stream is nothing to warn of


def test_where_nothing_waits_for_the_watermark_nothing_is_held_back():
    app = application()
    both = app.dataframe(app.topic("a")).concat(app.dataframe(app.topic("b")))
    engine = run(both.agg(n=mp.Count()), ManualClock(NOW), a=TEN_SECONDS_OF_A)

    assert engine.reports[-1].held_back == []


def list_without_items(app, fixed):
    empty = app.dataframe(source=ListSource([], name="b"))
    # That is what the fix says.
    return empty.watermark(idle_after=timedelta(minutes=1)) if fixed else empty


def own_time(app, fixed):
    sdf = app.dataframe(app.topic("b", lateness=5)).set_timestamp(lambda v, k, t, h: t)
    late = timedelta(milliseconds=5)
    return sdf.watermark(late, idle_after=timedelta(minutes=1)) if fixed else sdf


def own_watermark(app, fixed):
    sdf = app.dataframe(app.topic("b"))
    return sdf.watermark(7, idle_after=timedelta(minutes=1)) if fixed else sdf.watermark(7)


def topic(app, fixed):
    options = {"idle_after": timedelta(minutes=1)} if fixed else {}
    return app.dataframe(app.topic("b", **options))


IDLE = "idle_after=timedelta(minutes=1)"


@pytest.mark.parametrize(
    ("quiet", "fix"),
    [
        (topic, f"add {IDLE} to app.topic('b', ...)."),
        (own_watermark, f"add {IDLE} to watermark(...) at test_held_back.py:"),
        (list_without_items, f".watermark({IDLE}) right after read 'b' at test_held_back.py:"),
        (own_time, f".watermark(timedelta(milliseconds=5), {IDLE}) right after set_timestamp "),
    ],
)
def test_what_the_fix_says_lets_the_windows_close(quiet, fix):
    def build(fixed):
        app = application()
        a = app.dataframe(app.topic("a"))
        return counted(a.concat(quiet(app, fixed)))

    [held] = run(build(False), ManualClock(NOW), a=TEN_SECONDS_OF_A).reports[-1].held_back
    assert held.fix.startswith(fix)

    clock = ManualClock(NOW)
    engine = run(build(True), clock, a=TEN_SECONDS_OF_A)
    assert engine.values == []
    assert engine.reports[-1].held_back[0].fix == (
        "wait: the others go on after 1 min without a record."
    )
    clock.advance(MINUTE)
    assert len(engine.run()) == 10
    [held] = engine.reports[-1].held_back
    assert (held.source, held.ahead) == ("a", None)  # its own last window waits for its next record
