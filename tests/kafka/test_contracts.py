"""What is on Kafka keeps the contracts that the embedded log keeps."""

from __future__ import annotations

import pytest
from contracts import check_broker, check_writer
from kit import connect, new_name, new_topic

from millpond.connectors.kafka.broker import KafkaBroker
from millpond.connectors.topic import make_topic
from millpond.testing.reader_contract import check_reader

pytestmark = pytest.mark.kafka


def kafka(broker, guarantee="exactly-once"):
    return KafkaBroker(connect(broker), {}, creates=True, guarantee=guarantee, skips_lost=False)


def test_a_broker_keeps_the_contract(broker):
    check_broker(kafka(broker), new_name())


def test_a_writer_keeps_the_contract(broker):
    out, group = new_topic(broker), new_name("group")

    def make():
        return kafka(broker).writer(group, "stream", True, lambda number: {})

    def read(topic):
        with kafka(broker).consumer() as consumer:
            return [record.value for record in consumer.read(topic)]

    check_writer(make, read, out)


def test_a_reader_keeps_the_contract(broker):
    topic = make_topic(new_topic(broker, partitions=3))

    def produce():
        with kafka(broker).producer() as producer:
            for number in range(30):
                producer.produce(topic.name, key=f"k{number}", value=b"%d" % number)

    produce()

    check_reader(lambda: kafka(broker).reader(topic), grow=produce)
