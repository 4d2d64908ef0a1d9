"""State in S3 and in HDFS is looked into, rewound, changed and moved like state on a disk."""

from __future__ import annotations

import json
from functools import partial

import pytest

import millpond as mp
from millpond import admin
from millpond.errors import GroupInUseError
from millpond.storage.lock import locked

pytestmark = pytest.mark.spark


def total(value, state):
    new = state.get("total", 0) + value
    state.set("total", new)
    return new


def totals(spark, store, tmp_path, group="g", source="in", most=10, sink=None):
    app = mp.Application(
        consumer_group=group,
        state_dir=store.path,
        topics_dir=tmp_path / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=most,
        spark=spark,
        loglevel=None,
    )
    topic = app.topic(source, key_deserializer="str")
    sdf = app.dataframe(topic)
    sdf.apply(total, stateful=True).to_topic(app.topic("out"))
    if sink is not None:
        sdf.sink(sink, name="beside")
    return app


def produce(app, topic, *values):
    with app.get_producer() as producer:
        for value in values:
            producer.produce(topic, key="k", value=value)


# In S3, tests/remote/test_cluster.py runs a program in `make test`.
@pytest.mark.parametrize(
    "store", ["hdfs", pytest.param("s3", marks=pytest.mark.soak)], indirect=True
)
def test_state_in_a_store_is_like_state_on_a_disk(spark, store, tmp_path):
    program = partial(totals, spark, store, tmp_path)
    app = program()
    produce(app, "in", *range(40))
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.info().last_batch == 3
        assert (state.get("k", at=1), state.get("k")) == ({"total": 190}, {"total": 780})
        assert state.verify().problems == []
        state.rewind(1)
        assert state.get("k") == {"total": 190}
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("k") == {"total": 780}
        state.set("k", {"total": 0})
        state.rescale(3)
        state.fork("other")
        state.backup(tmp_path / "backup")
    with locked(store / "g", "g", "a test"), pytest.raises(GroupInUseError):
        app.run(drain=True)
    produce(app, "in", 7)
    app.run(drain=True)

    with admin.open(program(group="other")) as state:
        assert state.get("k") == {"total": 0}
    with admin.open(app) as state:
        assert state.get("k") == {"total": 7}
        state.restore(tmp_path / "backup")
        assert state.get("k") == {"total": 0}
    written = [record.value for record in app.get_consumer().read("out")]
    assert written == [sum(range(i + 1)) for i in range(40)] + [7]


@pytest.mark.parametrize(
    "store", ["hdfs", pytest.param("s3", marks=pytest.mark.soak)], indirect=True
)
def test_state_in_a_store_is_filled_repaired_and_renamed(spark, store, tmp_path):
    app = totals(spark, store, tmp_path, most=20)
    produce(app, "in", *range(40))
    assert app.backfill(until={"in": {0: 20}}) == 20
    app.run(drain=True)
    with admin.open(app) as state:
        changes = [change.after for change in state.history("k")]
        assert changes == [190, 780]
        state.export(tmp_path / "state.jsonl")
        state.set("k", {"total": 0})
        assert state.import_file(tmp_path / "state.jsonl") == 1
        assert state.get("k") == {"total": 780}
    produce(app, "in", *range(20))
    app.run(drain=True)

    generation = (store / "g" / "generations").entries()[-1].name
    folder = store / "g" / "generations" / generation
    found = [place for place, _ in (folder / "state").walk() if place.name.endswith(".changelog")]
    changelog = max(found, key=lambda place: int(place.name.partition("_")[0]))
    changelog.write(changelog.read()[:-7])
    with admin.open(app) as state:
        assert changelog.path in [problem.file for problem in state.verify().problems]
        state.repair()
        assert state.verify().problems == []
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("k") == {"total": 970}
        state.rename("in", "renamed")
    with admin.open(totals(spark, store, tmp_path, source="renamed")) as state:
        assert state.get("k") == {"total": 970}


@pytest.mark.parametrize("store", ["hdfs"], indirect=True)
def test_a_run_that_is_replaced_while_it_delivers_commits_nothing(spark, store, tmp_path):
    app = totals(spark, store, tmp_path)
    produce(app, "in", 1)
    app.run(drain=True)
    other = json.dumps({"owner": "other", "who": "process 1 on elsewhere", "free": True})
    taken = []

    def take_over(records, delivery_id):
        taken.append((store / "g" / "lock-99").create(other.encode()))

    again = totals(spark, store, tmp_path, sink=take_over)
    produce(again, "in", 2)
    with pytest.raises(GroupInUseError, match="taken over by process 1 on elsewhere"):
        again.run(drain=True)

    assert taken == [True]
    with admin.open(app) as state:
        assert state.get("k") == {"total": 1}
    app.run(drain=True)
    with admin.open(app) as state:
        assert state.get("k") == {"total": 3}
    assert [record.value for record in app.get_consumer().read("out")] == [1, 3]
