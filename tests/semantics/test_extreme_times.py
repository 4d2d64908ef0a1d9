"""Times near the ends of int64: an error of the record or of the call, never of the engine.

The times of records, timers and lifetimes are drawn from the whole of int64, most often near its
ends and near those of the years 1 to 9999, which are the ones that count.
"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from millpond import Application, Collect, Count, Earliest, Latest, Max, Sum
from millpond.arguments.duration import EARLIEST_MS, LATEST_MS
from millpond.errors import ConfigError, StepError
from millpond.testing import ManualClock, frame, run_local

ENDS = [-(2**63), -(2**62), EARLIEST_MS, 0, LATEST_MS, 2**62, 2**63 - 1]
times = st.one_of(
    st.tuples(st.sampled_from(ENDS), st.integers(-20, 20)).map(sum),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 60),
).map(lambda time: min(max(time, -(2**63)), 2**63 - 1))
streams = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3), times), max_size=8)
LONG = timedelta(days=40 * 365)  # the longest length that is taken

WINDOWS = {
    "tumbling": lambda sdf: sdf.tumbling_window(10, grace_ms=3),
    "long": lambda sdf: sdf.tumbling_window(LONG, grace_ms=timedelta(days=366)),
    "corrected": lambda sdf: sdf.tumbling_window(10, corrections_ms=timedelta(days=366)),
    "hopping": lambda sdf: sdf.hopping_window(10, 3, grace_ms=3),
    "long hopping": lambda sdf: sdf.hopping_window(LONG, LONG / 3),
    "sliding": lambda sdf: sdf.sliding_window(10, grace_ms=3),
    "long sliding": lambda sdf: sdf.sliding_window(LONG),
    "session": lambda sdf: sdf.session_window(10, grace_ms=3),
    "long session": lambda sdf: sdf.session_window(LONG),
    "count": lambda sdf: sdf.hopping_count_window(3, 2),
}
RESULTS = {
    "watermark": lambda window: window.final(),
    "key": lambda window: window.final(closing_strategy="key"),
    "current": lambda window: window.current(),
}
TOTALS = {"n": Count(), "sum": Sum(), "latest": Latest(), "earliest": Earliest(), "all": Collect()}
PLAIN = {"n": Count(), "sum": Sum(), "most": Max(), "latest": Latest()}  # these are combined


def windowed(kind, result, aggregations):
    return RESULTS[result](WINDOWS[kind](frame()).agg(**aggregations))


def is_time(moment):
    return EARLIEST_MS <= moment <= LATEST_MS


def check_all(make, records, failing, batches=None):
    """Run records of which some fail; what comes out is what the others alone give."""
    good = [record for record in records if record not in failing]

    run = run_local(make(), records, on_error="dead-letter", batches=batches)

    assert sorted(r.timestamp for r in run.dead_letters) == sorted(r[2] for r in failing)
    assert all(report.reconciles for report in run.reports)
    assert sum(report.read for report in run.reports) == len(records)
    assert sum(report.dead for report in run.reports) == len(failing)
    # Of a single batch, so that records are combined where they can be.
    alone = run_local(make(), good, on_error="stop", batches=batches)
    assert sorted(map(repr, run)) == sorted(map(repr, alone))
    if failing:
        with pytest.raises(StepError, match="Fix:"):
            run_local(make(), records, on_error="stop", batches=batches)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(list(WINDOWS)),
    st.sampled_from(list(RESULTS)),
    st.sampled_from([TOTALS, PLAIN]),
    streams,
    st.sampled_from([None, 1]),
)
@example("tumbling", "watermark", PLAIN, [("a", 1, -(2**63)), ("a", 1, 5)], None)
@example("tumbling", "key", PLAIN, [("a", 1, -(2**63)), ("a", 1, 5)], None)
@example("sliding", "current", TOTALS, [("a", 1, -(2**63) + 7)], None)
@example("hopping", "watermark", PLAIN, [("a", 1, 2**63 - 1), ("b", 2, 2**63 - 3)], None)
@example("long hopping", "watermark", PLAIN, [("a", 1, EARLIEST_MS), ("a", 1, LATEST_MS)], None)
def test_windows_take_every_time_that_is_one(kind, result, aggregations, records, batches):
    if kind == "corrected" and result != "watermark":
        result = "watermark"
    if kind == "count":
        result = "current"
    failing = [record for record in records if not is_time(record[2])]

    check_all(lambda: windowed(kind, result, aggregations), records, failing, batches)


@settings(max_examples=60, deadline=None)
@given(streams, st.sampled_from([None, 1]), st.sampled_from(["record", "batch"]))
def test_running_totals_and_duplicates_take_every_time_that_is_one(records, batches, emit):
    failing = [record for record in records if not is_time(record[2])]

    check_all(lambda: frame().agg(emit=emit, **PLAIN), records, failing, batches)
    check_all(lambda: frame().drop_duplicates(within=LONG), records, failing, batches)


@settings(max_examples=60, deadline=None)
@given(streams, times, st.sampled_from(["set_timestamp", "watermark", "extractor"]))
@example([("a", 1, 5), ("a", 2, 6)], 2**62, "set_timestamp")
def test_a_time_that_a_function_gives_is_checked_alike(records, other, way):
    def make():
        if way == "extractor":
            app = Application(consumer_group="g", loglevel=None)
            topic = app.topic("t", timestamp_extractor=given_time, max_future=None)
            sdf = app.dataframe(topic)
        elif way == "watermark":
            sdf = frame().watermark(5, on=lambda value: value["at"])
        else:
            sdf = frame().set_timestamp(lambda value, key, timestamp, headers: value["at"])
        return sdf.tumbling_window(10).agg(n=Count()).final()

    def given_time(value, headers, timestamp, kind):
        return value["at"]

    items = [(k, {"at": other if v > 0 else v, "n": i}, 7) for i, (k, v, _) in enumerate(records)]
    failing = [item for item in items if not is_time(item[1]["at"])]

    check_all(make, items, failing)


lengths = st.one_of(
    times, st.sampled_from([2**64, 10**5000, -(2**70), timedelta.max, timedelta.min, LONG])
)


@settings(max_examples=150, deadline=None)
@given(streams, lengths, st.sampled_from(["at", "wall", "after", "ttl", "datetime"]))
@example([("a", 1, LATEST_MS)], LONG, "ttl")
@example([("a", 1, LATEST_MS)], datetime.max.replace(tzinfo=UTC), "datetime")
@example([("a", 1, LATEST_MS), ("a", 0, 1)], datetime.min.replace(tzinfo=UTC), "datetime")
def test_timers_and_lifetimes_take_every_time_that_is_one(records, length, way):
    def keep(value, state):
        if value > 0 and way == "ttl":
            state.set("seen", value, ttl=length)
        elif value > 0 and way == "after":
            state.set_timer("t", after=length)
        elif value > 0:
            state.set_timer("t", at=length, clock="processing" if way == "wall" else "event")
        state.set("n", state.get("n", 0) + 1)
        return state.get("n")

    def make():
        return frame().apply(keep, stateful=True, on_timer=lambda key, state, timer: timer.at)

    if way in ("ttl", "after"):
        least = timedelta(0) if way == "after" else timedelta(milliseconds=1)
        span = length if isinstance(length, timedelta) else None
        if span is None and abs(length) < 10**15:
            span = timedelta(milliseconds=length)
        is_fit = span is not None and least <= span <= LONG
    else:
        is_fit = isinstance(length, datetime) or (type(length) is int and is_time(length))
    failing = [r for r in records if not is_time(r[2]) or (r[1] > 0 and not is_fit)]

    check_all(make, records, failing)


def test_a_processing_timer_fires_at_the_end_of_time():
    def wait(value, state):
        state.set_timer("last", at=LATEST_MS, clock="processing")

    clock = ManualClock(LATEST_MS)
    sdf = frame().update(wait, stateful=True, on_timer=lambda key, state, timer: timer.at)

    assert run_local(sdf, [("a", 1)], clock=clock) == [1, LATEST_MS]


@pytest.mark.parametrize("time", [-(2**63), EARLIEST_MS - 1, LATEST_MS + 1, 2**70, -(2**70)])
def test_the_error_names_the_time_and_what_to_do(time):
    run = run_local(frame(), [("a", 1, time), ("a", 2, 5)], on_error="dead-letter")

    assert run == [2]
    (letter,) = run.dead_letters
    headers = dict(letter.headers)
    assert b"is not in the years 1 to 9999" in headers["millpond.error"]
    assert b"Fix: correct the producer" in headers["millpond.error"]
    with pytest.raises(StepError, match=r"offset 0, key 'a': .*years 1 to 9999(.|\n)*Fix: corr"):
        run_local(frame(), [("a", 1, time)])


@pytest.mark.parametrize("at", [-(2**63), EARLIEST_MS - 1, LATEST_MS + 1, 2**63 - 1, 2**70])
def test_a_timer_out_of_range_is_refused_at_the_call(at):
    def wait(value, state):
        with pytest.raises(ConfigError, match=r"at is .*years 1 to 9999(.|\n)*Fix:"):
            state.set_timer("t", at=at)

    sdf = frame().update(wait, stateful=True, on_timer=lambda key, state, timer: timer.at)

    assert run_local(sdf, [("a", 1, 5)]) == [1]


def test_windows_without_number_are_refused_at_the_call():
    frame().hopping_window(timedelta(days=1), timedelta(seconds=1))

    with pytest.raises(ConfigError, match=r"belong to 1,261,440,000,000 windows(.|\n)*Fix:"):
        frame().hopping_window(LONG, 1)
