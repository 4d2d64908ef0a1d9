"""Tables on Spark: read whole, before the streams that are joined with them, and shown by tools."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from millpond.cli.main import command

pytestmark = pytest.mark.spark


def shop(make_app, **options):
    how = {key: options.pop(key) for key in ("on", "broadcast", "history") if key in options}
    app = make_app(**options)
    customers = app.topic("customers", key_deserializer="str")
    orders = app.topic("orders")
    table = app.table(customers, history=how.pop("history", None))
    app.dataframe(orders).join_table(table, **{"on": "customer", "how": "left", **how})
    return app, customers, orders


def send(app, topic, records):
    with app.get_producer() as producer:
        for key, value, timestamp in records:
            producer.produce(topic, value, key, timestamp=timestamp)


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_new_group_reads_a_table_whole_before_the_first_record(make_app, broadcast):
    app, customers, orders = shop(
        make_app, max_records_per_batch=7, auto_offset_reset="latest", broadcast=broadcast
    )
    send(app, customers, [(f"c{i}", {"name": f"old {i}"}, i) for i in range(20)])
    send(app, customers, [(f"c{i}", {"name": f"new {i}"}, i + 50) for i in range(20)])
    send(app, customers, [("c3", None, 90)])
    send(app, orders, [("o", {"customer": "c1"}, 99)])
    assert app.run(drain=True) == []  # "latest" is where the orders begin

    send(app, customers, [(f"c{i}", {"name": f"newest {i}"}, i + 100) for i in range(5, 20)])
    send(app, orders, [("o", {"customer": f"c{i}"}, i + 100) for i in range(20)])
    found = app.run(drain=True)

    names = [f"new{'est' * (i >= 5)} {i}" for i in range(20)]
    expected = [{"customer": f"c{i}", "name": names[i]} for i in range(20)]
    expected[3] = {"customer": "c3"}
    assert sorted(found, key=lambda value: int(value["customer"][1:])) == expected


def test_orders_of_the_first_run_wait_for_the_table_batch_by_batch(make_app):
    app, customers, orders = shop(make_app, max_records_per_batch=10, auto_offset_reset="earliest")
    send(app, orders, [("o", {"customer": f"c{i}"}, i) for i in range(30)])
    send(app, customers, [(f"c{i}", {"name": f"name {i}"}, i) for i in range(30)])

    found = app.run(drain=True)

    assert len(found) == 30 and all("name" in value for value in found)


def test_state_tools_show_the_rows_of_tables(make_app, tmp_path):
    app, customers, orders = shop(make_app, history=1_000)
    people = app.dataframe(app.topic("people", key_deserializer="str")).as_table()
    towns = app.table(app.topic("towns", key_deserializer="str"))
    people.join(towns, on="town")
    app.dataframe(app.topic("asked", key_deserializer="str")).join_table(people, name="people-now")
    app.run(drain=True)
    send(app, customers, [("c1", {"name": "Ann"}, 100), ("c1", {"name": "Anna"}, 900)])
    send(app, orders, [("o", {"customer": "c1"}, 950)])
    send(app, app.topics["people"], [("ann", {"town": "ulm"}, 5)])
    send(app, app.topics["towns"], [("ulm", {"size": 9}, 6)])
    app.run(drain=True)

    place = str(tmp_path / "state")
    listed = CliRunner().invoke(command, ["state", "scan", place, "--json"]).output.splitlines()
    shown = {
        (row["store"].rpartition("/")[2], row["key"], row["name"]): row["value"]
        for row in map(json.loads, listed)
    }

    assert shown["customers", "c1", "right 100 0"]["value"] == {"name": "Ann"}
    assert shown["customers", "c1", "right 900 1"]["value"] == {"name": "Anna"}
    assert shown["people-now", "ann", "row"] == {"time": 5, "row": {"town": "ulm"}}
    assert shown["people-towns", "ulm", "row"] == {"time": 6, "row": {"size": 9}}
    assert shown["people-towns", "ulm", "left ann"] == {"time": 5, "row": {"town": "ulm"}}
