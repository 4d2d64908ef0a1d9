"""Wrong durations, times and values: an error at the call, or a dead letter that says why."""

import math
from datetime import datetime, timedelta

import pytest

from millpond import (
    Application,
    Count,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)
from millpond.errors import ConfigError, PlanError, StepError
from millpond.testing import LocalEngine, frame, run_local

TODAY_MS = 1_800_000_000_000


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10s", None, timedelta(0), timedelta(days=-1)])
@pytest.mark.parametrize(
    "call",
    [
        lambda sdf, ms: sdf.tumbling_window(ms),
        lambda sdf, ms: sdf.hopping_window(ms, 1),
        lambda sdf, ms: sdf.hopping_window(10, ms),
        lambda sdf, ms: sdf.sliding_window(ms),
        lambda sdf, ms: sdf.session_window(ms),
    ],
    ids=["tumbling", "hopping", "step", "sliding", "session"],
)
def test_a_duration_is_a_time_above_zero(call, wrong):
    with pytest.raises(ConfigError, match=r"_ms (is|must)(.|\n)*Fix:"):
        call(frame(), wrong)


@pytest.mark.parametrize("wrong", [-1, 0.5, "1s", timedelta(seconds=-1), TODAY_MS])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda sdf, ms: sdf.tumbling_window(10, grace_ms=ms), "grace_ms"),
        (lambda sdf, ms: sdf.hopping_window(10, 5, grace_ms=ms), "grace_ms"),
        (lambda sdf, ms: sdf.sliding_window(10, grace_ms=ms), "grace_ms"),
        (lambda sdf, ms: sdf.session_window(10, grace_ms=ms), "grace_ms"),
        (lambda sdf, ms: sdf.tumbling_window(10, corrections_ms=ms), "corrections_ms"),
        (lambda sdf, ms: sdf.watermark(ms), "lateness"),
        (lambda sdf, ms: sdf.watermark(max_future=ms), "max_future"),
        (lambda sdf, ms: sdf.watermark(idle_after=ms), "idle_after"),
        (lambda sdf, ms: sdf.drop_duplicates("id", within=ms), "within"),
    ],
)
def test_grace_and_lateness_are_times_that_make_sense(call, name, wrong):
    with pytest.raises(ConfigError, match=rf"{name}(.|\n)*Fix:"):
        call(frame(), wrong)


def test_a_date_for_a_duration_is_found_out():
    with pytest.raises(ConfigError, match="was a date given"):
        frame().tumbling_window(TODAY_MS)


def test_a_step_longer_than_the_window_would_lose_records():
    with pytest.raises(ConfigError, match="would be lost"):
        frame().hopping_window(10, 11)
    with pytest.raises(ConfigError, match="would be lost"):
        frame().hopping_count_window(2, 3)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", None, True])
def test_a_count_window_needs_a_count(wrong):
    for call in (frame().tumbling_count_window, frame().sliding_count_window):
        with pytest.raises(ConfigError, match=r"count(.|\n)*Fix:"):
            call(wrong)


@pytest.mark.parametrize("wrong", [0, -5, "1h", 0.5])
def test_a_ttl_is_a_time_above_zero(tmp_path, wrong):
    with pytest.raises(ConfigError, match=r"state_ttl(.|\n)*Fix:"):
        Application(state_ttl=wrong, topics_dir=tmp_path, loglevel=None)
    app = Application(topics_dir=tmp_path, loglevel=None)
    with pytest.raises(ConfigError, match=r"state_ttl(.|\n)*Fix:"):
        app.dataframe(source=[1], state_ttl=wrong)
    with pytest.raises(StepError, match=r"ttl(.|\n)*Fix:"):
        run_local(
            frame().update(lambda value, state: state.set("n", 1, ttl=wrong), stateful=True), [1]
        )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda w: w.agg(), "at least one"),
        (lambda w: w.agg(start=Count()), "a field 'start' of its own"),
        (lambda w: w.agg(n=Count), "Fix:"),
        (lambda w: w.agg(n=len), "Fix:"),
        (lambda w: w.count().final("partition"), "'watermark' or 'key'"),
        (lambda w: w.count().late(), "before final"),
        (lambda w: w.reduce(1, 2), "Fix:"),
    ],
    ids=["none", "taken", "class", "function", "strategy", "late first", "reduce"],
)
def test_a_window_is_checked_as_it_is_built(call, text):
    with pytest.raises(ConfigError, match=text):
        call(frame().tumbling_window(10))


def test_a_window_has_one_output_of_results():
    window = frame().tumbling_window(10).count()
    window.final()
    with pytest.raises(ConfigError, match=r"final\(\) already(.|\n)*Fix:"):
        window.current()


def test_two_windows_of_one_name_are_refused_with_both_places():
    sdf = frame()
    sdf.tumbling_window(10).count().final()
    other = sdf.tumbling_window(10).count().current()
    with pytest.raises(PlanError, match=r"test_bad_time.py:\d+\) and(.|\n)*test_bad_time.py"):
        LocalEngine(other)


def test_corrections_need_the_clock_of_the_stream():
    window = frame().tumbling_window(10, corrections_ms=10).count()
    with pytest.raises(ConfigError, match="closing_strategy='watermark'"):
        window.final("key")


def test_options_of_agg_are_checked():
    for wrong in (
        {},
        {"emit": "never", "n": Count()},
        {"emit": Count()},
        {"name": "", "n": Count()},
    ):
        with pytest.raises(ConfigError, match="Fix:"):
            frame().agg(**wrong)


def test_a_timer_needs_somebody_to_call():
    with pytest.raises(StepError, match=r"without on_timer(.|\n)*Fix:"):
        run_local(
            frame().update(lambda value, state: state.set_timer("t", after=1), stateful=True), [1]
        )
    with pytest.raises(ConfigError, match="needs a stateful step"):
        frame().apply(lambda value: value, on_timer=lambda key, state, timer: None)
    with pytest.raises(ConfigError, match=r"\(key, state, timer\)"):
        frame().apply(lambda value, state: value, stateful=True, on_timer=lambda key: None)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"at": 1, "after": 1},
        {"at": "noon"},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - no time zone, that is the point
        {"after": -1},
        {"after": 1, "clock": "lamport"},
    ],
    ids=str,
)
def test_a_timer_has_one_moment(wrong):
    def set_timer(value, state):
        state.set_timer("t", **wrong)

    sdf = frame().update(set_timer, stateful=True, on_timer=lambda key, state, timer: None)
    with pytest.raises(StepError, match="Fix:"):
        run_local(sdf, [1])


# --- values that cannot be aggregated -------------------------------------------------------

GOOD = [("k", {"x": 1}, 10), ("k", {"x": 2}, 20)]


@pytest.mark.parametrize("emit", ["record", "batch"])
@pytest.mark.parametrize("aggregation", [Sum("x"), Mean("x"), Min("x"), Max("x")], ids=str)
@pytest.mark.parametrize("wrong", [{"y": 1}, {"x": math.nan}, {"x": "2"}, {"x": [1]}, 5], ids=str)
def test_what_cannot_be_aggregated_is_a_dead_letter_and_nothing_else_is_lost(
    aggregation, wrong, emit
):
    sdf = frame().agg(r=aggregation, emit=emit)

    run = run_local(sdf, [*GOOD, ("k", wrong, 30), GOOD[0]], on_error="dead-letter", batches=2)

    (letter,) = run.dead_letters
    headers = dict(letter.headers)
    assert headers["millpond.offset"] == b"2"
    assert headers["millpond.step"].startswith(b"agg")
    assert b"Fix:" in headers["millpond.error"]
    without = run_local(frame().agg(r=aggregation, emit=emit), [*GOOD, GOOD[0]])
    assert run[-1] == without[-1]
    assert all(report.reconciles for report in run.reports)


@pytest.mark.parametrize("emit", ["record", "batch"])
@pytest.mark.parametrize("wrong", [{"y": 1}, {"x": math.nan}, {"x": "2"}], ids=str)
def test_what_cannot_be_aggregated_stops_the_run_and_names_the_record(wrong, emit):
    records = [*GOOD, ("k", wrong, 30), GOOD[0]]
    with pytest.raises(StepError, match=r"agg 'agg' \(test_bad_time.py:\d+\)(.|\n)*offset 2") as e:
        run_local(frame().agg(r=Sum("x"), emit=emit), records)
    assert "Fix:" in str(e.value)
    with pytest.raises(StepError, match=r"window(.|\n)*offset 2"):
        run_local(frame().tumbling_window(10).agg(r=Sum("x")).final(), records)


def test_an_own_reducer_that_fails_names_the_record():
    window = frame().tumbling_window(100).agg(r=Reduce(lambda a, b: a / b, lambda v: v))
    run = run_local(
        window.current(), [("k", 8, 1), ("k", 0, 2), ("k", 2, 3)], on_error="dead-letter"
    )
    assert [result["r"] for result in run] == [8, 4.0]
    assert len(run.dead_letters) == 1


# --- times that cannot be -------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["noon", None, 1.5, datetime(2026, 1, 1)], ids=str)  # noqa: DTZ001
def test_a_time_that_is_none_is_a_dead_letter(wrong):
    sdf = frame().watermark(on="at").tumbling_window(10).agg(n=Count()).current()
    records = [("k", {"at": 1}), ("k", {"at": wrong}), ("k", {}), ("k", {"at": 2})]

    run = run_local(sdf, records, on_error="dead-letter")

    assert [result["n"] for result in run] == [1, 2]
    assert len(run.dead_letters) == 2
    assert all(b"Fix:" in dict(letter.headers)["millpond.error"] for letter in run.dead_letters)


def test_an_extractor_that_fails_or_gives_text_is_a_dead_letter(tmp_path):
    app = Application(topics_dir=tmp_path, loglevel=None)

    def extract(value, headers, timestamp, kind):
        return value["at"]

    sdf = app.dataframe(app.topic("t", timestamp_extractor=extract))
    sdf = sdf.tumbling_window(10).agg(n=Count(), last=Latest("at")).current()
    records = [{"at": 1}, {}, {"at": "noon"}, {"at": 2}]

    run = run_local(sdf, records, on_error="dead-letter")

    assert [result["last"] for result in run] == [1, 2]
    assert len(run.dead_letters) == 2


def test_a_table_function_must_give_a_table():
    sdf = frame().update_state(lambda batch, state: 5, "t")
    with pytest.raises(StepError, match=r"needs a table back(.|\n)*Fix:"):
        run_local(sdf, [("k", {"x": 1})])
    with pytest.raises(StepError, match=r"values that are dicts(.|\n)*Fix:"):
        run_local(frame().update_state(lambda batch, state: batch, "t"), [("k", 1)])


def test_when_a_table_function_fails_every_record_of_the_group_is_put_aside():
    def fail(batch, state):
        raise ValueError("no")

    run = run_local(
        frame().update_state(fail, "t"), [("k", {"x": 1}), ("k", {"x": 2})], on_error="dead-letter"
    )

    assert len(run.dead_letters) == 2
    assert all(report.reconciles for report in run.reports)


def test_a_timer_that_fails_is_put_aside_and_does_not_fire_again():
    def watch(value, state):
        state.set("n", state.get("n", 0) + 1)
        state.set_timer("t", after=5)
        return state.get("n")

    def fail(key, state, timer):
        state.set("n", 100)
        raise ValueError("no")

    sdf = frame().apply(watch, stateful=True, on_timer=fail)
    records = [("k", 1, 10), ("l", 1, 50), ("k", 1, 51)]

    run = run_local(sdf, records, batches=1, on_error="dead-letter")

    assert list(run) == [1, 1, 2]  # what the timer wrote is undone
    assert len(run.dead_letters) == 1
    assert all(report.reconciles for report in run.reports)


def test_a_timer_that_fails_stops_the_run_and_names_the_key_and_the_time():
    def watch(value, state):
        state.set_timer("t", after=5)

    def fail(key, state, timer):
        raise ValueError("no")

    sdf = frame().update(watch, stateful=True, on_timer=fail)
    with pytest.raises(StepError, match=r"failed at time 15 of key 'k'(.|\n)*such timers aside"):
        run_local(sdf, [("k", 1, 10), ("l", 1, 50)], batches=1)


@pytest.mark.parametrize("mode", ["stop", "dead-letter"])
def test_a_record_with_one_item_of_the_future_is_put_aside_whole(mode):
    sdf = frame().apply(lambda value: value, expand=True)
    sdf = sdf.watermark(0, on=lambda value: value, max_future=1_000)
    sdf.tumbling_window(10).agg(n=Count()).final().apply(lambda window: window["n"])

    run = run_local(sdf, [[1, 10**15, 2], [3], [50]], batches=[1, 1, 1], on_error=mode)

    assert run == [1]
    assert len(run.dead_letters) == 1


def test_a_branch_that_no_window_goes_by_may_have_times_of_the_future():
    sdf = frame().watermark(0, on=lambda value: value, max_future=1_000)
    ahead = sdf.set_timestamp(lambda value, key, timestamp, headers: value + 10**13)
    ahead.apply(lambda value: "ahead")
    sdf.tumbling_window(10).agg(n=Count()).final().apply(lambda window: window["n"])

    run = run_local(sdf, [1, 10**13, 50], batches=[1, 1, 1], on_error="dead-letter")

    assert len(run.dead_letters) == 1  # the one that the window would go by
    assert run.count("ahead") == 2
    assert 1 in run
