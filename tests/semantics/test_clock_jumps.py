"""The wall clock of a machine is set a day ahead, or back: what goes by it goes by it as it is."""

from __future__ import annotations

from datetime import timedelta

import millpond as mp
from millpond.testing import LocalEngine, ManualClock, frame

MINUTE, DAY = 60_000, 86_400_000
NOON = 20_000 * DAY + DAY // 2


def remind(value, state):
    state.set_timer("reminder", after=10 * MINUTE, clock="processing")


def reminders(clock):
    step = frame().apply(remind, stateful=True, on_timer=lambda key, state, timer: f"call {key}")
    return LocalEngine(step.filter(bool), clock=clock)


def run(engine, *records):
    engine.feed(records)
    done = len(engine.values)
    return engine.run()[done:]


def test_a_timer_that_is_set_after_a_jump_there_and_back_fires_when_its_time_has_passed():
    clock = ManualClock(NOON)
    engine = reminders(clock)
    clock.advance(DAY)
    assert run(engine, ("ann", "order")) == []
    clock.advance(-DAY)
    assert run(engine, ("bob", "order")) == []

    clock.advance(10 * MINUTE)

    assert run(engine) == ["call bob"]


def test_a_timer_that_is_due_by_the_clock_as_it_is_fires_once():
    clock = ManualClock(NOON)
    engine = reminders(clock)
    run(engine, ("ann", "order"))

    clock.advance(DAY)
    assert run(engine) == ["call ann"]
    clock.advance(-DAY)
    assert run(engine) == []
    clock.advance(10 * MINUTE)
    assert run(engine) == []


def test_the_guard_against_the_future_closes_when_the_clock_is_set_back():
    app = mp.Application(consumer_group="jumps")
    topic = app.topic("in", max_future=timedelta(hours=1))
    counted = app.dataframe(topic).tumbling_window(MINUTE).count().final()
    clock = ManualClock(NOON)
    engine = LocalEngine(counted, clock=clock)
    clock.advance(DAY)
    run(engine, ("ann", 1, NOON))
    clock.advance(-DAY)

    assert run(engine, ("ann", 1, NOON + DAY - 1)) == []

    (dead,) = engine.topics[engine.dead_letter_topic]
    assert b"FutureTimestampError" in dict(dead.headers)["millpond.error"]
    assert f"is {DAY - 1} ms ahead".encode() in dict(dead.headers)["millpond.error"]


def windows(clock):
    quiet = frame().watermark(idle_after=timedelta(minutes=1))
    window = quiet.tumbling_window(MINUTE).count()
    return LocalEngine(window.final(), clock=clock)


def test_an_idle_stream_goes_by_the_clock_after_it_was_set_back_and_its_records_are_on_time():
    clock = ManualClock(NOON)
    engine = windows(clock)
    clock.advance(DAY)
    assert run(engine, ("ann", "click", NOON)) == []
    clock.advance(-DAY)

    assert run(engine) == []  # it is looked at, and quiet from here on
    clock.advance(2 * MINUTE)
    assert run(engine) == [{"start": NOON, "end": NOON + MINUTE, "value": 1}]

    assert run(engine, ("ann", "click", NOON + 2 * MINUTE)) == []
    clock.advance(MINUTE)
    assert [window["start"] for window in run(engine)] == [NOON + 2 * MINUTE]
    assert sum(report.late for report in engine.reports) == 0


def test_a_watermark_that_has_gone_ahead_with_the_clock_does_not_go_back():
    clock = ManualClock(NOON)
    engine = windows(clock)
    run(engine, ("ann", "click", NOON))
    clock.advance(DAY)
    assert len(run(engine)) == 1
    clock.advance(-DAY)

    assert run(engine, ("ann", "click", NOON + MINUTE)) == []

    assert sum(report.late for report in engine.reports) == 1


def test_a_batch_that_runs_again_has_the_wall_clock_of_the_first_time():
    clock, seen = ManualClock(NOON), []

    def note(value, state):
        state.set_timer("at", after=0, clock="processing")

    def fired(key, state, timer):
        seen.append(timer.at)

    step = frame().apply(note, stateful=True, on_timer=fired)
    engine = LocalEngine(step, clock=clock, copy_functions=False)
    engine.feed([("ann", 1), mp.testing.CRASH])
    try:
        engine.run()
    except mp.errors.SimulatedCrash:
        clock.advance(-DAY)
    engine.run()

    assert set(seen) == {NOON}
