"""State in S3 and in HDFS is looked into, rewound, changed and moved like state on a disk."""

from __future__ import annotations

import pytest

import millpond as mp
from millpond import admin
from millpond.errors import GroupInUseError
from millpond.lock import locked

pytestmark = pytest.mark.spark


def total(value, state):
    new = state.get("total", 0) + value
    state.set("total", new)
    return new


# In S3, tests/remote/test_cluster.py runs a program in `make test`.
@pytest.mark.parametrize(
    "store", ["hdfs", pytest.param("s3", marks=pytest.mark.soak)], indirect=True
)
def test_state_in_a_store_is_like_state_on_a_disk(spark, store, tmp_path):
    def program(group="g", state_dir=store.path):
        app = mp.Application(
            consumer_group=group,
            state_dir=state_dir,
            topics_dir=tmp_path / "topics",
            auto_offset_reset="earliest",
            max_records_per_batch=10,
            spark=spark,
            loglevel=None,
        )
        source = app.topic("in", key_deserializer="str")
        app.dataframe(source).apply(total, stateful=True).to_topic(app.topic("out"))
        return app

    def produce(*values):
        with app.get_producer() as producer:
            for value in values:
                producer.produce("in", key="k", value=value)

    app = program()
    produce(*range(40))
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
    produce(7)
    app.run(drain=True)

    with admin.open(program("other")) as state:
        assert state.get("k") == {"total": 0}
    with admin.open(app) as state:
        assert state.get("k") == {"total": 7}
        state.restore(tmp_path / "backup")
        assert state.get("k") == {"total": 0}
    totals = [record.value for record in app.get_consumer().read("out")]
    assert totals == [sum(range(i + 1)) for i in range(40)] + [7]
