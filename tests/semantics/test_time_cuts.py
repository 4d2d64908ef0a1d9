"""Timers, totals and expiry that neither the cut into batches nor a late record may change.

Small programs, each of which once gave another result.
"""

from datetime import timedelta

from millpond import Application, Count
from millpond.testing import frame, run_local

HOUR = 3_600_000


def tick_five_times(key, state, timer):
    ticks = state.get("ticks", 0) + 1
    state.set("ticks", ticks)
    if ticks < 5:
        state.set_timer("tick", at=timer.at + 10)


def start_ticking(value, state):
    if not state.timers():
        state.set_timer("tick", after=10)
    return value, state.get("ticks", 0)


def test_timers_that_set_themselves_again_do_not_depend_on_batches():
    sdf = frame().apply(start_ticking, stateful=True, on_timer=tick_five_times)
    records = [("a", 0, 0), ("b", 0, 100), ("a", 1, 100)]

    assert run_local(sdf, records)[-1] == (1, 5)
    assert run_local(sdf, records, batches=1)[-1] == (1, 5)


def test_totals_by_batch_expire_as_totals_by_record_do():
    frame_of_an_hour = Application(loglevel=None).dataframe(source=[], state_ttl=HOUR)
    totals = frame_of_an_hour.agg(n=Count(), emit="batch")

    assert run_local(totals, [("a", 1, 0), ("a", 1, 3 * HOUR)])[-1] == {"n": 1}


def test_a_late_record_does_not_shorten_the_life_of_a_total():
    totals = Application(loglevel=None, state_ttl=HOUR).dataframe(source=[]).agg(n=Count())
    records = [("a", 1, 0), ("a", 1, HOUR - 10), ("a", 1, 20), ("a", 1, HOUR + 30)]

    assert run_local(totals, records)[-1] == {"n": 4}


def test_a_value_does_not_expire_by_the_clock_of_another_step():
    def count(value, state):
        state.set("n", state.get("n", 0) + 1, ttl=timedelta(seconds=1))
        return state.get("n")

    sdf = frame()
    sdf.tumbling_window(1_000).count().final().filter(lambda window: False)
    counts = sdf.set_timestamp(lambda value, *_: value).apply(count, stateful=True)
    records = [("a", 0, 0), ("a", 1, 100_000), ("a", 2, 200_000)]

    assert run_local(counts, records) == [1, 2, 3]
    assert run_local(counts, records, batches=1) == [1, 2, 3]
