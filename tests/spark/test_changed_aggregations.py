"""A program whose aggregations change, on Spark: run, look, go back, run again."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from millpond import Count, Max, Mean, Sum, admin
from millpond.cli.main import command
from millpond.errors import ConfigError, StateError

pytestmark = pytest.mark.spark

BEFORE = [("ann", 3, 0), ("ann", 4, 1_000), ("bob", 9, 2_000)]
AFTER = [("ann", 1, 3_000), ("cid", 5, 4_000)]


def shop(make_app, *, more, **options):
    """Totals and windows of orders; both are brought together before they move."""
    app = make_app("shop", **options)
    fields = {"orders": Count(), "spent": Sum("amount"), "mean": Mean("amount")}
    biggest = {"biggest": Max("amount")} if more else {}
    orders = app.dataframe(app.topic("orders", key_deserializer="str", max_future=None))
    orders.agg(emit="batch", **fields, **biggest).to_topic(app.topic("totals"))
    window = orders.tumbling_window(10_000).agg(**biggest, n=Count(), spent=Sum("amount"))
    window.final().to_topic(app.topic("windows"))
    return app


def produce(app, orders):
    with app.get_producer() as producer:
        for key, amount, at in orders:
            producer.produce("orders", key=key, value={"amount": amount}, timestamp=at)


def read(app, topic):
    with app.get_consumer() as consumer:
        return [record.value for record in consumer.read(topic)]


def total(orders, spent, **more):
    return {"orders": orders, "spent": spent, "mean": spent / orders, **more}


def window(**fields):
    return {"start": 0, "end": 10_000, **fields}


def test_an_aggregation_is_added_and_state_goes_back_across_it(make_app, tmp_path):
    old = shop(make_app, more=False)
    produce(old, BEFORE)
    old.run(drain=True)
    new = shop(make_app, more=True)
    produce(new, AFTER)
    assert {v.store: (v.says, v.why) for v in new.check()} == {
        "agg": ("migrate", "biggest starts empty beside orders, spent, mean"),
        "tumbling_window_10000": ("migrate", "biggest starts empty beside n, spent"),
    }
    new.run(drain=True)

    assert read(new, "totals")[-2:] == [total(3, 8, biggest=1), total(1, 5, biggest=5)]
    with admin.open(new) as state:
        look_at(state)
    with admin.open(tmp_path / "state", spark=new.config.spark) as state:
        assert state.get("ann", "agg")["mean"] == {"$tuple": [8, 3]}
        assert state.get("bob", "agg") == {
            "orders": 1, "spent": 9, "mean": {"$tuple": [9, 1]}, "biggest": None
        }  # fmt: skip
    said = CliRunner().invoke(command, ["state", "get", str(tmp_path / "state"), "cid", "--json"])
    found = [json.loads(line) for line in said.output.splitlines() if line.startswith("{")]
    assert [(row["name"], row["value"]) for row in found] == [
        *[("orders", 1), ("spent", 5), ("mean", {"$tuple": [5, 1]}), ("biggest", 5)],
        ("0", window(n=1, spent=5, biggest=5)),
    ]
    with pytest.raises(StateError, match="lose what it has aggregated in biggest"):
        old.run(drain=True)

    with admin.open(new) as state:
        first = state.info().first_batch
        state.rewind(first, outputs="again")
        assert state.get("ann", "agg") == total(2, 7)
    assert {v.says for v in old.check()} == {"reuse"}
    produce(new, [("bob", 2, 5_000), ("ann", 0, 20_000)])
    new.run(drain=True)

    with admin.open(new) as state:
        assert state.get("ann", "agg") == total(4, 8, biggest=1)
        assert state.get("bob", "agg") == total(2, 11, biggest=2)
    key_of = {3: "ann", 2: "bob", 1: "cid"}
    assert {key_of[row["n"]]: row for row in read(new, "windows")} == {
        "ann": window(biggest=1, n=3, spent=8),
        "bob": window(biggest=2, n=2, spent=11),
        "cid": window(biggest=5, n=1, spent=5),
    }


def look_at(state):
    """State is seen by the names of fields, after each batch by those of then."""
    first, last = state.info().first_batch, state.info().last_batch
    assert state.get("ann", "agg") == total(3, 8, biggest=1)
    assert state.get("bob", "agg") == total(1, 9, biggest=None)
    assert state.get("ann", "agg", at=first) == total(2, 7)
    assert state.get("ann", "tumbling_window_10000") == {"0": window(biggest=1, n=3, spent=8)}
    assert state.get("ann", "tumbling_window_10000", at=first) == {"0": window(n=2, spent=7)}

    assert sorted(state.to_arrow("agg").to_pylist(), key=lambda row: row["key"]) == [
        {"key": "ann", **total(3, 8, biggest=1)},
        {"key": "bob", **total(1, 9, biggest=None)},
        {"key": "cid", **total(1, 5, biggest=5)},
    ]
    windows = state.to_arrow("tumbling_window_10000", at=first).to_pylist()
    assert sorted(windows, key=lambda row: row["key"]) == [
        {"key": "ann", **window(n=2, spent=7)},
        {"key": "bob", **window(n=1, spent=9)},
    ]
    assert state.sql("SELECT sum(spent) AS s FROM state", store="agg").collect()[0].s == 22
    rows = {(r.key, r.name): r.value for r in state.to_spark("agg").collect()}
    assert rows["ann", "mean"] == '{"$tuple": [8, 3]}' and rows["cid", "biggest"] == "5"

    changed = [(c.batch, c.name, c.before, c.after) for c in state.history("ann", "agg", False)]
    assert changed[-4:] == [
        (last, "orders", 2, 3),
        (last, "spent", 7, 8),
        (last, "mean", 3.5, 8 / 3),
        (last, "biggest", None, 1),
    ]
    differing = list(state.diff(first, last, "agg"))
    assert {(d.key, d.name, d.before, d.after, d.is_new) for d in differing if d.key == "ann"} == {
        ("ann", "orders", 2, 3, False),
        ("ann", "spent", 7, 8, False),
        ("ann", "mean", 3.5, 8 / 3, False),
        ("ann", "biggest", None, 1, True),
    }
    with pytest.raises(StateError, match=r"as one value(.|\n)*Fix: leave the name out"):
        state.delete("ann", "orders", store="agg")
    with pytest.raises(ConfigError, match="has state in"):
        state.get("ann")
