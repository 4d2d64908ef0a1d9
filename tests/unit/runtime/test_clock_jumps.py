"""What a Timekeeper makes of a wall clock that is set, and what is logged of it."""

from __future__ import annotations

import logging

import pytest

from millpond.driver.clock_jumps import JumpWatch
from millpond.driver.gather import BatchReport
from millpond.driver.timekeeper import Clockwork, PointSettings, Timekeeper
from millpond.wire.clock import Clock

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
NOON = 20_000 * DAY + DAY // 2


def keeper(idle=MINUTE):
    work = Clockwork((PointSettings("in", 0, idle, ("in",)),), {"in": {"in": (0,)}}, groups=1)
    return Timekeeper(work, is_sure=True)


def saw(keeper, seq, timestamp, now):
    report = BatchReport(0)
    report.clock_seq, report.times = seq, {0: timestamp}
    keeper.observe(report, now, {})


def marks(keeper, now, **more):
    """Return the watermark that the next batch would have, where records of another wait."""
    return keeper.next({"seq": 1}, now, ["other"], **more).clock.marks


def test_a_batch_has_the_wall_clock_as_it_is_whatever_the_last_one_had():
    """Plans of earlier versions may have a time that is ahead."""
    tick = keeper().next({"seq": 7, "now": NOON + DAY, "marks": {}}, NOON, ["in"])

    assert (tick.clock.seq, tick.clock.now) == (8, NOON)


def test_a_plan_of_an_earlier_version_is_replayed_at_its_time():
    offset = {"seq": 7, "now": NOON + DAY, "marks": {"in": NOON}, "before": {}, "wake": {}}

    assert keeper().from_offset(offset).clock == Clock(7, NOON + DAY, (NOON,), (None,))


def test_a_clock_that_an_earlier_version_has_written_is_read():
    written = bytes.fromhex("9407cf0000019274dd4c0091cf0000019274dd488091c0")

    assert Clock.decode(written) == Clock(7, 0x19274DD4C00, (0x19274DD4880,), (None,))
    assert Clock.decode(written).encode() == written


def test_a_stream_is_not_idle_because_the_clock_was_set_ahead():
    watch = keeper()
    saw(watch, 1, NOON, NOON)
    assert marks(watch, NOON) == (NOON,)

    assert marks(watch, NOON + DAY + SECOND, jump=DAY) == (NOON,)
    assert marks(watch, NOON + DAY + 59 * SECOND) == (NOON,)
    assert marks(watch, NOON + DAY + 60 * SECOND) == (NOON + DAY + MINUTE,)


def test_a_stream_that_is_quiet_is_idle_in_time_though_the_clock_was_set_back():
    watch = keeper()
    saw(watch, 1, NOON, NOON + DAY)
    assert marks(watch, NOON + DAY) == (NOON,)

    assert marks(watch, NOON + 30 * SECOND, jump=-DAY) == (NOON,)
    assert marks(watch, NOON + 60 * SECOND) == (NOON + MINUTE,)


def test_without_another_clock_a_stream_is_quiet_from_when_the_clock_is_seen_to_be_back():
    watch = keeper()
    assert marks(watch, NOON + DAY) == (None,)

    assert marks(watch, NOON) == (None,)
    assert marks(watch, NOON + MINUTE) == (NOON + MINUTE,)


def test_a_drain_does_not_take_a_stream_for_idle_whose_last_record_came_in_the_future():
    watch = keeper()
    watch.waits = False
    saw(watch, 1, NOON, NOON + DAY)

    assert marks(watch, NOON) == (NOON,)


def test_a_watermark_does_not_go_back_with_the_clock():
    tick = keeper().next({"seq": 1, "marks": {"in": NOON + DAY}}, NOON, ["in"])

    assert tick.clock.marks == (NOON + DAY,)


@pytest.mark.parametrize(
    ("set_by", "said"),
    [
        (DAY, "set forward by 24 h: it shows 1970-01-03 00:00:10 UTC, where 1970-01-02 00:00:10"),
        (-DAY, "set back by 24 h: it shows 1970-01-01 00:00:10 UTC, where 1970-01-02 00:00:10"),
    ],
)
def test_a_jump_is_logged_once_with_both_times(set_by, said, caplog):
    watch = JumpWatch()
    with caplog.at_level(logging.WARNING, "millpond"):
        assert watch.log(DAY, 5.0) == 0
        assert watch.log(DAY + 10 * SECOND + set_by, 15.0) == set_by
        assert watch.log(DAY + 20 * SECOND + set_by, 25.0) == 0

    (message,) = caplog.messages
    assert said in message
    assert "Fix:" in message


def test_a_clock_that_is_put_right_by_seconds_does_not_jump(caplog):
    watch = JumpWatch()

    assert [watch.log(at, 0.0) for at in (DAY, DAY + 60 * SECOND, DAY - 60 * SECOND)] == [0, 0, 0]
    assert watch.log(DAY + 61 * SECOND, 0.0) == 61 * SECOND
    assert len(caplog.messages) == 1
