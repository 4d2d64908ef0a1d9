"""Time after a `concat`: how it is read does not depend on which frame comes first."""

from datetime import timedelta

import pytest

import millpond as mp
from millpond.arguments.windows import Clocking
from millpond.program.graph import clocking_above
from millpond.testing import LocalEngine, ManualClock

NOW = 10**9


def timed_again(sdf):
    return sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp)


def closed_by_key(sdf):
    by_value = sdf.group_by(lambda value: value, name="value")
    return by_value.tumbling_window(20).max().final("key").apply(lambda window: window["value"])


def run(is_turned, then, records_of_exact, records_of_late, batches=None, **options):
    """Windows over two topics, of which `late` may be late by 1,000."""
    app = mp.Application(consumer_group="two", loglevel=None)
    frames = [
        app.dataframe(app.topic("exact", **options)),
        app.dataframe(app.topic("late", lateness=1_000, max_future=None)),
    ]
    one, two = frames[::-1] if is_turned else frames
    window = then(one.concat(two)).tumbling_window(10).count()
    window.final()
    engine = LocalEngine(window.late(), clock=ManualClock(NOW))
    engine.feed(records_of_exact, "exact")
    engine.feed(records_of_late, "late")
    return engine.run(batches)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("then", [timed_again, closed_by_key])
def test_a_record_within_the_lateness_of_its_topic_is_on_time_in_both_orders(then, is_turned):
    times = [("a", 1_000), ("b", 2_000), ("a", 1_500), ("b", 5_000), ("a", 4_200), ("b", 9_000)]
    late = [("k", value, at) for value, at in [*times, ("a", 8_500)]]
    exact = [("k", "c", 1_000), ("k", "c", 2_000)]

    found = run(is_turned, then, exact, late, batches=[2] + [1] * 7)

    assert sum(report.late for report in found.reports) == 0


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_record_as_far_in_the_future_as_its_topic_allows_is_taken_in_both_orders(is_turned):
    found = run(is_turned, timed_again, [("k", 0, NOW)], [("k", 0, NOW + 10**10)])

    assert found.dead_letters == []


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "loosest"),
    [
        ({"lateness": 5}, {"lateness": 3}, Clocking(5, 3_600_000, None)),
        ({"idle_after": 60}, {"idle_after": 70}, Clocking(0, 3_600_000, 70)),
        ({"idle_after": 60}, {}, Clocking(0, 3_600_000, None)),
        ({"max_future": 7}, {"max_future": timedelta(seconds=1)}, Clocking(0, 1_000, None)),
        ({"max_future": 7, "idle_after": 1}, {"max_future": None, "idle_after": 2},
         Clocking(0, None, 2)),
    ],
)  # fmt: skip
def test_the_loosest_of_the_settings_counts(left, right, loosest, is_turned):
    app = mp.Application(consumer_group="two", loglevel=None)
    frames = [app.dataframe(app.topic("a", **left)), app.dataframe(app.topic("b", **right))]
    one, two = frames[::-1] if is_turned else frames

    both = one.concat(two).concat(one.apply(lambda value: value))

    assert clocking_above(both._head) == loosest
    assert both.watermark()._head.clocking.max_future_ms == loosest.max_future_ms
