"""The outputs of batches: all of a batch or nothing, once, and not by two programs at a time."""

from __future__ import annotations

import threading
import time
import weakref

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from kit import committed, connect, new_name, new_topic, wait_for

import millpond as mp
from millpond.connectors.kafka.broker import KafkaBroker
from millpond.connectors.kafka.clients import KafkaConsumer
from millpond.connectors.kafka.connection import Connection
from millpond.connectors.kafka.sender import Sender
from millpond.connectors.kafka.topics import offsets_of
from millpond.connectors.kafka.writer import KafkaWriter
from millpond.connectors.limits import RecordsRefused
from millpond.errors import BrokerError, ConfigError, TopicError
from millpond.wire.headers import encode_headers
from millpond.wire.packed_rows import HEADERS, records_schema

pytestmark = pytest.mark.kafka

NOW = 1_794_700_000_000


def batch_of(*rows):
    """Rows of (key, value), as they come from the stages."""
    columns = [
        [key for key, _ in rows],
        [value for _, value in rows],
        [NOW + i for i in range(len(rows))],
        [0] * len(rows),
        list(range(len(rows))),
        list(range(len(rows))),
        [encode_headers({"n": str(i)}) for i in range(len(rows))],
    ]
    schema = records_schema(HEADERS)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def writer_of(
    broker, group, read=None, stream="s", guarantee="exactly-once", further=0, connection=None
):
    connection = connection or connect(broker)
    place = KafkaBroker(connection, {}, creates=True, guarantee=guarantee, skips_lost=False)
    topics = [read] if read else []
    return place.writer(
        group,
        stream,
        True,
        lambda batch: {topic: {"0": 10 * (batch + 1) + further} for topic in topics},
    )


def seen(broker, topic):
    with KafkaConsumer(connect(broker)) as consumer:
        return [(r.key, r.value) for r in consumer.read(topic)]


def write(writer, topic, batch_id, *rows):
    writer.write(topic, batch_of(*rows), batch_id)
    writer.complete(batch_id)


def offset_in(broker, group, topic):
    """The offset of the group in a topic's only partition; it comes after the batch."""
    return wait_for(lambda: [o for o in committed(broker, group, topic) if o > 0])


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_batch_arrives_with_keys_times_and_headers_and_the_group_knows_of_it(broker, guarantee):
    out, read, group = new_topic(broker), new_topic(broker), new_name("group")
    writer = writer_of(broker, group, read, guarantee=guarantee)

    write(writer, out, 0, (b"a", b"1"), (b"b", None), (None, b"3"))

    with KafkaConsumer(connect(broker)) as consumer:
        records = list(consumer.read(out))
    assert [(r.key, r.value) for r in records] == [(b"a", b"1"), (b"b", None), (None, b"3")]
    assert [r.timestamp for r in records] == [NOW, NOW + 1, NOW + 2]
    assert [r.headers for r in records] == [[("n", b"%d" % i)] for i in range(3)]
    assert offset_in(broker, group, read) == [10]


def test_records_without_headers_keep_their_times_and_go_by_their_keys(broker):
    out, group = new_topic(broker, 8), new_name("group")
    keys = [b"k%d" % i for i in range(50)]
    batch = batch_of(*((key, key) for key in keys)).drop_columns(["headers"])
    writer = writer_of(broker, group)

    writer.write(out, batch, 0)
    writer.complete(0)
    write(writer, out, 1, *((key, b"with headers") for key in keys))

    with KafkaConsumer(connect(broker)) as consumer:
        records = list(consumer.read(out))
    times = {r.key: r.timestamp for r in records if r.headers is None}
    assert times == {key: NOW + i for i, key in enumerate(keys)}
    assert len({(r.key, r.partition) for r in records}) == len(keys)


@pytest.mark.parametrize("reads", [True, False], ids=["from a topic", "from elsewhere"])
def test_a_batch_that_comes_again_changes_nothing(broker, reads):
    out, read, group = new_topic(broker), new_topic(broker), new_name("group")
    read = read if reads else None
    first = writer_of(broker, group, read)
    write(first, out, 0, (b"a", b"1"))
    write(first, out, 1, (b"a", b"2"))

    again = writer_of(broker, group, read)  # after a crash: the commit of 1 was lost
    write(again, out, 1, (b"a", b"2"))
    write(again, out, 2, (b"a", b"3"))

    assert [value for _, value in seen(broker, out)] == [b"1", b"2", b"3"]


def test_another_stream_of_the_group_counts_again(broker):
    out, group = new_topic(broker), new_name("group")
    write(writer_of(broker, group, stream="one"), out, 0, (b"a", b"1"))

    write(writer_of(broker, group, stream="two"), out, 0, (b"a", b"2"))

    assert [value for _, value in seen(broker, out)] == [b"1", b"2"]


def test_a_state_directory_that_was_put_back_is_noticed(broker):
    out, group = new_topic(broker), new_name("group")
    write(writer_of(broker, group), out, 5, (b"a", b"1"))

    with pytest.raises(TopicError, match="older(.|\n)*Fix:"):
        write(writer_of(broker, group), out, 3, (b"a", b"0"))


def test_a_batch_without_outputs_only_moves_the_group(broker):
    out, read, group = new_topic(broker), new_topic(broker), new_name("group")
    writer = writer_of(broker, group, read)

    writer.complete(0)

    assert offset_in(broker, group, read) == [10]
    assert seen(broker, out) == []


@pytest.mark.parametrize("stream", ["s", "of another state directory"])
def test_who_was_replaced_may_not_write_any_more(broker, stream):
    out, group = new_topic(broker), new_name("group")
    old = writer_of(broker, group)
    write(old, out, 0, (b"a", b"1"))
    new = writer_of(broker, group, stream=stream)

    with pytest.raises(BrokerError, match="taken over(.|\n)*Fix:"):
        write(old, out, 1, (b"a", b"zombie"))

    write(new, out, 1, (b"a", b"2"))
    with pytest.raises(BrokerError, match="taken over"):
        write(old, out, 1, (b"a", b"zombie"))
    write(new, out, 2, (b"a", b"3"))
    assert [value for _, value in seen(broker, out)] == [b"1", b"2", b"3"]


def test_a_batch_that_was_paused_for_too_long_is_written_again(broker, monkeypatch):
    out, group = new_topic(broker), new_name("group")
    hurried = Connection(mp.ConnectionConfig(broker.address), {}, {"transaction.timeout.ms": 1_000})
    writer = writer_of(broker, group, connection=hurried)
    put, pauses = writer._put, [4.0]

    def put_slowly(sender, parts):
        put(sender, parts)
        sender.producer.flush()
        time.sleep(pauses.pop() if pauses else 0)  # the broker ends the transaction meanwhile

    monkeypatch.setattr(writer, "_put", put_slowly)

    write(writer, out, 0, (b"a", b"1"), (b"a", b"2"))
    write(writer, out, 1, (b"a", b"3"))

    assert not pauses
    assert [value for _, value in seen(broker, out)] == [b"1", b"2", b"3"]


def test_who_is_fenced_while_the_broker_goes_waits_for_it(tmp_path, monkeypatch):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        out, group = new_topic(broker), new_name("group")
        writer = writer_of(broker, group)
        send, fences = writer._send_as_one, [True]

        def send_fenced(parts, batch_id):
            if fences:
                fences.clear()
                broker.kill()
                threading.Timer(10, broker.start).start()
                raise KafkaException(KafkaError(KafkaError._FENCED))
            send(parts, batch_id)

        monkeypatch.setattr(writer, "_send_as_one", send_fenced)

        write(writer, out, 0, (b"a", b"1"))

        wait_for(lambda: seen(broker, out) == [(b"a", b"1")])


@pytest.mark.parametrize("is_new_run", [False, True])
def test_a_broker_that_dies_after_a_commit_may_lose_its_end_but_no_batch(tmp_path, is_new_run):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        out, group = new_topic(broker), new_name("group")
        writer = writer_of(broker, group)
        write(writer, out, 0, (b"a", b"1"))
        broker.kill()  # before or after its transaction is ended in the partitions
        broker.start()
        writer._let_go()
        if is_new_run:
            writer.close()
            writer = writer_of(broker, group)

        write(writer, out, 0, (b"a", b"1"))
        write(writer, out, 1, (b"a", b"2"))

        wait_for(lambda: [value for _, value in seen(broker, out)] == [b"1", b"2"])


def test_a_batch_whose_transaction_was_never_ended_is_seen_once(broker, monkeypatch):
    out, group = new_topic(broker), new_name("group")
    writer = writer_of(broker, group)
    write(writer, out, 0, (b"a", b"1"))
    known = KafkaWriter._known

    monkeypatch.setattr(KafkaWriter, "_known", lambda self: {**known(self), "hangs": True})
    new = writer_of(broker, group)  # as if there were records that nobody sees
    monkeypatch.undo()
    new.close()  # what it knew is with its name
    newer = writer_of(broker, group)
    write(newer, out, 1, (b"a", b"2"))
    write(newer, out, 2, (b"a", b"3"))

    wait_for(lambda: [value for _, value in seen(broker, out)] == [b"1", b"2", b"3"])
    # What was taken back and what ended each transaction have offsets of their own.
    assert offsets_of(connect(broker), out, 1, oldest=False) == {"0": 8}


def test_who_takes_over_does_so_though_the_other_one_is_quicker(broker, monkeypatch):
    out, group = new_topic(broker), new_name("group")
    old = writer_of(broker, group)
    write(old, out, 0, (b"a", b"1"))
    known, pauses = KafkaWriter._known, [1]

    def known_slowly(self):
        if self is not old and pauses:
            pauses.clear()
            write(old, out, 1, (b"a", b"2"))  # fenced already, and back again
        return known(self)

    monkeypatch.setattr(KafkaWriter, "_known", known_slowly)

    new = writer_of(broker, group)

    with pytest.raises(BrokerError, match="taken over"):
        write(old, out, 2, (b"a", b"zombie"))
    write(new, out, 2, (b"a", b"3"))
    # The broker shows a transaction a moment after it has acknowledged the commit.
    wait_for(lambda: len(seen(broker, out)) >= 3)
    assert [value for _, value in seen(broker, out)] == [b"1", b"2", b"3"]


def test_a_writer_that_cannot_be_made_leaves_nothing_behind(broker):
    def threads():
        return [t for t in threading.enumerate() if t.name == "millpond-offsets"]

    before = len(threads())
    slow = Connection(
        mp.ConnectionConfig(broker.address), {}, {"transaction.timeout.ms": 2**31 - 1}
    )
    with pytest.raises(BrokerError):
        writer_of(broker, new_name("group"), connection=slow)

    assert len(threads()) == before


def test_a_sender_that_is_let_go_is_gone_at_once(broker):
    sender = Sender(connect(broker))
    gone = weakref.ref(sender)

    del sender

    assert gone() is None


def test_offsets_of_the_group_are_not_waited_for(tmp_path):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        read, group = new_topic(broker), new_name("group")
        writer = writer_of(broker, group, read)
        writer.complete(0)
        assert offset_in(broker, group, read) == [10]
        broker.kill()
        began = time.monotonic()
        for batch in range(1, 4):  # they have no outputs
            writer.complete(batch)
        assert time.monotonic() - began < 1.0

        broker.start()
        wait_for(lambda: committed(broker, group, read) == [40], 60)
        writer.close()


def test_what_a_dead_program_left_open_is_never_seen(broker):
    out, group = new_topic(broker), new_name("group")
    dead = writer_of(broker, group)
    producer = dead._opened().producer
    producer.begin_transaction()
    producer.produce(out, b"half")
    producer.flush()

    write(writer_of(broker, group), out, 0, (b"a", b"whole"))

    assert seen(broker, out) == [(b"a", b"whole")]


def test_records_without_a_key_go_by_the_place_they_came_from(broker):
    out, group = new_topic(broker, 3), new_name("group")
    writer = writer_of(broker, group)

    write(writer, out, 0, *((None, b"%d" % i) for i in range(6)))

    with KafkaConsumer(connect(broker)) as consumer:
        found = {(r.partition, r.value) for r in consumer.read(out)}
    assert found == {(i % 3, b"%d" % i) for i in range(6)}


def test_a_record_that_is_too_large_is_an_error_that_says_so(broker):
    out, group = new_topic(broker), new_name("group")
    writer = writer_of(broker, group)

    with pytest.raises(BrokerError, match=r"large(.|\n)*Fix:.*message\.max\.bytes"):
        write(writer, out, 0, (b"a", b"x" * 2_000_000))

    assert seen(broker, out) == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_time_that_the_broker_refuses_is_said_and_the_batch_may_go_without_it(broker, guarantee):
    """As where the clock of the program is ahead of the broker's."""
    out, group = new_topic(broker), new_name("group")
    writer = writer_of(broker, group, guarantee=guarantee)
    later = int(time.time() * 1000) + 7_200_000
    batch = batch_of((b"a", b"1")).set_column(2, "timestamp", pa.array([later], pa.int64()))
    writer.write(out, batch, 0)

    with pytest.raises(
        RecordsRefused, match=r"INVALID_TIMESTAMP(.|\n)*Fix: compare the clock"
    ) as e:
        writer.complete(0)

    assert abs(e.value.at - time.time() * 1000) < 60_000
    write(writer, out, 0, (b"a", b"2"))
    assert seen(broker, out) == [(b"a", b"2")]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_batch_survives_a_broker_that_is_killed_and_comes_back(tmp_path, guarantee):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        out, read, group = new_topic(broker), new_topic(broker), new_name("group")
        writer = writer_of(broker, group, read, guarantee=guarantee)
        write(writer, out, 0, (b"a", b"1"))
        broker.kill()
        broker.start()

        write(writer, out, 1, *((b"a", b"%d" % i) for i in range(2, 500)))

        # A commit is answered before all partitions have its mark; this broker has just come back.
        everything = [b"%d" % i for i in range(1, 500)]
        wait_for(lambda: [value for _, value in seen(broker, out)] == everything)
        wait_for(lambda: committed(broker, group, read) == [20])


def test_another_batch_of_the_same_number_is_not_taken_for_it(broker):
    out, read, group = new_topic(broker), new_topic(broker), new_name("group")
    write(writer_of(broker, group, read), out, 0, (b"a", b"1"))
    other = writer_of(broker, group, read, further=1)  # the same number, read further

    with pytest.raises(TopicError, match="older(.|\n)*Fix:"):
        write(other, out, 0, (b"a", b"1"), (b"a", b"2"))


def test_the_topic_of_batches_must_have_one_partition(broker):
    group = new_name("group")
    new_topic(broker, 4, name=f"{group}.batches")

    with pytest.raises(TopicError, match="1 partition(.|\n)*Fix:"):
        writer_of(broker, group)


def test_what_will_never_work_is_not_tried_again_and_leaves_nothing_open(broker):
    out, group = new_topic(broker, **{"cleanup.policy": "compact"}), new_name("group")
    writer = writer_of(broker, group)
    began = time.monotonic()

    with pytest.raises(BrokerError, match="Fix:"):  # a compacted topic takes no record without key
        write(writer, out, 0, (b"a", b"1"), (None, b"2"))
    writer.close()

    assert time.monotonic() - began < 20
    write(writer_of(broker, group), out, 0, (b"a", b"3"))
    assert seen(broker, out) == [(b"a", b"3")]


def test_settings_of_the_user_come_before_our_own(broker):
    group = new_name("group")
    slow = Connection(
        mp.ConnectionConfig(broker.address), {}, {"transaction.timeout.ms": 2**31 - 1}
    )
    place = KafkaBroker(slow, {}, creates=True, guarantee="exactly-once", skips_lost=False)

    with pytest.raises(BrokerError, match=r"Fix:.*transaction\.timeout\.ms"):
        place.writer(group, "s", True, lambda batch: {})
    with pytest.raises(ConfigError, match="Fix:"):
        Connection(mp.ConnectionConfig(broker.address, extra={"no.such": 1})).admin()
