"""What a store, a writer of topics and a broker must keep to, whichever it is.

Each function takes a way to make one, and fails with what was violated.
"""

from __future__ import annotations

import time

import pyarrow as pa

from millpond.connectors.topic import TopicConfig, make_topic
from millpond.record import Record

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("source", pa.int32()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
    ]
)


def check_store(store):
    """Blobs by id: what was put last is there, until it is deleted."""
    assert store.get(b"a") is None, "a blob that was never put is None"

    store.put(b"a", b"1")
    store.put(b"b", b"2" * 10_000)
    store.put(b"a", b"3")
    store.fetch([b"a", b"b", b"c"])
    assert store.get(b"a") == b"3", "the blob that was put last is there"
    assert store.get(b"b") == b"2" * 10_000, "a large blob is there, whole"
    assert store.get(b"c") is None, "a blob that was fetched in vain is None"

    store.delete(b"a")
    store.delete(b"nothing")
    assert store.get(b"a") is None, "a blob that was deleted is gone"
    store.put(b"a", b"")
    assert store.get(b"a") == b"", "an empty blob is not None"


def outputs(*records):
    """Records as a batch gives them to a writer."""
    now = time.time_ns() // 1_000_000
    rows = [(k, v, now, 0, 0, i) for i, (k, v) in enumerate(records)]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def check_writer(make, read, topic="out"):
    """A batch is written once, whole and in order, whoever writes it again."""
    writer = make()
    writer.write(topic, outputs((b"a", b"1"), (b"a", b"2")), 0, "read")
    writer.complete(0)
    assert read(topic) == [b"1", b"2"], "the records of a batch are there in their order"

    writer.write(topic, outputs((b"a", b"1"), (b"a", b"2")), 0, "read")
    writer.complete(0)
    assert read(topic) == [b"1", b"2"], "a batch that comes again writes nothing"

    again = make()
    again.write(topic, outputs((b"a", b"1"), (b"a", b"2")), 0, "read")
    again.complete(0)
    assert read(topic) == [b"1", b"2"], "another writer of the same stream writes nothing again"

    again.write(topic, outputs((b"a", b"3")), 1, "more")
    again.complete(1)
    assert read(topic) == [b"1", b"2", b"3"], "the next batch follows"
    assert again.waits_for, "somebody is waited for"
    assert again.limits(topic) is None or again.limits(topic).largest > 1_000
    for each in (writer, again):
        each.close()


def check_broker(broker, name="made"):
    """Topics are made, written, read and deleted."""
    topic = make_topic(name, config=TopicConfig(num_partitions=2))
    broker.connect()
    known_as = broker.prepare(topic)
    assert broker.prepare(topic, known_as) == known_as, "a topic keeps its id"

    with broker.producer() as producer:
        producer.produce(topic, key="ann", value={"n": 1})
        producer.produce(name, key=b"bob", value=b"{}", partition=1)
    with broker.consumer() as consumer:
        records = list(consumer.read(name))
    assert {type(record) for record in records} == {Record}, "a consumer gives records"
    assert len(records) == 2, "a producer has written everything when its block ends"

    reader = broker.reader(topic)
    begin, ends = reader.initial("earliest"), reader.ends(reader.initial("earliest"))
    assert sorted(begin) == sorted(ends) == ["0", "1"], "a reader knows all partitions"
    assert sum(ends.values()) - sum(begin.values()) == 2, "a reader knows what was written"
    assert reader.initial("latest") == ends, "the latest place is the end"

    assert (name, 2, 2) in broker.listed(), "a topic is listed with its records"
    broker.delete(name)
    assert all(other != name for other, _, _ in broker.listed()), "a topic can be deleted"
