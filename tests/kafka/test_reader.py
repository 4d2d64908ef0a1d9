"""Ranges of a topic, read as a stage reads them: whole, the same again, and nothing skipped."""

from __future__ import annotations

import pickle
import threading
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from kit import admin_of, connect, new_topic, produce_with_header_names, wait_for

from millpond.connectors.kafka import reader as reader_module
from millpond.connectors.kafka.broker import KafkaBroker
from millpond.connectors.kafka.raw import read_raw
from millpond.connectors.kafka.reader import KafkaReader
from millpond.connectors.kafka.topics import describe
from millpond.connectors.topic import make_topic
from millpond.errors import BrokerError, ConfigError, TopicError
from millpond.wire.headers import decode_headers

pytestmark = pytest.mark.kafka

NOW = int(time.time() * 1000)


def reader_of(broker, topic, **options) -> KafkaReader:
    connection = connect(broker)
    reader = KafkaReader(connection, topic, describe(connection, topic).id, **options)
    return pickle.loads(pickle.dumps(reader))  # as it comes to a worker


def values(reader, partition, start, end):
    rows = [row for batch in reader.read(partition, start, end) for row in batch.to_pylist()]
    return [(row["offset"], row["value"]) for row in rows]


def produce(broker, topic, *records, **settings):
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, **settings})
    for record in records:
        producer.produce(topic, **({"value": record} if isinstance(record, bytes) else record))
    assert producer.flush(10) == 0


def transaction(broker, topic, *records, commits=True):
    settings = {"bootstrap.servers": broker.address, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(10)
    producer.begin_transaction()
    for record in records:
        producer.produce(topic, **({"value": record} if isinstance(record, bytes) else record))
    producer.flush()
    if commits:
        producer.commit_transaction(10)
    else:
        producer.abort_transaction(10)


def test_a_range_has_keys_values_times_headers_and_offsets(broker):
    topic = new_topic(broker)
    headers = [("trace", b"1"), ("empty", None)]
    produce(broker, topic, {"key": b"k", "value": b"v", "timestamp": NOW, "headers": headers})
    produce(broker, topic, {"key": b"k", "value": None, "timestamp": NOW + 1})  # a tombstone

    (batch,) = reader_of(broker, topic).read("0", 0, 2)

    first, second = batch.to_pylist()
    assert decode_headers(first.pop("headers")) == headers
    assert first == {"key": b"k", "value": b"v", "timestamp": NOW, "offset": 0}
    assert second == {
        "key": b"k",
        "value": None,
        "timestamp": NOW + 1,
        "headers": None,
        "offset": 1,
    }


def test_any_range_is_read_again_the_same(broker):
    topic = new_topic(broker, 2)
    for number in range(40):
        produce(broker, topic, {"value": b"%d" % number, "partition": number % 2})
    reader = reader_of(broker, topic)

    for _ in range(2):
        assert values(reader, "0", 0, 20) == [(i, b"%d" % (2 * i)) for i in range(20)]
        assert values(reader, "1", 5, 8) == [(i, b"%d" % (2 * i + 1)) for i in range(5, 8)]
        assert values(reader, "0", 19, 20) == [(19, b"38")]


def test_the_size_of_records_may_be_asked_for_while_the_broker_is_away(tmp_path):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        topic = new_topic(broker)
        produce(broker, topic, b"x" * 100)
        reader = reader_of(broker, topic)
        assert reader.record_bytes("0", 0) == 100
        reader._sizes["0"] = (-1000.0, 100)  # long ago
        broker.kill()

        assert reader.record_bytes("0", 0) == 100


def test_small_ranges_are_fetched_together_and_each_is_whole(broker, monkeypatch):
    topic, count = new_topic(broker, 16), 16 * 5
    for number in range(count):
        produce(broker, topic, {"value": b"%d" % number, "partition": number % 16})
    reader, made = reader_of(broker, topic), []
    consumer_of = reader._consumer
    monkeypatch.setattr(reader, "_consumer", lambda: made.append(1) or consumer_of())
    ranges = [(str(p), 1, 5 if p % 2 else 3) for p in range(16)]

    reader.fetch(ranges)

    for partition, start, end in ranges:
        expected = [(i, b"%d" % (16 * i + int(partition))) for i in range(start, end)]
        assert values(reader, partition, start, end) == expected
    assert len(made) == 1
    assert values(reader, "0", 1, 2) == [(1, b"16")]  # what was not announced is read as ever


def test_a_silent_partition_is_given_up_however_lively_its_neighbour(broker):
    topic, stop = new_topic(broker, 2), threading.Event()
    reader = KafkaReader(connect(broker, patience=2.0), topic, "")

    def feed():
        while not stop.is_set():
            produce(broker, topic, {"value": b"x", "partition": 0})

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        began = time.monotonic()
        with pytest.raises(BrokerError, match="partition 1 .*gave nothing from offset 0"):
            reader.fetch([("0", 0, 5), ("1", 0, 5)])
        assert time.monotonic() - began < 15
    finally:
        stop.set()
        feeder.join()


def test_ranges_without_records_are_fetched_together_too(broker):
    topic = new_topic(broker, 2)
    transaction(
        broker, topic, *({"value": b"never", "partition": p} for p in (0, 1)), commits=False
    )
    produce(broker, topic, {"value": b"last", "partition": 1})
    reader = reader_of(broker, topic)
    ends = reader.latest()

    reader.fetch([("0", 0, ends["0"]), ("1", 0, ends["1"])])

    assert values(reader, "0", 0, ends["0"]) == []
    assert [value for _, value in values(reader, "1", 0, ends["1"])] == [b"last"]


def test_where_a_group_starts_and_where_a_topic_ends(broker):
    topic = new_topic(broker, 2)
    produce(broker, topic, *({"value": b"x", "partition": 1} for _ in range(3)))
    reader = reader_of(broker, topic)

    assert reader.initial("earliest") == {"0": 0, "1": 0}
    assert reader.initial("latest") == reader.latest() == {"0": 0, "1": 3}
    with pytest.raises(TopicError, match="auto_offset_reset(.|\n)*Fix:"):
        reader.initial("error")


def test_what_was_taken_back_is_not_read(broker):
    topic = new_topic(broker)
    transaction(broker, topic, b"a", b"b")
    transaction(broker, topic, b"never", commits=False)
    transaction(broker, topic, b"c")
    reader = reader_of(broker, topic)

    end = reader.latest()["0"]
    assert end == 7  # each transaction ends with a mark that takes an offset

    assert values(reader, "0", 0, end) == [(0, b"a"), (1, b"b"), (5, b"c")]
    assert values(reader, "0", 2, 5) == []
    assert values(reader, "0", 5, end) == [(5, b"c")]


def test_nothing_is_read_beyond_a_transaction_that_is_open(broker):
    topic = new_topic(broker)
    produce(broker, topic, b"before")
    open_one = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    open_one.init_transactions(10)
    open_one.begin_transaction()
    open_one.produce(topic, b"open")
    open_one.flush()
    produce(broker, topic, b"after")
    reader = reader_of(broker, topic)

    assert reader.latest() == {"0": 1}
    assert values(reader, "0", 0, 1) == [(0, b"before")]

    open_one.commit_transaction(10)
    end = wait_for(lambda: reader.latest()["0"] > 1 and reader.latest()["0"])
    assert values(reader, "0", 1, end) == [(1, b"open"), (2, b"after")]


def test_a_compacted_topic_has_gaps_and_still_ends(broker):
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = new_topic(broker, **settings)
    reader = reader_of(broker, topic)
    for number in range(30):
        produce(broker, topic, {"key": b"same", "value": b"%d" % number})
        time.sleep(0.02)

    def read():
        time.sleep(0.2)
        produce(broker, topic, {"key": b"other", "value": b"x"})
        found = values(reader, "0", 0, 30)
        return found if len(found) < 30 else None

    found = wait_for(read, 30)
    assert found[-1] == (29, b"29")


def test_a_partition_that_is_added_is_read_from_its_beginning(broker):
    topic = new_topic(broker)
    produce(broker, topic, b"a")
    reader = reader_of(broker, topic)
    begin = reader.latest()
    admin = admin_of(broker)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    produce(broker, topic, {"value": b"new", "partition": 2})

    ends = wait_for(lambda: (e := reader.ends(begin)).get("2") and e)

    assert ends == {"0": 1, "1": 0, "2": 1}
    assert values(reader, "2", begin.get("2", 0), ends["2"]) == [(0, b"new")]


def test_records_that_retention_took_are_an_error_or_skipped_and_said_to_be(broker, monkeypatch):
    topic = new_topic(broker, **{"retention.ms": "100", "segment.ms": "100"})
    reader, skipping = reader_of(broker, topic), reader_of(broker, topic, skips_lost=True)
    begin = reader.initial("earliest")

    def oldest():
        produce(broker, topic, b"x")
        return reader_of(broker, topic).initial("earliest")["0"] > 0

    wait_for(oldest)
    time.sleep(1.1)  # what a reader knows is believed for a second

    with pytest.raises(TopicError, match="deleted before they were read(.|\n)*on_lost_records"):
        reader.ends(begin)
    warnings = []
    monkeypatch.setattr(
        reader_module.logger, "warning", lambda text, *facts: warnings.append(text % facts)
    )
    end = skipping.ends(begin)["0"]
    skipping.ends(begin)
    assert warnings == [
        f"records 0 to {skipping._oldest['0'] - 1} of partition 0 of topic {topic!r} were deleted "
        "before they were read (retention); they are skipped"
    ]
    assert all(offset > 0 for offset, _ in values(skipping, "0", 0, end))


def test_a_topic_made_again_is_not_taken_for_the_old_one(broker):
    topic = new_topic(broker)
    reader = reader_of(broker, topic)
    produce(broker, topic, b"old")
    begin = reader.latest()
    admin = admin_of(broker)
    admin.delete_topics([topic])[topic].result(10)
    time.sleep(1.1)
    with pytest.raises(TopicError, match="no longer exists(.|\n)*Fix:"):
        wait_for(lambda: reader.ends(begin) and None, 5)

    made = make_topic(topic)
    place = KafkaBroker(
        connect(broker), {}, creates=True, guarantee="exactly-once", skips_lost=False
    )
    place.prepare(made)
    produce(broker, topic, b"new", b"new")
    with pytest.raises(TopicError, match="created again(.|\n)*clear_state"):
        wait_for(lambda: reader.ends(begin) and None, 5)
    with pytest.raises(TopicError, match="created again(.|\n)*clear_state"):
        place.prepare(made, known_as="the id it had before")


def test_large_records_are_guessed_to_be_large(broker):
    topic = new_topic(broker)
    produce(broker, topic, *[b"x" * 50_000] * 30)
    reader = reader_of(broker, topic)

    assert reader.record_bytes("0", 0) == 50_000
    assert [len(v) for _, v in values(reader, "0", 0, 30)] == [50_000] * 30


def test_a_broker_that_is_away_is_waited_for_and_then_given_up(tmp_path):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        topic = new_topic(broker)
        produce(broker, topic, b"a")
        connection = connect(broker, patience=2.0, extra={"socket.timeout.ms": 1000})
        reader = KafkaReader(connection, topic, describe(connection, topic).id)
        begin = reader.latest()
    reader._looked = 0.0

    assert reader.ends(begin) == begin
    with pytest.raises(BrokerError, match="Fix: check the address"):
        wait_for(lambda: reader.ends(begin) and None, 40)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_that_goes_while_it_is_asked_is_waited_for(tmp_path, end):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        topic = new_topic(broker)
        produce(broker, topic, b"a")
        connection = connect(broker, extra={"socket.timeout.ms": 1000})
        reader = KafkaReader(connection, topic, describe(connection, topic).id)
        begin, asked, over = reader.latest(), [], threading.Event()

        def ask():
            while not over.is_set():
                asked.append(reader.ends(begin))
                time.sleep(0.01)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.3)
        getattr(broker, end)()
        time.sleep(1.0)
        broker.start()
        produce(broker, topic, b"b")
        try:
            wait_for(lambda: asked[-1] == {"0": 2} or not thread.is_alive(), 40)
        finally:
            over.set()
            thread.join()

    assert {place["0"] for place in asked} == {1, 2}


def test_the_size_of_records_that_are_not_there_is_not_waited_for(broker):
    topic = new_topic(broker)
    transaction(broker, topic, b"never", commits=False)
    reader = reader_of(broker, topic)
    reader.latest()

    began = time.monotonic()
    assert reader.record_bytes("0", 0) == 0
    assert time.monotonic() - began < 5


def test_names_of_headers_that_are_not_utf_8_are_read_as_by_a_java_consumer(broker):
    topic = new_topic(broker)
    first = {"value": b"before", "key": b"k", "headers": {"good": b"1"}, "timestamp": NOW}
    produce(broker, topic, first)
    produce_with_header_names(broker, topic, NOW, b"good", b"\xff\xfe", b"caf\xe9")
    produce(broker, topic, {"value": b"after", "timestamp": NOW})
    reader = reader_of(broker, topic)

    rows = [row for batch in reader.read("0", 0, 5) for row in batch.to_pylist()]
    again = [row for batch in reader.read("0", 2, 3) for row in batch.to_pylist()]

    assert [row["value"] for row in rows] == [b"before", b"v0", b"v1", b"v2", b"after"]
    assert [row["key"] for row in rows] == [b"k", None, None, None, None]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["timestamp"] for row in rows] == [NOW, NOW, NOW + 1, NOW + 2, NOW]
    names = [decode_headers(row["headers"]) for row in rows]
    assert names == [
        [("good", b"1")],
        [("good", b"\xff")],
        [("\ufffd\ufffd", b"\xff")],
        [("caf\ufffd", b"\xff")],
        None,
    ]
    assert again == rows[2:3]


def test_settings_that_are_functions_cannot_be_used_to_read_such_a_name(broker):
    settings = {"bootstrap.servers": broker.address, "oauth_cb": print}

    with pytest.raises(ConfigError, match=r"not UTF-8, and setting 'oauth_cb'(.|\n)*Fix: "):
        next(read_raw(settings, "topic", 0, 0))
