"""State is looked into, rewound, forked and backfilled where topics are on Kafka."""

from __future__ import annotations

import pytest
from kit import new_name, new_topic

import millpond as mp
from millpond import admin

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KEYS = 7


def total(value, state):
    new = state.get("total", 0) + value
    state.set("total", new)
    return new


@pytest.fixture
def make(broker, spark, tmp_path):
    """Programs that read the same topic."""
    source = new_topic(broker, 2)

    def make(out, group=None):
        app = mp.Application(
            broker.address,
            consumer_group=group or new_name("group"),
            state_dir=tmp_path / "state",
            auto_offset_reset="earliest",
            max_records_per_batch=20,
            spark=spark,
            loglevel=None,
        )
        frame = app.dataframe(app.topic(source, key_deserializer="str"))
        frame.apply(total, stateful=True).to_topic(app.topic(out))
        return app

    make.source = source
    return make


def produce(app, topic, numbers):
    with app.get_producer() as producer:
        for number in numbers:
            producer.produce(topic, key=f"k{number % KEYS}", value=number)


def written(app, topic):
    """All totals of each key, in their order."""
    found: dict[str, list[int]] = {}
    with app.get_consumer() as consumer:
        for record in consumer.read(topic):
            found.setdefault(record.key.decode(), []).append(record.value)
    return found


def expected(numbers, start=0):
    """The totals of all keys after a number of records."""
    found, totals = {}, {}
    for number in numbers:
        key = f"k{number % KEYS}"
        totals[key] = totals.get(key, 0) + number
        if number >= start:
            found.setdefault(key, []).append(totals[key])
    return found


def test_history_has_its_records_and_a_rewind_writes_nothing_twice(make):
    out = new_name("out")
    app = make(out)
    produce(app, make.source, range(100))
    app.run(drain=True)

    with admin.open(app) as state:
        changes = state.history("k3")
        values = [record.value for change in changes for record in change.records]
        assert values == [number for number in range(100) if number % KEYS == 3]
        assert [change.after for change in changes][-1] == sum(values)
        last = state.info().last_batch
        rewound = state.rewind(last - 3)
        assert rewound.batches == 3
        assert state.get("k3", at=last - 3) == state.get("k3") != {"total": sum(values)}
    produce(app, make.source, range(100, 140))
    app.run(drain=True)

    assert written(app, out) == expected(range(140))
    with admin.open(app) as state:
        state.rewind(last - 3, outputs="again")
        count = sum(map(len, expected(range(140)).values()))
    app.run(drain=True)
    again = sum(map(len, written(app, out).values())) - count
    assert 40 < again < 140


def test_a_fork_goes_on_with_the_records_after_it(make):
    out, group = new_name("out"), new_name("group")
    app = make(out)
    produce(app, make.source, range(60))
    app.run(drain=True)
    with admin.open(app) as state:
        state.fork(group)
    fork_out = new_name("out")
    fork = make(fork_out, group)
    produce(app, make.source, range(60, 100))

    fork.run(drain=True)
    app.run(drain=True)

    assert written(app, out) == expected(range(100))
    assert written(fork, fork_out) == expected(range(100), start=60)


def test_a_backfill_ends_at_an_offset_and_the_live_run_goes_on_there(make):
    out = new_name("out")
    app = make(out)
    produce(app, make.source, range(100))
    until = {0: 20, 1: 10}

    assert app.backfill(until={make.source: until}) == 30
    assert written(app, out) == {}
    app.run(drain=True)

    found = written(app, out)
    assert sum(map(len, found.values())) == 70
    assert {key: totals[-1] for key, totals in found.items()} == {
        key: totals[-1] for key, totals in expected(range(100)).items()
    }
