"""Records of any content: the stream goes on, none is lost, and dead letters have their bytes.

`make test` tries one set of them, `make soak` ten.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from kit import new_name, new_topic, produce_with_header_names
from registry import A_CLICK, A_PERSON, AN_ORDER, CLICK, PERSON, Order

import millpond as mp
from millpond.connectors.topic import make_topic

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

# Hostile records of a set, and sets.
RECORDS, SETS = 300, 10 if int(os.environ.get("MILLPOND_CRASHES", "0")) else 1

NOW = int(time.time() * 1000)

# Kafka takes them where the topic is set so; librdkafka writes 0 as now.
TIMES = (NOW, 1, -1, -2, -5_000, NOW + 3_600_000, NOW + 10**10, 10**15, 2**53, 2**62, 2**63 - 1)

BROKEN = (
    b"",
    b"\x00",
    b"{",
    b"nul",
    b'"\xff\xfe"',
    b'"\\ud800"',
    b"NaN",
    b"1e999",
    b"-0",
    b"9" * 5_000,
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"a": 1, "a": 2}',
    b"\xef\xbb\xbf{}",
    b"\x00\x00\x00\x00\x01",
    b"\x00\x7f\xff\xff\xff{}",
    b"\x01\x00\x00\x00\x01",
    b"\xff" * 64,
    b"x" * 900_000,
)


# Of headers.
NAMES = (b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80")


def hostile(numbers: random.Random, good: list[bytes]) -> tuple:
    """Return value, key, time and headers of one record."""
    value = numbers.choice([*good, *BROKEN, None])
    if value and numbers.random() < 0.5:
        value = bytearray(value)
        for _ in range(numbers.randrange(1, 4)):
            value[numbers.randrange(len(value))] = numbers.randrange(256)
        value = bytes(value[: numbers.choice([len(value), numbers.randrange(len(value) + 1)])])
    key = numbers.choice(
        [None, b"", b"ann", b"\xff\xfe", b"\x00", "é".encode(), b"k" * 50_000, numbers.randbytes(8)]
    )
    headers = numbers.choice(
        [
            None,
            [("", b"")],
            [("a", None), ("a", b"\xff")],
            [("millpond.error", b"mine"), ("millpond.timestamp", b"mine")],
            [(f"h{n}", numbers.randbytes(20)) for n in range(300)],
            [("é" * 100, b"x" * 60_000)],
        ]
    )
    return value, key, numbers.choice(TIMES), headers


def serializers(registry, topics: dict[str, str]) -> dict[str, tuple]:
    """A serializer and a deserializer of each format, and a value that they know."""
    where = mp.SchemaRegistryClientConfig(registry.url)
    options = {"schema_registry_client_config": where}
    made = {
        "json": ("json", "json", {"user": "ann"}),
        "text": ("str", "str", "text"),
        "avro": (mp.AvroSerializer(CLICK), mp.AvroDeserializer(CLICK), A_CLICK),
        "protobuf": (mp.ProtobufSerializer(Order), mp.ProtobufDeserializer(Order), AN_ORDER),
        "avro of a registry": (
            mp.AvroSerializer(CLICK, **options),
            mp.AvroDeserializer(**options),
            A_CLICK,
        ),
        "protobuf of a registry": (
            mp.ProtobufSerializer(Order, **options),
            mp.ProtobufDeserializer(Order, **options),
            AN_ORDER,
        ),
        "json of a registry": (
            mp.JSONSerializer(schema=PERSON, **options),
            mp.JSONDeserializer(**options),
            A_PERSON,
        ),
    }
    return {topics[name]: parts for name, parts in made.items()}


FORMATS = (
    "json",
    "text",
    "avro",
    "protobuf",
    "avro of a registry",
    "protobuf of a registry",
    "json of a registry",
)


def count(value, state):
    state.set("count", state.get("count", 0) + 1)
    return {"count": state.get("count")}


@pytest.mark.parametrize("number", range(SETS))
def test_no_record_stops_the_stream_and_none_is_lost(number, spark, broker, registry, tmp_path):
    group, numbers = new_name("hostile"), random.Random(number)
    takes_any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    topics = {name: new_topic(broker, 2, **takes_any_time) for name in FORMATS}
    formats = serializers(registry, topics)
    app = mp.Application(
        broker.address,
        consumer_group=group,
        state_dir=tmp_path / "state",
        auto_offset_reset="earliest",
        max_records_per_batch=1_000,
        on_error="dead-letter",
        loglevel=None,
        spark=spark,
    )
    good = []
    for name, (write, read, value) in formats.items():
        topic = app.topic(
            name, value_serializer=write, value_deserializer=read, key_deserializer="str"
        )
        good.append(make_topic(name, value_serializer=write).value_serializer(value))
        app.dataframe(topic).apply(count, stateful=True).to_topic(app.topic(f"{name}-out"))
    records = [hostile(numbers, good) for _ in range(RECORDS)]
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for name in formats:
        for value, key, moment, headers in records:
            producer.produce(name, value, key, timestamp=moment, headers=headers)
    assert producer.flush(30) == 0
    for name in formats:
        produce_with_header_names(broker, name, NOW, *NAMES)

    app.run(drain=True)

    with app.get_consumer() as consumer:
        letters = list(consumer.read(f"{group}.dead-letters"))
        written = {name: len(list(consumer.read(f"{name}-out"))) for name in formats}
        raw = mp.Application(broker.address, loglevel=None).get_consumer()
        sent = {(r.topic, r.partition, r.offset): r for name in formats for r in raw.read(name)}
    assert len(sent) == (RECORDS + len(NAMES)) * len(formats)
    dead = {name: [] for name in formats}
    for letter in letters:
        facts = dict(letter.headers[-9:])
        source = facts["millpond.topic"].decode()
        place = source, int(facts["millpond.partition"]), int(facts["millpond.offset"])
        dead[source].append(place)
        check(letter, facts, sent[place])
    for name in formats:
        assert written[name] + len(dead[name]) == RECORDS + len(NAMES)
        assert max(Counter(dead[name]).values()) == 1
        assert 0 < written[name] < RECORDS
    reports = app.reports
    assert all(report.reconciles for report in reports)
    assert sum(report.read for report in reports) == len(sent)
    assert sum(report.dead + report.refused for report in reports) == len(letters)
    print(f"{len(sent)} records, {len(letters)} dead letters, 0 lost")


def check(letter, facts, record):
    """A dead letter has the bytes of its record, and says where it is not as it was."""
    is_output = facts["millpond.step"].startswith(b"to_topic")
    is_cut = "millpond.cut" in facts
    assert letter.key == record.key or (is_cut and record.key.startswith(letter.key))
    if is_output:
        assert "count" in json.loads(letter.value)
    else:
        assert letter.value == record.value or (is_cut and record.value.startswith(letter.value))
    own = record.headers or []
    assert letter.headers[: len(own)] == own or is_cut
    known = facts.get("millpond.timestamp", str(letter.timestamp).encode())
    assert known in (str(record.timestamp).encode(), b"mine")
