"""What a person sees while an application runs, where there is no terminal."""

import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond.driver.gather import BatchReport, log_late
from millpond.driver.held_back import HeldBack
from millpond.driver.progress import Meter
from millpond.program.plan import make_plan
from millpond.testing import frame


class Clock:
    """Stands in for the clock of the machine, so that a minute passes at once."""

    def __init__(self, caplog):
        self.now, self._caplog = 1_000.0, caplog

    def monotonic(self):
        return self.now

    def said(self, meter, seconds=0.0):
        """What the meter says when so many seconds have passed."""
        self.now += seconds
        meter._logged -= 60  # so that it speaks at once
        meter.refresh()
        return self._caplog.messages[-1].replace("  ", " ")


@pytest.fixture
def clock(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    clock = Clock(caplog)
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


def batch(number, records, seconds, keys):
    report = BatchReport(number, seconds=seconds, keys={("t", 0): keys})
    report.stages[0].entered = records
    return report


def test_a_run_is_reported_from_its_start_to_its_end(clock, caplog):
    with Meter("shop", {}) as meter:
        assert clock.said(meter, 60) == "shop starting Spark"
        meter.started()
        meter.lag(5_000)
        assert clock.said(meter, 2) == "shop running · first batch · lag 5,000"
        meter.batch(batch(0, 2_000, 2.0, 3))
        line = "2,000 records · 1,000/s · batch 0 · 3 keys in state · lag 3,000"
        assert clock.said(meter) == f"shop running · {line}"
        clock.now += 6

    assert caplog.messages[-1].replace("  ", " ") == (
        "shop stopped · 2,000 records · in 8 s · batch 0 · 3 keys in state · lag 3,000"
    )


def test_the_rate_is_that_of_the_last_seconds(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        for number in range(30):
            clock.now += 1
            meter.batch(batch(number, 100 if number < 20 else 700, 1.0, 1))
        assert "· 700/s ·" in clock.said(meter)
        assert "· 350/s ·" in clock.said(meter, 5)
        assert "· 0/s ·" in clock.said(meter, 60)


def test_a_batch_that_takes_minutes_has_a_rate_until_the_next_is_due(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        for number in range(2):
            clock.now += 100
            meter.batch(batch(number, 50_000, 100.0, 1))
        assert "· 500/s ·" in clock.said(meter)
        assert "· 500/s ·" in clock.said(meter, 150)
        assert "· 0/s ·" in clock.said(meter, 250)


def test_a_slow_stream_has_a_rate_below_one(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        for number in range(10):
            clock.now += 2
            meter.batch(batch(number, 1, 0.1, 1))
        assert "· 0.5/s ·" in clock.said(meter)


def test_nothing_to_do_is_not_a_first_batch(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        meter.lag(0)
        assert clock.said(meter) == "shop running · waiting for records · lag 0"
        meter.lag(None)  # which nobody knows of Spark's own sources
        assert clock.said(meter) == "shop running · first batch"


def test_one_is_written_as_one(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        clock.now += 1
        report = batch(0, 1, 1.0, 1)
        report.stages[0].dead = 1
        meter.batch(report)
        assert "· 1 record · 1.0/s · batch 0 · 1 key in state" in clock.said(meter)
        assert clock.said(meter).endswith("· 1 dead letter")


def test_a_long_batch_after_short_ones_has_the_rate_of_both(clock):
    with Meter("shop", {}) as meter:
        meter.started()
        for number in range(200):
            clock.now += 1
            meter.batch(batch(number, 1_000, 1.0, 1))
        clock.now += 60
        meter.batch(batch(200, 60_000, 60.0, 1))
        assert "· 1,000/s ·" in clock.said(meter)


def test_one_thread_tells_of_batches_while_another_looks():
    meter = Meter("shop", {})
    ended = threading.Event()

    def look():
        while not ended.is_set():
            meter._text()

    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        for number in range(3_000):
            meter.batch(batch(number, 1, 0.001, 1))
        ended.set()
        for one in looking:
            one.result()


def held_back(source="b", since=None, ahead=5):
    return HeldBack(source, since, None, ahead, ("window 'w' (shop.py:3)",), "app.topic('b').")


def test_the_line_names_the_source_that_the_watermark_waits_for(clock):
    now = time.time_ns() // 1_000_000
    with Meter("shop", {}) as meter:
        meter.started()
        meter.batch(batch(0, 1, 1.0, 1))
        meter.held_back = lambda now: [held_back()]
        assert clock.said(meter).endswith("· watermark waits for b (no record yet)")
        meter.held_back = lambda _: [held_back(since=now - 200_000)]
        assert clock.said(meter).endswith("· watermark waits for b (none for 3 min)")
        meter.held_back = lambda _: [held_back(since=now - 1_000)]  # it is slow, and not quiet
        assert "watermark" not in clock.said(meter)
        meter.held_back = lambda _: []
        assert "watermark" not in clock.said(meter)


def test_a_source_that_holds_others_back_is_logged_once_and_then_rarely(clock, caplog):
    def warnings():
        return sum("nothing has come from 'b' yet" in message for message in caplog.messages)

    with Meter("shop", {}) as meter:
        meter.held_back = lambda now: [held_back(), held_back("c", ahead=None)]
        for seconds, logged in ((0, 0), (9, 0), (1, 1), (300, 1), (299, 1), (1, 2), (300, 2)):
            clock.now += seconds
            meter.lag(0)
            assert warnings() == logged
        meter.held_back = lambda now: []
        meter.lag(0)
        meter.held_back = lambda now: [held_back()]
        meter.lag(0)
        assert warnings() == 2
    assert warnings() == 3  # what is still held back at the end of a run is said there


def test_late_records_are_warned_of_with_the_windows_that_nothing_takes_them_of(caplog):
    sdf = frame(name="in")
    taken = sdf.tumbling_window(1_000).count()
    taken.final(), taken.late().apply(print)
    sdf.tumbling_window(5_000, name="long").count().final()
    report = BatchReport(7)
    report.stages[0].late = 2

    log_late(report, make_plan(sdf._graph))

    (warned,) = caplog.messages
    names = r"of long_tumbling_window_5000_count \(test_progress.py:\d+\)\."
    assert re.match(rf"batch 7: 2 record\(s\) came too late; nothing .* {names}\nFix: ", warned)

    log_late(BatchReport(8), make_plan(sdf._graph))
    assert len(caplog.messages) == 1
