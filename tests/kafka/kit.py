"""What tests against a broker share: topics of their own, connections, what a reader sees."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import millpond as mp
from millpond.connectors.kafka.connection import Connection

# What a broker says of groups that has just started.
_NOT_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
}


def new_name(what: str = "topic") -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def new_topic(broker, partitions: int = 1, name: str = "", **config: str) -> str:
    name = name or new_name()
    admin = admin_of(broker)
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(10)
    return name


def admin_of(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def connect(broker, **options) -> Connection:
    return Connection(mp.ConnectionConfig(broker.address, **options))


def committed(broker, group: str, topic: str, partitions: int = 1) -> list[int]:
    """The offsets of a consumer group, as lag tools see them."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    asked = [TopicPartition(topic, p) for p in range(partitions)]

    def ask() -> list[TopicPartition] | None:
        try:
            return consumer.committed(asked, 10)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return None

    try:
        return [place.offset for place in wait_for(ask)]
    finally:
        consumer.close()


def wait_for(condition, seconds: float = 20.0):
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come true in time")
