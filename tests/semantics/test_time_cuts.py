"""Timers, totals and expiry that neither the cut into batches nor a late record may change.

Small programs, each of which once gave another result.
"""

from datetime import timedelta

import pytest

from millpond import Application, Count
from millpond.errors import PlanError
from millpond.testing import LocalEngine, frame, run_local

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


# --- steps that stand together ----------------------------------------------------------------


def ring_far_ahead(value, state):
    state.set_timer("far", after=1_000_000)
    return value


def test_a_timer_that_waits_does_not_disturb_a_sliding_window():
    sdf = frame().apply(ring_far_ahead, stateful=True, on_timer=lambda key, state, timer: None)
    records = [("k", 1, 0), ("k", 1, 10), ("k", 1, 5_000), ("k", 1, 9_000)]

    run = run_local(sdf.sliding_window(1_000).count().final(), records, batches=1)

    assert [result["value"] for result in run] == [1, 2, 1]


def merged(batch, state):
    return batch.select(["user"])


def test_state_after_a_table_needs_a_key_of_its_own():
    def tables():
        return frame().group_by("user").update_state(merged, "t")

    with pytest.raises(PlanError, match=r"update_state(.|\n)*Fix: give them their key first"):
        LocalEngine(tables().apply(lambda value, state: value, stateful=True))

    counted = tables().group_by("user").agg(n=Count())
    assert run_local(counted, [{"user": "ann"}, {"user": "bob"}], groups=1) == [{"n": 1}, {"n": 1}]


def test_a_row_of_a_table_that_fails_takes_no_other_along():
    def refuse_bob(row):
        if row["user"] == "bob":
            raise ValueError("not bob")
        return row["user"]

    sdf = frame().group_by("user").update_state(merged, "t").apply(refuse_bob)
    users = [{"user": name} for name in ("ann", "bob", "cy", "dan")]

    run = run_local(sdf, users, groups=1, on_error="dead-letter")

    assert sorted(run) == ["ann", "cy", "dan"]
    assert len(run.dead_letters) == 1


def fail(key, state, timer):
    raise ValueError("no")


def ring_soon(value, state):
    state.set_timer("soon", after=100)
    return value


def test_a_timer_that_fails_after_a_window_takes_no_window_along():
    sdf = frame().tumbling_window(1_000).count().final()
    sdf = sdf.apply(ring_soon, stateful=True, on_timer=fail)
    records = [("k", 1, t) for t in (0, 5_000, 9_000, 20_000)]

    run = run_local(sdf, records, batches=1, on_error="dead-letter")

    assert [result["start"] for result in run] == [0, 5_000, 9_000]
    assert len(run.dead_letters) >= 2
    assert all(report.reconciles for report in run.reports)


def test_a_timer_that_fails_after_totals_takes_no_total_along():
    sdf = frame().agg(n=Count(), emit="batch")
    sdf = sdf.apply(ring_soon, stateful=True, on_timer=fail)
    records = [("k", 1, t) for t in (0, 5_000, 9_000)]

    run = run_local(sdf, records, batches=1, on_error="dead-letter")

    assert list(run) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert all(report.reconciles for report in run.reports)


def test_timers_that_fail_after_the_totals_of_several_keys_are_set_aside_one_by_one():
    sdf = frame().agg(n=Count(), emit="batch")
    sdf = sdf.apply(ring_soon, stateful=True, on_timer=fail)
    records = [(key, 1, t) for t in (0, 5_000, 9_000) for key in "abc"]

    run = run_local(sdf, records, batches=3, groups=1, on_error="dead-letter")

    assert [result["n"] for result in run] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sorted(letter.key for letter in run.dead_letters) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert all(report.reconciles for report in run.reports)


def test_a_clock_that_stands_still_keeps_nothing_of_another_alive():
    def keep(value, state):
        state.set("v", value, ttl=1_000)

    sdf = frame()
    rare = sdf.filter(lambda value: value == "never").set_timestamp(lambda value, *_: 0)
    rare.apply(lambda value, state: value, stateful=True)
    kept = sdf.update(keep, stateful=True)
    records = [(f"k{i}", i, i * 100) for i in range(300)]

    run = run_local(kept, records, batches=30)

    alive = [key for key in (f"k{i}" for i in range(300)) if run.state(key)]
    assert len(alive) <= 41


def test_each_branch_has_the_time_of_its_own_records():
    seen = []

    def look(value, state):
        seen.append(state.timestamp)

    sdf = frame()
    sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + 1_000_000).update(
        look, stateful=True
    )
    other = sdf.apply(lambda value, state: state.timestamp, stateful=True)

    assert 5 in list(run_local(other, [("k", 1, 5)], copy_functions=False))
    assert seen == [1_000_005]


def test_after_a_window_the_time_is_that_of_its_result():
    sdf = frame().tumbling_window(1_000).count().final()
    times = sdf.apply(
        lambda value, key, timestamp, headers, state: (timestamp, state.timestamp),
        stateful=True,
        metadata=True,
    )

    assert run_local(times, [("k", 1, 500), ("k", 1, 2_500)]) == [(0, 0)]


# --- another program over the same state -------------------------------------------------------


def windowed_with(steps):
    sdf = frame()
    if "extra" in steps:
        sdf.apply(lambda value, state: value, stateful=True).filter(lambda value: False)
    if "watermark" in steps:
        sdf = sdf.watermark(0)
    return sdf.tumbling_window(1_000).agg(n=Count()).final()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"extra", "watermark"}, {"watermark"}),
        ({"watermark"}, {"extra", "watermark"}),
        (set(), {"watermark"}),
        ({"watermark"}, set()),
    ],
    ids=["one step less", "one step more", "a watermark more", "a watermark less"],
)
def test_a_window_that_another_program_opened_closes(first, second):
    before = LocalEngine(windowed_with(first))
    before.feed([("k", 1, 100), ("k", 1, 200)])
    before.run()
    after = LocalEngine(windowed_with(second))
    after.stores = before.stores
    after._keeper.is_sure = False
    after._last = {"seq": 1}

    after.feed([("k", 1, 300), ("other", 1, 5_000)])

    assert {"start": 0, "end": 1_000, "n": 3} in list(after.run())
