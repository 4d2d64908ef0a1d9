"""The broker of the tests is a real one: records, restarts, transactions, passwords, rights."""

from __future__ import annotations

import uuid

import pytest
from broker import Broker
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

pytestmark = pytest.mark.kafka


def new_topic(broker: Broker, partitions: int = 1, **config: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(10)
    return name


def write(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values of partition 0 up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    return values


def test_what_was_written_is_read(broker):
    topic = new_topic(broker)

    write(broker, topic, b"a", b"b")

    assert read(broker, topic) == [b"a", b"b"]


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_records_outlive_the_process(tmp_path, end):
    with Broker(tmp_path) as broker:
        topic = new_topic(broker)
        write(broker, topic, b"a")
        first, address = broker.pid, broker.address

        end(broker)
        broker.start()
        write(broker, topic, b"b")

        assert read(broker, topic) == [b"a", b"b"]
        assert broker.address == address
        assert broker.pid != first


def test_an_aborted_transaction_is_not_seen_by_those_who_read_committed(broker):
    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(10)
    for value, end in (
        (b"a", producer.commit_transaction),
        (b"b", producer.abort_transaction),
        (b"c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(10)  # an abort would drop what has not left yet
        end(10)

    assert read(broker, topic) == [b"a", b"c"]
    assert read(broker, topic, "read_uncommitted") == [b"a", b"b", b"c"]


def test_users_need_their_password_and_an_acl(tmp_path):
    with Broker(tmp_path, users={"ann": "river"}) as broker:
        topic = new_topic(broker)

        assert refusal(broker, topic, "ann", "wrong") == KafkaError._AUTHENTICATION
        assert refusal(broker, topic, "ann", "river") == KafkaError.TOPIC_AUTHORIZATION_FAILED

        allow(broker, topic, "ann", AclOperation.READ)
        assert refusal(broker, topic, "ann", "river") is None


def refusal(broker: Broker, topic: str, user: str, password: str) -> int | None:
    """Return the code of the error with which a user is kept from a topic, or None."""
    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": broker.sasl_address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    try:
        found = admin.list_topics(topic, timeout=3).topics[topic].error
    except KafkaException:
        admin.poll(0)  # calls back with what was wrong
        return errors[0].code()
    return None if found is None else found.code()


def allow(broker: Broker, topic: str, user: str, operation: AclOperation) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_acls([acl])[acl].result(10)
