"""Time on Spark: totals, windows, timers and expiry are what the local engine says they are.

A run costs seconds, so each has several frames. Where the cut into batches matters, the local
engine is given the same cut; where it must not, it is given one batch.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pyarrow as pa
import pytest

import millpond as mp
from millpond import Collect, Count, Sum
from millpond.connectors.log import Log
from millpond.errors import StateError
from millpond.testing import LocalEngine, ManualClock

pytestmark = pytest.mark.spark

SECOND = 1_000
YEAR_2099 = 4_070_908_800_000


def produce(app, topic, records):
    with app.get_producer() as producer:
        for key, value, timestamp in records:
            producer.produce(topic, value, key, timestamp=timestamp)


def facts(records):
    return [(r.key and r.key.decode(), json.loads(r.value), r.timestamp) for r in records]


def written(app, *names):
    """The records of topics, as (key, value, timestamp)."""
    consumer = mp.Consumer(Log(app.config.topics_dir))
    return {name: facts(consumer.read(name)) for name in names}


def whole(app):
    """A frame of the application's graph, for the local engine, which runs all of it."""
    return mp.StreamingDataFrame(app.graph, app.graph.steps[0])


def in_any_order(topics):
    return {name: sorted(records, key=repr) for name, records in topics.items()}


# --- totals, batch by batch -----------------------------------------------------------------


def click(user, second):
    return user, {"user_id": user}, second * SECOND


# Clicks of a shop, and what is known after each batch.
BATCHES = [
    [click("A", 60), click("B", 75), click("A", 90), click("C", 105)],
    [click("A", 120), click("D", 135), click("B", 30)],  # B is late
    [click("A", 150), click("A", 180), click("B", 195), click("C", 210)],
    [click("B", 0), click("A", 120), click("E", 480)],  # B and A are late
]
TABLES = [
    {"A": 2, "B": 1, "C": 1},
    {"A": 3, "B": 2, "C": 1, "D": 1},
    {"A": 5, "B": 3, "C": 2, "D": 1},
    {"A": 6, "B": 4, "C": 2, "D": 1, "E": 1},
]
STATE = pa.schema([("user_id", pa.string()), ("n", pa.int64())])


def update_state(batch, state):
    names = ["user_id", "n"]
    counted = batch.group_by("user_id").aggregate([("_key", "count")]).rename_columns(names)
    both = pa.concat_tables([counted, state])
    return both.group_by("user_id").aggregate([("n", "sum")]).rename_columns(names)


def test_totals_take_late_clicks_batch_by_batch(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    by_user = app.dataframe(clicks).group_by("user_id")
    by_user.agg(n=Count(), name="record").to_topic(app.topic("by-record"))
    by_user.agg(n=Count(), name="batch", emit="batch").to_topic(app.topic("by-batch"))
    by_user.update_state(update_state, "counts", schema=STATE).to_topic(app.topic("by-table"))
    names = ("by-record", "by-batch", "by-table")
    local = LocalEngine(whole(app), groups=32)  # as two cores get: a table is that of a group

    for batch, table in zip(BATCHES, TABLES, strict=True):
        produce(app, clicks, batch)
        app.run(drain=True, collect=False)
        local.feed(batch)
        run = local.run()

        found = written(app, *names)
        assert [{k: v["n"] for k, v, _ in found[name]} for name in names] == [table] * 3
        assert found == {name: facts(run.topics[name]) for name in names}


# --- windows, duplicates, timers and expiry, in one run -------------------------------------

# Records of three keys in disorder: each is up to 1.5 seconds behind one that came before.
RECORDS = [(f"k{i % 3}", {"i": i, "id": i // 2 % 50}, (i ^ 15) * SECOND // 10) for i in range(150)]
LATENESS = 1_500


def windows_of(sdf):
    """Every kind of window, by name."""
    return {
        "tumbling": lambda name: sdf.tumbling_window(SECOND, name=name),
        "hopping": lambda name: sdf.hopping_window(2 * SECOND, SECOND, name=name),
        "sliding": lambda name: sdf.sliding_window(SECOND, name=name),
        "session": lambda name: sdf.session_window(350, name=name),
        "of-5": lambda name: sdf.tumbling_count_window(5, name=name),
        "of-4-every-2": lambda name: sdf.hopping_count_window(4, 2, name=name),
        "last-3": lambda name: sdf.sliding_count_window(3, name=name),
    }


def window_topics(app, sdf, closing, emits):
    """Send all windows, and what is late for them, to topics; return the topics' names."""
    names = []
    for kind, make in windows_of(sdf).items():
        for emit in emits:
            name = f"{kind}-{emit}-{closing}"
            window = make(name).agg(n=Count(), seen=Collect("i"))
            getattr(window, emit)(closing_strategy=closing).to_topic(app.topic(name))
            window.late().to_topic(app.topic(f"{name}-late"))
            names += [name, f"{name}-late"]
    return names


# Records in order, with a pause of 0.9 seconds now and then.
STEADY = [(f"k{i % 3}", {"i": i}, i // 12 * 300 + i // 36 * 600) for i in range(150)]


def remember(value, state):
    """Count for 0.8 seconds, and note when nothing has come for half a second."""
    n = state.get("n", 0) + 1
    state.set("n", n, ttl=timedelta(milliseconds=800))
    state.set_timer("quiet", after=timedelta(milliseconds=500))
    return {"i": value["i"], "n": n}


def quiet(key, state, timer):
    return {"quiet": timer.at, "n": state.get("n")}


def by_key(topics):
    """What became of each key, in order: where a clock fires between others is not defined."""
    found = {}
    for name, records in topics.items():
        for key, value, timestamp in records:
            found.setdefault((name, key), []).append((value, timestamp))
    return found


def test_the_cut_into_batches_does_not_matter(make_app):
    app = make_app(max_records_per_batch=40)
    sdf = app.dataframe(source=mp.ListSource(RECORDS, name="events"))
    exact = window_topics(app, sdf, "key", ("final", "current"))
    sdf.drop_duplicates(on="id").to_topic(app.topic("distinct"))
    patient = sdf.watermark(LATENESS, idle_after=timedelta(seconds=1))
    closed = window_topics(app, patient, "watermark", ("final",))
    steady = app.dataframe(source=mp.ListSource(STEADY, name="steady"))
    steady.apply(remember, stateful=True, on_timer=quiet).to_topic(app.topic("timed"))

    app.run(collect=False)

    clock = ManualClock(10**9)
    local = LocalEngine(whole(app), clock=clock)
    local.feed(RECORDS, "events")
    local.feed(STEADY, "steady")
    local.run()
    clock.advance(60 * SECOND)  # the stream is idle
    run = local.run()
    of_local = lambda names: {name: facts(run.topics[name]) for name in names}  # noqa: E731
    assert written(app, *exact, "distinct") == of_local([*exact, "distinct"])
    assert in_any_order(written(app, *closed)) == in_any_order(of_local(closed))
    timed = by_key(written(app, "timed"))
    assert timed == by_key(of_local(["timed"]))
    assert timed["timed", "k0"][12:14] == [
        ({"quiet": 1100, "n": 12}, 1100),
        ({"i": 36, "n": 1}, 1500),
    ]
    assert all(report.reconciles for report in app.reports)
    assert len(app.reports) >= 4
    # Nothing was late for the patient ones, and every record is in a window, the last ones too.
    assert not any(written(app, "tumbling-final-watermark-late").values())
    tumbling = written(app, "tumbling-final-watermark")["tumbling-final-watermark"]
    assert sum(value["n"] for _, value, _ in tumbling) == len(RECORDS)
    assert len(written(app, "distinct")["distinct"]) == 50


def test_what_is_too_late_for_a_window_is_given_with_the_reason(make_app):
    app = make_app(max_records_per_batch=40, on_error="dead-letter")
    sdf = app.dataframe(source=mp.ListSource(RECORDS, name="events"))
    strict = sdf.watermark(idle_after=timedelta(seconds=1))
    window = strict.tumbling_window(SECOND).agg(n=Count())
    window.final().to_topic(app.topic("totals"))
    window.late().to_topic(app.topic("late"))
    reopened = strict.tumbling_window(SECOND, name="reopened", corrections_ms=5 * SECOND)
    reopened.agg(n=Count()).final().to_topic(app.topic("corrected"))

    app.run(collect=False)

    found = written(app, "totals", "late", "corrected")
    totals, late = ([value for _, value, _ in found[name]] for name in ("totals", "late"))
    assert late
    assert sum(value["n"] for value in totals) + len(late) == len(RECORDS)
    assert sum(report.late for report in app.reports) == len(late)
    for report in late:
        assert report["timestamp"] < report["end"] <= report["closed_up_to"]
        assert report["late_by_ms"] == report["closed_up_to"] - report["timestamp"]
    # With corrections the same records come to the right totals in the end.
    last = {(key, value["start"]): value["n"] for key, value, _ in found["corrected"]}
    assert sum(last.values()) == len(RECORDS)
    assert max(value["revision"] for _, value, _ in found["corrected"]) >= 1


# --- the wall clock -------------------------------------------------------------------------


def wake_me(value, state):
    state.set_timer("soon", after=timedelta(milliseconds=300), clock="processing")
    return "heard"


def test_the_wall_clock_fires_timers_and_ends_the_windows_of_an_idle_topic(make_app):
    app = make_app()
    events = app.topic("events", key_deserializer="str", idle_after=timedelta(seconds=1))
    sdf = app.dataframe(events)
    sdf.apply(wake_me, stateful=True, on_timer=lambda key, state, timer: f"woken: {key}")
    sdf.tumbling_window(10 * SECOND).agg(n=Count()).final()
    produce(app, events, [("a", 1, 0), ("b", 2, 5_000), ("a", 3, 12_000), ("c", 4, YEAR_2099)])

    values = app.run(count=8, timeout=20)

    heard = [value for value in values if isinstance(value, str)]
    windows = [value for value in values if isinstance(value, dict)]
    assert sorted(heard) == ["heard", "heard", "heard", "woken: a", "woken: b"]
    assert sorted(windows, key=repr) == [
        {"start": 0, "end": 10_000, "n": 1},
        {"start": 0, "end": 10_000, "n": 1},
        {"start": 10_000, "end": 20_000, "n": 1},
    ]
    [letter] = app.get_consumer().read("test.dead-letters")
    assert (letter.key, letter.value, letter.timestamp) == (b"c", b"4", YEAR_2099)
    assert b"FutureTimestampError" in dict(letter.headers)["millpond.error"]


# --- running again --------------------------------------------------------------------------


def first_or_again(value, state):
    state.set_timer("quiet", after=timedelta(seconds=5))
    is_known = state.exists("known")
    state.set("known", True, ttl=timedelta(seconds=30))
    return {"again" if is_known else "first": value}


def build(app, aggregation=Count):
    events = app.topic("events")
    sdf = app.dataframe(events)
    windows = sdf.tumbling_window(10 * SECOND).agg(n=aggregation())
    windows.final().to_topic(app.topic("totals"))
    sdf.apply(first_or_again, stateful=True, on_timer=quiet).to_topic(app.topic("seen"))
    return events


def test_windows_and_timers_of_one_run_close_and_fire_in_the_next_once(make_app, tmp_path):
    found = []
    for run, records in enumerate(
        [
            [("a", 1, 0), ("a", 2, 1_000), ("b", 3, 2_000)],
            [("a", 4, 35_000), ("c", 5, 40_000)],
            [("c", 6, 60_000)],
        ]
    ):
        app = make_app()
        produce(app, build(app), records)
        if run == 2:  # what is known about the time can be done without
            (tmp_path / "state" / "test" / "clock-0001.json").unlink()
        app.run(drain=True, collect=False)
        found.append(written(app, "totals", "seen"))

    local = LocalEngine(whole(app), clock=ManualClock())
    local.feed([("a", 1, 0), ("a", 2, 1_000), ("b", 3, 2_000), ("a", 4, 35_000), ("c", 5, 40_000)])
    local.feed([("c", 6, 60_000)])
    run = local.run()
    assert found[0]["totals"] == []
    assert by_key(found[0]) == {
        ("seen", "a"): [({"first": 1}, 0), ({"again": 2}, 1_000)],
        ("seen", "b"): [({"first": 3}, 2_000)],
    }
    assert found[1]["totals"] == [
        ("a", {"start": 0, "end": 10_000, "n": 2}, 0),
        ("b", {"start": 0, "end": 10_000, "n": 1}, 0),
        ("a", {"start": 30_000, "end": 40_000, "n": 1}, 30_000),
    ]
    assert by_key(found[1])["seen", "a"][2:] == [
        ({"quiet": 6_000, "n": None}, 6_000),
        ({"first": 4}, 35_000),  # what run 1 knew has expired
        ({"quiet": 40_000, "n": None}, 40_000),
    ]
    assert in_any_order(found[2]) == in_any_order(
        {name: facts(run.topics[name]) for name in ("totals", "seen")}
    )
    app = make_app()
    build(app, Sum)
    with pytest.raises(StateError, match=r"events/tumbling_window_10000 .* would lose(.|\n)*Fix:"):
        app.run(drain=True)


# --- a source of Spark's own ----------------------------------------------------------------


def windows_of_files(make_app, spark, folder, batches):
    """Run a window, and what is late for it, over files that Spark takes one by one."""
    folder.mkdir()
    for number, times in enumerate(batches):
        lines = [json.dumps({"user": "ann", "time": time}) for time in times]
        file = folder / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # Spark takes the oldest first
    reader = spark.readStream.schema("user string, time long").option("maxFilesPerTrigger", 1)
    app = make_app()
    source = mp.SparkSource(reader.json(str(folder)), key="user", timestamp="time")
    window = app.dataframe(source=source).tumbling_window(10 * SECOND).agg(n=Count())
    window.final()
    window.late().apply(lambda report: ("late", report["timestamp"]))
    return app.run(drain=True)


def test_windows_of_a_spark_source_close(make_app, spark, tmp_path):
    batches = [(1_000, 2_000), (11_000,), (25_000,)]

    assert windows_of_files(make_app, spark, tmp_path / "in", batches) == [
        {"start": 0, "end": 10_000, "n": 2},
        {"start": 10_000, "end": 20_000, "n": 1},
    ]


def test_a_late_record_of_a_spark_source_is_late(make_app, spark, tmp_path):
    batches = [(1_000,), (25_000,), (2_000,), (45_000,)]

    values = windows_of_files(make_app, spark, tmp_path / "in", batches)

    assert sorted(values, key=repr) == [
        ("late", 2_000),
        {"start": 0, "end": 10_000, "n": 1},
        {"start": 20_000, "end": 30_000, "n": 1},
    ]
