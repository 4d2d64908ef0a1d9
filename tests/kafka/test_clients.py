"""`get_producer` and `get_consumer` speak to Kafka with the faces they have on the embedded log."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TopicPartition
from kit import new_name, new_topic

import millpond as mp
from millpond.connectors.kafka import topics
from millpond.errors import ConfigError, TopicError

pytestmark = pytest.mark.kafka

NOW = int(time.time() * 1000)


@pytest.fixture(params=["embedded", "kafka"])
def app(request, broker, tmp_path):
    address = broker.address if request.param == "kafka" else None
    return mp.Application(
        address, state_dir=tmp_path / "state", topics_dir=tmp_path / "topics", loglevel=None
    )


def test_records_come_back_as_they_were_written(app):
    topic = app.topic(new_name(), key_deserializer="str", key_serializer="str")

    with app.get_producer() as producer:
        producer.produce(topic, {"n": 1}, "ann", timestamp=NOW, headers={"trace": "7"})
        producer.produce(topic, None, "ann", timestamp=NOW + 1)
        producer.produce(topic.name, b'{"n": 3}', b"ann", timestamp=NOW + 2)

    with app.get_consumer() as consumer:
        records = list(consumer.read(topic))
    assert [(r.key, r.value, r.timestamp) for r in records] == [
        ("ann", {"n": 1}, NOW),
        ("ann", None, NOW + 1),
        ("ann", {"n": 3}, NOW + 2),
    ]
    assert [r.headers for r in records] == [[("trace", b"7")], None, None]
    assert [(r.topic, r.partition, r.offset) for r in records] == [
        (topic.name, 0, i) for i in range(3)
    ]


def test_a_topic_made_after_its_client_is_known_to_the_client(app):
    producer, consumer = app.get_producer(), app.get_consumer()
    topic = app.topic(new_name())

    with producer, consumer:
        producer.produce(topic.name, {"n": 1})
        producer.flush()
        assert [record.value for record in consumer.read(topic.name)] == [{"n": 1}]


@pytest.mark.parametrize("partition", [1, -1, True])
def test_a_partition_that_the_topic_does_not_have_is_refused(app, partition):
    topic = app.topic(new_name())

    with app.get_producer() as producer, pytest.raises(ConfigError, match="it has 1(.|\n)*Fix:"):
        producer.produce(topic, {"n": 1}, partition=partition)


def test_poll_gives_what_comes_next_or_nothing(app):
    topic = app.topic(new_name())
    with app.get_producer() as producer, app.get_consumer() as consumer:
        producer.produce(topic, value={"n": 1})
        producer.flush()
        consumer.subscribe([topic])

        assert consumer.poll(10).value == {"n": 1}
        assert consumer.poll(0.1) is None
        producer.produce(topic, value={"n": 2})
        producer.flush()
        assert consumer.poll(10).value == {"n": 2}


def test_reading_a_whole_topic_does_not_disturb_a_subscription(app):
    topic = app.topic(new_name())
    with app.get_producer() as producer, app.get_consumer() as consumer:
        producer.produce(topic, value=1)
        producer.flush()
        consumer.subscribe([topic])

        assert [record.value for record in consumer.read(topic)] == [1]
        assert consumer.poll(10).value == 1


def test_a_consumer_may_begin_at_the_end(app):
    topic = app.topic(new_name())
    with app.get_producer() as producer, app.get_consumer() as consumer:
        producer.produce(topic, value=1)
        producer.flush()
        consumer.subscribe([topic], from_end=True)
        producer.produce(topic, value=2)
        producer.flush()

        assert consumer.poll(10).value == 2


def test_each_delivery_is_reported_and_a_consumer_goes_on_where_it_is_sent(app):
    topic = app.topic(new_name(), config=mp.TopicConfig(num_partitions=2))
    found = []
    with app.get_producer() as producer, app.get_consumer() as consumer:
        for number in range(3):
            report = lambda *given: found.append(given)  # noqa: E731
            producer.produce(topic, number, "k", partition=0, on_delivery=report)
        producer.produce(topic, 9, "k", partition=1)
        assert producer.flush() == 0
        consumer.subscribe([topic])
        first = {(r.partition, r.value) for r in (consumer.poll(10) for _ in range(4))}
        consumer.seek(TopicPartition(topic.name, 0, 1))
        then = [consumer.poll(10).value, consumer.poll(10).value, consumer.poll(0.1)]

    assert [(error, r.topic, r.partition, r.value) for error, r in found] == [
        (None, topic.name, 0, value) for value in (b"0", b"1", b"2")
    ]
    assert first == {(0, 0), (0, 1), (0, 2), (1, 9)}
    assert then == [1, 2, None]


def test_a_key_goes_to_one_partition_and_a_partition_may_be_chosen(app):
    topic = app.topic(new_name(), config=mp.TopicConfig(num_partitions=4))
    with app.get_producer() as producer:
        for number in range(12):
            producer.produce(topic, number, f"k{number % 3}")
        producer.produce(topic, 99, "k0", partition=3)

    with app.get_consumer() as consumer:
        records = list(consumer.read(topic))
    places = {(r.key, r.partition) for r in records if r.value != 99}
    assert len(places) == 3
    assert [r.partition for r in records if r.value == 99] == [3]
    assert len(records) == 13


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"topic": "bad name"}, ConfigError),
        ({"timestamp": 1.5}, ConfigError),
        ({"value": {"n": 1}}, TopicError),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused_at_the_call(app, options, kind):
    with app.get_producer() as producer, pytest.raises(kind, match="Fix:"):
        producer.produce(**{"topic": "clicks", "value": b"x", **options})


def test_a_topic_that_is_not_there_cannot_be_read(app):
    with app.get_consumer() as consumer, pytest.raises(TopicError, match="does not exist"):
        list(consumer.read(new_name()))


def test_a_topic_that_is_not_as_its_config_says_is_reported(broker, monkeypatch):
    name, warnings = new_topic(broker, 2, **{"retention.ms": "60000"}), []
    monkeypatch.setattr(
        topics.logger, "warning", lambda text, *values: warnings.append(text % values)
    )
    app = mp.Application(broker.address, loglevel=None)

    app.broker.prepare(app.topic(name))
    assert warnings == []
    extra = {"retention.ms": "1000", "cleanup.policy": "delete"}
    wanted = mp.TopicConfig(num_partitions=3, replication_factor=2, extra_config=extra)
    other = mp.Application(broker.address, loglevel=None)
    other.broker.prepare(other.topic(name, config=wanted))

    assert warnings == [
        f"topic {name!r} has {what}; it stays as it is"
        for what in ("2 partition(s), not 3", "1 replica(s), not 2", "retention.ms=60000, not 1000")
    ]
