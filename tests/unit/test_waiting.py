"""What is waited for: how long, how often it is logged, how a place is kept and read."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import millpond as mp
from millpond.driver.progress import Meter
from millpond.driver.waiting import Reminder, Waiting, Waits
from millpond.errors import ConfigError, StepError
from millpond.spark.internals.error_texts import lost_task
from millpond.testing import run_local
from millpond.wire.packed_rows import records_schema
from millpond.wire.place import IDLE, READS, RUNS, SIZE, Place, Spot
from millpond.worker.current_step import step_in


def waiting(seconds, what="waiting for sink 'orders' (app.py:20)", **more):
    return Waiting(what, 1_700_000_000.0, seconds, **more)


def test_what_is_waited_for_is_there_as_long_as_the_block_runs():
    now = [100.0]
    waits = Waits(lambda: now[0])

    with waits("sink a", "look at it"):
        now[0] += 12
        with waits("sink b"):
            found = waits.now()
    now[0] += 1

    assert [(one.what, one.seconds, one.fix) for one in found] == [
        ("sink a", 12, "look at it"),
        ("sink b", 0, ""),
    ]
    assert waits.now() == []
    assert waits.take_done() == {"sink a": 12}  # b took no second
    assert waits.take_done() == {}


def test_what_is_waited_for_ends_with_an_error_too():
    waits = Waits()

    with pytest.raises(ZeroDivisionError), waits("sink a"):
        _ = 1 / 0

    assert waits.now() == []


def test_waiting_is_logged_after_ten_seconds_and_then_ever_more_rarely(caplog):
    reminder = Reminder()

    for seconds in range(300):
        reminder.look([waiting(float(seconds), more="app.py:14", fix="look at it.")])

    times = [text.rpartition(" for ")[2].partition(";")[0] for text in caplog.messages]
    assert times == ["10 s", "40 s", "2 min"]
    assert caplog.messages[0] == (
        "waiting for sink 'orders' (app.py:20) for 10 s; it is at app.py:14.\nFix: look at it."
    )


def test_what_comes_back_is_logged_again_when_it_goes_away(caplog):
    reminder = Reminder()

    for seconds in (11.0, 0.0, 11.0):
        reminder.look([waiting(seconds)] if seconds else [])

    assert len(caplog.messages) == 2


def test_the_line_says_what_is_waited_for_and_for_how_long(caplog):
    caplog.set_level(logging.INFO)
    meter = Meter("g", {})
    meter.started()
    meter._logged -= 60

    meter.waiting([waiting(2.0, "waiting for sink 'b'"), waiting(41.0)])

    assert caplog.messages[-1].endswith("·  waiting for sink 'orders' (app.py:20) for 41 s")


def records(*offsets, key=b"k"):
    count = len(offsets)
    columns = [[key] * count, [b"v"] * count, [0] * count, [1] * count, [2] * count, offsets]
    schema = records_schema(0)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_place_says_the_range_in_hand_and_how_far_it_is():
    buffer = bytearray(SIZE)
    place = Place(buffer, task=7)

    place.enter(3, 5, records(10, 11, 12))
    place.reach(2)
    spot = Spot.read(bytes(buffer))
    place.leave()

    assert (spot.doing, spot.task, spot.stage, spot.group, spot.index) == (RUNS, 7, 3, 5, 2)
    assert (spot.source, spot.partition, spot.first, spot.last) == (1, 2, 10, 12)
    assert not spot.has_key
    assert Spot.read(bytes(buffer)).doing == IDLE


def test_a_place_that_is_exact_says_each_record_with_its_key_and_each_step():
    buffer = bytearray(SIZE)
    place = Place(buffer, is_exact=True)
    place.enter(0, -1, records(10, 11, key=b"k" * 1000))
    seen = []

    def push(value, key, timestamp, headers):
        seen.append(Spot.read(bytes(buffer)))

    step = place.stepping(4, push)
    for value in place.each(["a", "b"]):
        step(value, None, 0, None)

    assert [(spot.first, spot.step, spot.key) for spot in seen] == [
        (10, 4, b"k" * 256),
        (11, 4, b"k" * 256),
    ]
    assert Spot.read(bytes(buffer)).step == -1


def test_a_place_that_reads_says_the_range():
    buffer = bytearray(SIZE)

    Place(buffer).reading(1, 2, 30, 40)

    spot = Spot.read(bytes(buffer))
    assert (spot.doing, spot.source, spot.partition, spot.first, spot.last) == (READS, 1, 2, 30, 39)


def test_no_step_is_at_work_in_frames_of_others():
    assert step_in([]) == (None, [])


@pytest.mark.parametrize(
    ("text", "task"),
    [
        (
            "Lost task 1.1 in stage 1.0 (TID 12) (localhost executor driver): "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            12,
        ),
        ("Lost task 1.0 in stage 1.0 (TID 2): java.io.IOException: No space left", None),
    ],
)
def test_the_task_of_a_lost_worker_is_found_in_what_spark_says(text, task):
    assert lost_task(text) == task


# --- functions that want their process to end ------------------------------------------------


def frame(function):
    sdf = mp.Application(loglevel=None).dataframe(source=mp.ListSource([], "in"))
    return sdf.apply(function, stateful=True)


@pytest.mark.parametrize("ending", [SystemExit, GeneratorExit])
def test_a_function_that_exits_fails_on_its_record(ending):
    def leave(value, state):
        if value == 2:
            raise ending("enough")
        return value

    with pytest.raises(StepError, match=f"apply 'leave' .* offset 1, key 'a': {ending.__name__}"):
        run_local(frame(leave), [("a", 1), ("a", 2)])


def test_a_record_on_which_a_function_exits_is_a_dead_letter_and_leaves_no_trace_in_state():
    def leave(value, state):
        state.set("n", state.get("n", 0) + 1)
        if value == 2:
            raise SystemExit(3)
        return state.get("n")

    given = [("a", 1), ("a", 2), ("a", 3)]

    assert run_local(frame(leave), given, on_error="dead-letter") == [1, 2]


def test_a_timer_that_exits_is_a_dead_letter_and_the_record_after_it_is_not():
    def fire(key, state, timer):
        raise SystemExit(3)

    def arm(value, state):
        if value == 1:
            state.set_timer("t", after=10)
        return value

    sdf = mp.Application(loglevel=None).dataframe(source=mp.ListSource([], "in"))
    sdf = sdf.apply(arm, stateful=True, on_timer=fire)
    run = run_local(sdf, [("a", 1, 1), ("a", 20, 20)], on_error="dead-letter")

    assert run == [1, 20]
    assert [dict(letter.headers)["millpond.error"] for letter in run.dead_letters] == [
        b"SystemExit: 3"
    ]


def test_ctrl_c_ends_a_test_on_the_local_engine():
    def interrupted(value, state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(frame(interrupted), [("a", 1)], on_error="dead-letter")


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["step_timeout", "stop_timeout"])
@pytest.mark.parametrize("given", [0, -1, "60", True, float("inf")])
def test_a_timeout_that_is_no_length_is_refused(name, given):
    with pytest.raises(ConfigError, match=f"{name} is seconds or a timedelta(.|\n)*Fix: {name}=60"):
        mp.Application(loglevel=None, **{name: given})
