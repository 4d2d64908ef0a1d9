"""What tests against a broker share: topics of their own, connections, what a reader sees."""

from __future__ import annotations

import ctypes
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, cimpl
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


def produce_with_header_names(broker, topic: str, now: int, *names: bytes) -> None:
    """Write v0, v1, ... with names that confluent_kafka, other than some clients, does not take."""
    library = ctypes.CDLL(cimpl.__file__)
    for function in ("conf_new", "new", "headers_new"):
        getattr(library, f"rd_kafka_{function}").restype = ctypes.c_void_p
    said = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", broker.address.encode(), said, 512)
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, said, 512))
    end, in_topic, value, flags, copied, timed, with_headers = 0, 1, 4, 7, 2, 8, 10
    for number, name in enumerate(names):
        headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
        library.rd_kafka_header_add(headers, name, len(name), b"\xff", 1)
        data = b"v%d" % number
        assert not library.rd_kafka_producev(
            client, in_topic, topic.encode(), flags, copied,
            value, data, ctypes.c_size_t(len(data)), timed, ctypes.c_int64(now + number),
            with_headers, headers, end,
        )  # fmt: skip
    assert not library.rd_kafka_flush(client, 10_000)
    library.rd_kafka_destroy(client)
