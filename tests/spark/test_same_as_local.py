"""The same scenario on the local engine and on Spark: a difference is a bug."""

from __future__ import annotations

from collections import Counter

import pytest

import millpond as mp
from millpond.connectors.log import Log
from millpond.testing import LocalEngine, run_local

pytestmark = pytest.mark.spark


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return {**value, "n": state.get("n")}


def history(value, state):
    seen = state.get("seen", [])
    seen.append(value["i"])
    state.set("seen", seen[-5:])
    return {**value, "seen": tuple(seen)}


def explode_on_seven(value, state):
    state.set("tried", state.get("tried", 0) + 1)
    if value["i"] % 7 == 0:
        raise ValueError(f"no sevens: {value['i']}")
    return {**value, "tried": state.get("tried")}


def add(key, value, total):
    total += value["i"]
    return (key, total), None if total > 100 else total


def counting(app, clicks):
    app.dataframe(clicks).apply(count, stateful=True).to_topic(app.topic("out"))


def several_keys(app, clicks):
    sdf = app.dataframe(clicks)
    sdf = sdf.filter(lambda value: value["i"] % 3 != 0)
    sdf = sdf.group_by("user").apply(count, stateful=True)
    sdf = sdf.group_by(lambda value: value["n"] % 3, name="thirds").apply(history, stateful=True)
    sdf.to_topic(app.topic("out"))


def branches_and_merge(app, clicks):
    sdf = app.dataframe(clicks)
    even = sdf.filter(lambda value: value["i"] % 2 == 0)
    odd = sdf[sdf["i"] % 2 == 1]
    odd["odd"] = True
    both = even.concat(odd).apply(count, stateful=True)
    both.to_topic(app.topic("out"))
    sdf.apply(lambda value: [value["i"]] * (value["i"] % 3), expand=True).to_topic(
        app.topic("expanded")
    )


def dead_letters(app, clicks):
    app.dataframe(clicks).apply(explode_on_seven, stateful=True).to_topic(app.topic("out"))


def folding(app, clicks):
    app.dataframe(clicks).key_by("user").stateful_map("sum", add, initial=0).to_topic(
        app.topic("out")
    )


def sides(app, clicks):
    sdf = app.dataframe(clicks).watermark(lateness=200)
    return sdf.filter(lambda value: value["i"] % 2 == 0), sdf[sdf["i"] % 3 == 1]


def numbers(left, right):
    return [None if side is None else side["i"] for side in (left, right)]


def interval_join(app, clicks):
    left, right = sides(app, clicks)
    joined = left.join_interval(right, "outer", numbers, backward_ms=400, forward_ms=250)
    joined.to_topic(app.topic("out"))


def asof_join_by_another_key(app, clicks):
    left, right = (side.group_by("user", name=name) for side, name in zip(sides(app, clicks), "lr"))
    left.join_asof(right, "left", numbers).apply(count_pairs, stateful=True).to_topic(
        app.topic("out")
    )


def count_pairs(value, state):
    state.set("n", state.get("n", 0) + 1)
    return [*value, state.get("n")]


def joins_with_tables(app, clicks):
    left, right = (side.filter(lambda value: value["i"] % 13) for side in sides(app, clicks))
    rows = right.apply(lambda value: None if value["i"] % 5 == 0 else value)
    now, then = rows.as_table(name="now"), rows.as_table(name="then", history=100)
    named = rows.group_by(lambda value: f"u{value['i'] % 5}" if value else "u0", name="u")
    named = named.as_table(name="named")
    frames = {
        "now": left.join_table(now, how="left", on_merge=numbers),
        "then": left.join_table(then, how="left", on_merge=numbers),
        "field": left.join_table(named, "user", "left", numbers, "field"),
        "copies": left.join_table(named, "user", "left", numbers, broadcast=True),
        "tables": left.as_table(name="left").join(now, "outer", numbers),
        "naming": left.as_table(name="left").join(named, "left", numbers, on="user"),
    }
    for name, joined in frames.items():
        joined.to_topic(app.topic(name))


def windows(app, clicks):
    """Of each kind of window; several in a row."""
    users = app.dataframe(clicks).group_by("user")
    totals = {"n": mp.Count(), "most": mp.Max("i"), "all": mp.Collect("i")}
    users.tumbling_window(400, name="tumbling").agg(**totals).final().to_topic(
        app.topic("tumbling")
    )
    users.hopping_window(400, 200, name="hopping").agg(**totals).final().to_topic(app.topic("hops"))
    bursts = users.filter(lambda value: value["i"] % 50 < 20)
    bursts.session_window(60, name="bursts").agg(**totals).final().to_topic(app.topic("bursts"))
    users.sliding_window(90, name="sliding").agg(**totals).final().to_topic(app.topic("sliding"))
    users.tumbling_count_window(7, name="sevens").agg(**totals).final().to_topic(
        app.topic("sevens")
    )
    minutes = users.tumbling_window(200, name="first").agg(n=mp.Count()).final()
    minutes.tumbling_window(800, name="second").agg(n=mp.Sum("n")).final().to_topic(
        app.topic("two")
    )


def remind(value, state):
    if value["i"] % 10 == 0:
        state.set_timer("soon", after=95)
        state.set_timer(f"later {value['i']}", after=700)
    state.set("last", value["i"])
    return value


def timers(app, clicks):
    def fired(key, state, timer):
        return {"i": state.get("last"), "timer": timer.name}

    sdf = app.dataframe(clicks).group_by("user")
    sdf.apply(remind, stateful=True, on_timer=fired).to_topic(app.topic("out"))


def known(value, state):
    was_known = "seen" in state
    state.set("seen", True, ttl=60)
    return {**value, "known": was_known}


def values_that_expire(app, clicks):
    app.dataframe(clicks).group_by("user").apply(known, stateful=True).to_topic(app.topic("out"))


def running_totals(app, clicks):
    users = app.dataframe(clicks).group_by("user")
    users.agg(n=mp.Count(), mean=mp.Mean("i"), last=mp.Latest("i")).to_topic(app.topic("each"))
    users.agg(name="kinds", kinds=mp.CountDistinct("i")).to_topic(app.topic("kinds"))


def duplicates(app, clicks):
    sdf = app.dataframe(clicks)
    sdf.group_by("user").drop_duplicates(lambda value: value["i"] % 4, within=150).to_topic(
        app.topic("out")
    )


PROGRAMS = {
    "windows": (windows, {}),
    "timers": (timers, {}),
    "values_that_expire": (values_that_expire, {}),
    "running_totals": (running_totals, {}),
    "duplicates": (duplicates, {}),
    "joins_with_tables": (joins_with_tables, {}),
    "interval_join": (interval_join, {}),
    "asof_join_by_another_key": (asof_join_by_another_key, {}),
    "counting": (counting, {}),
    "several_keys": (several_keys, {}),
    "branches_and_merge": (branches_and_merge, {}),
    "dead_letters": (dead_letters, {"on_error": "dead-letter"}),
    "folding": (folding, {}),
}
BY_THE_CLOCK = ("interval_join", "windows", "timers")
RECORDS = [
    (f"k{i % 11}" if i % 13 else None, {"i": i, "user": f"u{i % 5}"}, i * 10) for i in range(300)
]


def topics_of(app):
    consumer = mp.Consumer(Log(app.config.topics_dir))
    names = [name for name in Log(app.config.topics_dir).topics() if name != "clicks"]
    found = {name: list(consumer.read(name)) for name in names}
    return {
        name.replace(app.config.consumer_group, "local"): [
            (r.key, r.value, r.timestamp) for r in records
        ]
        for name, records in found.items()
    }


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("cut", "partitions"), [(None, 2), (37, 3)])
def test_spark_gives_what_the_local_engine_gives(make_app, name, cut, partitions):
    program, options = PROGRAMS[name]
    app = make_app(
        max_records_per_batch=cut,
        spark_config={"spark.sql.shuffle.partitions": str(partitions)},
        **options,
    )
    clicks = app.topic("clicks")
    program(app, clicks)
    sdf = mp.StreamingDataFrame(app.graph, app.graph.steps[0])
    local = run_local(sdf, RECORDS, **options)
    with app.get_producer() as producer:
        for key, value, timestamp in RECORDS:
            producer.produce(clicks, value, key, timestamp=timestamp)

    values = app.run(drain=True)

    expected = {
        topic: [(r.key, r.value, r.timestamp) for r in records]
        for topic, records in local.topics.items()
        if records
    }
    found = topics_of(app)
    # What the clock gives comes between batches, so its place depends on how they are cut. A record
    # on both sides of a join of tables gives rows of two keys that have one place.
    if (name in BY_THE_CLOCK and cut) or name == "joins_with_tables":
        assert {topic: Counter(map(repr, rows)) for topic, rows in found.items()} == {
            topic: Counter(map(repr, rows)) for topic, rows in expected.items()
        }
        return
    assert found == expected
    assert len(values) == len(local)
    if name not in (
        "branches_and_merge",
        "joins_with_tables",
    ):  # several leaves are collected one after the other
        assert values == list(local)


def test_a_changed_program_gives_on_spark_what_it_gives_locally(make_app):
    """A migration, a new aggregation, and a step that is left out."""

    def before(app, clicks):
        sdf = app.dataframe(clicks)
        sdf.apply(count, stateful=True).to_topic(app.topic("out"))
        sdf.group_by("user").agg(n=mp.Count()).to_topic(app.topic("totals"))
        sdf.group_by("user", name="again").stateful_map("sum", add, initial=0)

    def after(app, clicks):
        @app.migration("clicks/default", from_version=1)
        def tens(values):
            return {**values, "n": values["n"] * 10}

        sdf = app.dataframe(clicks)
        sdf.apply(count, stateful=True).to_topic(app.topic("out"))
        sdf.group_by("user").agg(n=mp.Count(), most=mp.Max("i")).to_topic(app.topic("totals"))

    engine = None
    for program, records in ((before, RECORDS[:150]), (after, RECORDS[150:])):
        app = make_app("same")
        clicks = app.topic("clicks")
        program(app, clicks)
        engine = LocalEngine(mp.StreamingDataFrame(app.graph, app.graph.steps[0]), after=engine)
        engine.feed(records)
        local = engine.run()
        with app.get_producer() as producer:
            for key, value, timestamp in records:
                producer.produce(clicks, value, key, timestamp=timestamp)
        app.run(drain=True)

        half = len(records)
        found = {topic: rows[-half:] for topic, rows in topics_of(app).items() if rows}
        assert found == {
            topic: [(r.key, r.value, r.timestamp) for r in rows]
            for topic, rows in local.topics.items()
            if rows
        }
