"""Time on Spark: totals, windows, timers and expiry are what the local engine says they are.

A run costs seconds, so each has several frames. Where the cut into batches matters, the local
engine is given the same cut; where it must not, it is given one batch.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import millpond as mp
from millpond import Collect, Count, Sum
from millpond.errors import StateError
from millpond.testing import LocalEngine, ManualClock, run_local

pytestmark = pytest.mark.spark

SECOND = 1_000
YEAR_2099 = 4_070_908_800_000


def produce(app, topic, records):
    with app.get_producer() as producer:
        for key, value, timestamp in records:
            producer.produce(topic, key, value, timestamp)


def written(app, *names):
    """The records of topics, as (key, value, timestamp)."""
    consumer = mp.Consumer(app.log)
    known = app.log.topics()
    return {
        name: [(r.key, r.value, r.timestamp) for r in consumer.read(name)]
        for name in names
        if name in known
    }


def expected(run, *names):
    """The same of a run on the local engine."""
    return {
        name: [(r.key, r.value, r.timestamp) for r in run.topics[name]]
        for name in names
        if run.topics[name]
    }


def whole(app):
    """A frame of the application's whole graph, for the local engine."""
    return mp.StreamingDataFrame(app.graph, app.graph.steps[0])


def in_any_order(topics):
    return {name: sorted(records, key=repr) for name, records in topics.items()}


# --- the tables of seed 004 -----------------------------------------------------------------


def click(user, second):
    return user, {"user_id": user}, second * SECOND


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


def clicks_program(app, clicks):
    by_user = app.dataframe(clicks).group_by("user_id")
    by_user.agg(n=Count(), name="record").to_topic(app.topic("by-record"))
    by_user.agg(n=Count(), name="batch", emit="batch").to_topic(app.topic("by-batch"))
    by_user.update_state(update_state, "counts", schema=STATE).to_topic(app.topic("by-table"))


def test_totals_take_late_clicks_batch_by_batch(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    clicks_program(app, clicks)
    local = LocalEngine(whole(app))
    names = ("by-record", "by-batch", "by-table")

    for batch, table in zip(BATCHES, TABLES, strict=True):
        produce(app, clicks, batch)
        app.run(drain=True, collect=False)
        local.feed(batch)
        run = local.run()

        found = written(app, *names)
        for name in names:
            assert {r[0].decode(): _json(r[1])["n"] for r in found[name]} == table
        assert found == expected(run, *names)


def _json(data):
    return data if isinstance(data, dict) else mp.Topic.__class__


# --- windows --------------------------------------------------------------------------------
