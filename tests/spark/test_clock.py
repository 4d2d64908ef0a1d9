"""The driver's clock on Spark: streams that go quiet, several streams, a clock file that is gone.

What must come out is what the local engine gives for the same rounds of records.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta

import pytest

import millpond as mp
from millpond import Count
from millpond.testing import LocalEngine, ManualClock

pytestmark = pytest.mark.spark

SECOND = 1_000
A_SECOND, AT_ONCE = timedelta(seconds=1), timedelta(milliseconds=1)


def produce(app, topic, records):
    with app.get_producer() as producer:
        for key, value, timestamp in records:
            producer.produce(topic, value, key, timestamp=timestamp)


def local_of(app):
    """The same program on the local engine, and the clock it goes by."""
    clock = ManualClock(10**9)
    return LocalEngine(mp.StreamingDataFrame(app.graph, app.graph.steps[0]), clock=clock), clock


def in_any_order(values):
    return sorted(values, key=repr)


def windows(sdf, name, out=None):
    """Count in windows of ten seconds; give these, and what is too late, with the name."""
    window = sdf.tumbling_window(10 * SECOND, name=name).agg(n=Count())
    results = [
        window.final().apply(lambda result: (name, result["start"], result["n"])),
        window.late().apply(lambda report: (name, "late", report["timestamp"])),
    ]
    for result in results if out else []:
        result.to_topic(out)


# --- streams that go quiet ------------------------------------------------------------------

QUIET = [("ann", 1, 1_000), ("ann", 1, 2_000), ("ann", 1, 11_000)]


def rows_source(spark, folder, records):
    """Records as the rows of a file that Spark reads."""
    folder.mkdir(exist_ok=True)
    rows = (json.dumps({"user": key, "time": moment}) for key, _, moment in records)
    (folder / "rows.json").write_text("\n".join(rows))
    rows = spark.readStream.schema("user string, time long").json(str(folder))
    return mp.SparkSource(rows, key="user", timestamp="time", name="rows")


def of_a_quiet_list(idle_after):
    """What the windows of a list give, before it is idle and after that."""
    app = mp.Application(loglevel=None)
    rows = app.dataframe(source=mp.ListSource([], name="rows"))
    windows(rows.watermark(idle_after=idle_after), "rows")
    local, clock = local_of(app)
    local.feed(QUIET)
    before = list(local.run())
    clock.advance(2 * SECOND)
    return before, list(local.run())


def test_the_last_window_of_a_quiet_spark_source_closes(make_app, spark, tmp_path):
    app = make_app()
    rows = app.dataframe(source=rows_source(spark, tmp_path / "in", QUIET))
    windows(rows.watermark(idle_after=A_SECOND), "rows")

    values = app.run(count=2, timeout=20)

    before, after = of_a_quiet_list(A_SECOND)
    assert before == [("rows", 0, 2)]
    assert values == after == [("rows", 0, 2), ("rows", 10_000, 1)]


def test_a_drain_closes_the_last_windows_of_what_is_idle_by_then_and_once(
    make_app, spark, tmp_path
):
    def build():
        app = make_app()
        clicks = app.topic("clicks", idle_after=AT_ONCE)
        rows = app.dataframe(source=rows_source(spark, tmp_path / "in", QUIET))
        windows(app.dataframe(clicks), "clicks")
        windows(rows.watermark(idle_after=AT_ONCE), "rows")
        windows(rows, "open")  # nothing closes its last one
        return app, clicks

    app, clicks = build()
    produce(app, clicks, QUIET)

    values = app.run(drain=True)

    _, after = of_a_quiet_list(AT_ONCE)
    assert [value for value in values if value[0] == "rows"] == after
    assert in_any_order(values) == [
        ("clicks", 0, 2),
        ("clicks", 10_000, 1),
        ("open", 0, 2),
        ("rows", 0, 2),
        ("rows", 10_000, 1),
    ]
    assert build()[0].run(drain=True) == []


def test_what_a_drain_leaves_open_is_closed_by_a_run_that_waits(make_app):
    def build():
        app = make_app()
        clicks = app.topic("clicks", idle_after=A_SECOND)
        windows(app.dataframe(clicks), "clicks")
        return app, clicks

    app, clicks = build()
    produce(app, clicks, QUIET[:2])

    assert app.run(drain=True) == []  # nothing is due, so it ends with its records
    assert build()[0].run(count=1, timeout=20) == [("clicks", 0, 2)]


# --- several streams ------------------------------------------------------------------------


def fast_and_slow(app):
    """Two topics, of which one is behind and may be five seconds late."""
    topics = app.topic("fast"), app.topic("slow", lateness=5 * SECOND)
    return topics, [app.dataframe(topic) for topic in topics]


def test_a_window_over_two_topics_closes_when_both_have_passed_it(make_app):
    rounds = [
        {"fast": [("a", 1, 5_000), ("a", 2, 30_000)], "slow": [("b", 3, 14_999)]},  # up to 9.999
        {"slow": [("b", 4, 15_000)]},
        {"fast": [("c", 5, 9_000)], "slow": [("a", 6, 22_000)]},  # c is behind both
        {"slow": [("b", 7, 60_000)]},  # now the fast one is behind
    ]
    found = []
    for records in rounds:
        app = make_app()
        topics, (fast, slow) = fast_and_slow(app)
        windows(fast.concat(slow), "both")
        windows(fast, "fast alone")
        for topic in topics:
            produce(app, topic, records.get(topic.name, []))
        found.append(in_any_order(app.run(drain=True)))

    local, _ = local_of(app)
    for round, values in zip(rounds, found, strict=True):
        known = len(local.values)
        for name, records in round.items():
            local.feed(records, name)
        assert values == in_any_order(local.run()[known:])
    assert found == [
        [("fast alone", 0, 1)],
        [("both", 0, 1)],
        [("both", "late", 9_000), ("fast alone", "late", 9_000)],
        [("both", 10_000, 2), ("both", 20_000, 1)],
    ]


def test_a_topic_that_is_quiet_is_left_out_where_it_has_idle_after(make_app):
    app = make_app()
    topics, (fast, slow) = fast_and_slow(app)
    silent = app.dataframe(app.topic("silent"))  # never has a record
    windows(fast.concat(slow), "waits for the slow one")
    windows(fast.concat(silent), "waits for the silent one")
    hasty = [sdf.watermark(idle_after=A_SECOND) for sdf in (slow, silent)]
    windows(fast.concat(hasty[0]).concat(hasty[1]), "hasty")
    records = {"fast": [("a", 1, 5_000), ("a", 2, 30_000)], "slow": [("b", 3, 12_000)]}
    for topic in topics:
        produce(app, topic, records[topic.name])

    values = app.run(count=2, timeout=20)

    local, clock = local_of(app)
    for name, items in records.items():
        local.feed(items, name)
    assert local.run() == []
    clock.advance(2 * SECOND)
    # The fast one goes by its records: its last window stays open.
    assert values == local.run() == [("hasty", 0, 1), ("hasty", 10_000, 1)]


def test_a_run_says_for_which_topic_its_windows_wait(make_app, caplog):
    app = make_app()
    _, (fast, slow) = fast_and_slow(app)
    windows(fast.concat(slow), "both")
    produce(app, "fast", [("a", 1, 5_000), ("a", 2, 30_000)])

    assert app.run(drain=True) == []

    local, _ = local_of(app)
    local.feed([("a", 1, 5_000), ("a", 2, 30_000)], "fast")
    local.run()
    [held] = app.reports[-1].held_back
    assert local.reports[-1].held_back == [held]
    assert (held.source, held.since, held.watermark, held.ahead) == ("slow", None, None, 30_000)
    assert [m for m in caplog.messages if m == str(held)] == [str(held)] * 2  # the local one, too


# --- the clock file -------------------------------------------------------------------------


def remember(value, state):
    """Know a key for 20 seconds, ring when it is quiet, and once by the wall clock."""
    if value == 2:
        state.set_timer("soon", after=timedelta(seconds=2), clock="processing")
    state.set_timer("quiet", after=timedelta(seconds=5))
    is_known = state.exists("known")
    state.set("known", True, ttl=timedelta(seconds=20))
    return ("again" if is_known else "first", value)


def ring(key, state, timer):
    return ("wall", key) if timer.name == "soon" else ("quiet", key, timer.at)


def build_timed(app):
    """What comes out goes to a topic too: a batch that is replayed comes out of `run` again."""
    events = app.topic("events", key_deserializer="str")
    sdf, out = app.dataframe(events), app.topic("out")
    windows(sdf, "windows", out)
    sdf.apply(remember, stateful=True, on_timer=ring).to_topic(out)
    return events


def written(app):
    return [tuple(record.value) for record in app.get_consumer().read("out")]


# In each round something waits that is due in the next, for keys that then have no record.
ROUNDS = [
    [("a", 1, 0), ("b", 2, 2_000), ("a", 3, 4_000)],
    [("c", 1, 12_000), ("a", 3, 13_000), ("d", 4, 14_000)],
    [("e", 1, 31_000), ("late", 1, 1_000), ("a", 3, 32_000), ("f", 5, 33_000)],
    [("a", 3, 90_000)],
]


def leave(file, older):
    pass


def delete(file, older):
    file.unlink()


def tear(file, older):
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


def put_back(file, older):
    file.write_text(older)


def test_windows_timers_and_expiry_outlive_a_clock_file_that_is_lost_torn_or_old(
    make_app, tmp_path
):
    file, older = tmp_path / "state" / "test" / "clock-0001.json", None
    harms = [leave, delete, tear, put_back]
    found = []
    for records, harm in zip(ROUNDS, harms, strict=True):
        app = make_app()
        produce(app, build_timed(app), records)
        harm(file, older)
        known = sum(map(len, found))
        app.run(drain=True)
        found.append(written(app)[known:])
        older = older or file.read_text()  # that of the first round

    local, _ = local_of(app)
    for records, values, harm in zip(ROUNDS, found, harms, strict=True):
        known = len(local.values)
        local.feed(records)
        by_event_time = [value for value in values if value != ("wall", "b")]
        assert in_any_order(by_event_time) == in_any_order(local.run()[known:]), harm
    every = [value for values in found for value in values]
    assert ("windows", "late", 1_000) in every
    counted = [value[2] for value in every if value[0] == "windows" and value[1] != "late"]
    assert sum(counted) == sum(map(len, ROUNDS)) - 2  # one is late, the last one's window is open
    assert every.count(("wall", "b")) == 1
    assert {item.key for item in app.scan_state()} == {"a"}  # all else has expired


# --- drains and streams that live on --------------------------------------------------------


def test_a_stream_that_goes_on_during_a_drain_is_not_idle(make_app):
    def build(most):
        app = make_app(max_records_per_batch=most)
        alive = app.topic("alive", idle_after=timedelta(seconds=2))
        windows(app.dataframe(alive), "alive")
        app.dataframe(app.topic("large")).apply(lambda value: time.sleep(0.5)).filter(bool)
        return app, alive

    app, alive = build(1)
    over = threading.Event()

    def go_on():
        while not app.reports:  # after the first batch, so the drain has set its end
            time.sleep(0.01)
        timestamp = 0
        while not over.wait(0.2):
            timestamp += 1
            produce(app, alive, [("a", 1, timestamp)])

    produce(app, alive, [("a", 1, 0)])
    produce(app, app.topics["large"], [("b", 1, 0)] * 8)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        values = app.run(drain=True)  # longer than 2 seconds
    finally:
        over.set()
        thread.join()

    assert values + build(None)[0].run(drain=True) == []  # nothing is late, the window is open


def test_a_stream_that_was_quiet_between_two_drains_closes_its_last_window(make_app):
    def build():
        app = make_app()
        clicks = app.topic("clicks", idle_after=A_SECOND)
        windows(app.dataframe(clicks), "clicks")
        return app, clicks

    app, clicks = build()
    produce(app, clicks, [("a", 1, 1_000)])
    found = [app.run(drain=True)]
    time.sleep(1.5)
    found.append(build()[0].run(drain=True))

    assert found == [[], [("clicks", 0, 1)]]
