import inspect
import logging
import sys
import threading
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pytest

from millpond import Application
from millpond.connectors.clients import Consumer, LogWriter, Producer, choose_partition
from millpond.connectors.kafka.clients import KafkaConsumer, KafkaProducer
from millpond.connectors.log import Log
from millpond.connectors.topic import TopicConfig, make_topic
from millpond.driver.deliver import Delivery
from millpond.driver.gather import BatchReport, Gathered
from millpond.errors import ConfigError, SerializationError, TopicError
from millpond.program.plan import make_plan
from millpond.testing import frame
from millpond.wire.packed_rows import records_schema


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def test_what_a_producer_wrote_a_consumer_reads(log):
    with Producer(log) as producer:
        producer.produce("clicks", b"1", "ann", timestamp=5, headers={"a": "b"})
        producer.produce("clicks", None, b"bob")

    first, second = Consumer(log).read("clicks")

    assert first == (b"ann", b"1", 5, [("a", b"b")], "clicks", 0, 0)
    assert (second.key, second.value, second.offset) == (b"bob", None, 1)


def test_arguments_by_position_have_the_order_of_quix_streams(log):
    log.create("clicks", 3)
    with Producer(log) as producer:
        producer.produce("clicks", b"1", b"ann", [("a", b"b")], 2, 5)

    (record,) = Consumer(log).read("clicks")

    assert record == (b"ann", b"1", 5, [("a", b"b")], "clicks", 2, 0)


def test_the_producer_of_kafka_takes_the_same_arguments():
    ours, theirs = (inspect.signature(kind.produce) for kind in (Producer, KafkaProducer))

    assert list(ours.parameters) == list(theirs.parameters)


def test_nothing_is_seen_before_flush(log):
    log.create("clicks", 1)
    producer = Producer(log)
    producer.produce("clicks", value=b"1")

    before = list(Consumer(log).read("clicks"))
    producer.flush()

    assert before == []
    assert len(list(Consumer(log).read("clicks"))) == 1


def test_flushing_twice_writes_once(log):
    producer = Producer(log)
    producer.produce("clicks", value=b"1")
    producer.flush()
    producer.flush()

    assert log.end("clicks", 0) == 1


def test_a_producer_uses_the_serializers_of_the_topic(log):
    topic = make_topic("clicks", key_serializer="int", key_deserializer="int")
    topics = {"clicks": topic}
    with Producer(log, topics) as producer:
        producer.produce("clicks", {"a": 1}, 5)
        producer.produce(topic, "text", 6)

    assert [(r.key, r.value) for r in Consumer(log, topics).read(topic)] == [
        (5, {"a": 1}),
        (6, "text"),
    ]


def test_a_topic_made_after_its_client_is_known_to_the_client(tmp_path):
    app = Application(state_dir=tmp_path / "state", topics_dir=tmp_path / "topics", loglevel=None)
    producer, consumer = app.get_producer(), app.get_consumer()
    app.topic("clicks")

    with producer:
        producer.produce("clicks", {"a": 1})

    assert [record.value for record in consumer.read("clicks")] == [{"a": 1}]


def test_a_topic_is_made_with_its_partitions(log):
    topic = make_topic("clicks", config=TopicConfig(num_partitions=3))
    with Producer(log) as producer:
        producer.produce(topic, value={})

    assert log.partitions("clicks") == 3


def test_records_of_a_key_go_to_one_partition_and_stay_in_order(log):
    topic = make_topic("clicks", config=TopicConfig(num_partitions=4))
    with Producer(log, {"clicks": topic}) as producer:
        for i in range(100):
            producer.produce("clicks", i, f"key-{i % 10}")

    places, order = {}, {}
    for record in Consumer(log, {"clicks": topic}).read("clicks"):
        places.setdefault(record.key, set()).add(record.partition)
        order.setdefault(record.key, []).append(record.value)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert all(values == sorted(values) for values in order.values())
    assert len({p for partitions in places.values() for p in partitions}) > 1


def test_records_without_a_key_are_spread(log):
    log.create("clicks", 3)
    with Producer(log) as producer:
        for _ in range(9):
            producer.produce("clicks", value=b"")

    assert [log.end("clicks", p) for p in range(3)] == [3, 3, 3]


def test_a_partition_can_be_chosen(log):
    log.create("clicks", 3)
    with Producer(log) as producer:
        producer.produce("clicks", value=b"", partition=2)

    assert [log.end("clicks", p) for p in range(3)] == [0, 0, 1]


@pytest.mark.parametrize("value", [5, {"a": 1}, ["x"]])
def test_a_value_without_a_serializer_is_refused(log, value):
    with pytest.raises(TopicError, match="must be bytes or text(.|\n)*Fix:"):
        Producer(log).produce("clicks", value=value)


@pytest.mark.parametrize("moment", [1.5, "now", True, -1, 2**63, 10**18, -(2**63)])
def test_a_time_must_be_an_int_of_milliseconds(log, moment):
    with pytest.raises(ConfigError, match="timestamp(.|\n)*Fix:"):
        Producer(log).produce("clicks", value=b"", timestamp=moment)


class _Odd:
    def __call__(self, value):
        return "text"


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"timestamp": 2**63}, ConfigError, "timestamp"),
        ({"partition": 3}, ConfigError, "no partition 3: it has 3"),
        ({"partition": -1}, ConfigError, "no partition -1"),
        ({"partition": True}, ConfigError, "no partition True"),
        ({"headers": 5}, SerializationError, "headers must be"),
        ({"headers": 0}, SerializationError, "headers must be"),
        ({"headers": {"a": 1}}, SerializationError, "headers must be"),
        ({"headers": [(1, b"")]}, SerializationError, "headers must be"),
        ({"headers": {"\udcff": b""}}, SerializationError, "headers must be"),
        ({"key": 5}, SerializationError, "it is not bytes"),
        ({"key": "\udcff"}, SerializationError, "UTF-8 cannot encode"),
        ({"value": ["a"]}, SerializationError, "must return bytes"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_written_is_refused_and_affects_no_other(log, wrong, error, match):
    log.create("clicks", 3)
    producer = Producer(log, {"clicks": make_topic("clicks", value_serializer=_Odd())})
    producer.produce("clicks", value=b"before", partition=0)

    with pytest.raises(error, match=f"{match}(.|\n)*Fix:"):
        producer.produce("clicks", **{"value": b"wrong", **wrong})

    producer.produce("clicks", value=b"after", partition=0)
    producer.flush()
    assert [r.value for r in Consumer(log).read("clicks")] == [b"before", b"after"]


def test_threads_may_share_a_producer(log):
    log.create("clicks", 2)
    producer = Producer(log)
    threads, each = 4, 20_000

    def produce(name):
        for i in range(each):
            producer.produce("clicks", b"%d:%d" % (name, i), partition=i % 2)
            if i % 777 == 0:
                producer.flush()

    workers = [threading.Thread(target=produce, args=(name,)) for name in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    producer.flush()

    records = list(Consumer(log).read("clicks"))
    found = [tuple(map(int, r.value.split(b":"))) for r in records]
    assert sorted(found) == [(name, i) for name in range(threads) for i in range(each)]
    for partition, group in groupby(records, lambda r: r.partition):
        of_partition = list(group)
        assert [r.offset for r in of_partition] == list(range(threads * each // 2))
        for name in range(threads):
            numbers = [
                int(r.value.split(b":")[1]) for r in of_partition if r.value[:1] == b"%d" % name
            ]
            assert numbers == list(range(partition, each, 2))


def test_what_could_not_be_written_is_written_by_the_next_flush_in_its_order(log):
    log.create("clicks", 1)
    producer = Producer(log)
    producer.produce("clicks", value=b"1")
    folder = log.path / "clicks" / "0"
    folder.rename(log.path / "elsewhere")

    with pytest.raises(TopicError, match="partition 0, cannot be written: No such file(.|\n)*Fix:"):
        producer.flush()
    producer.produce("clicks", value=b"2")
    (log.path / "elsewhere").rename(folder)
    producer.flush()

    assert [r.value for r in Consumer(log).read("clicks")] == [b"1", b"2"]


@pytest.mark.parametrize("name", ["../clicks", "a/b", ""])
def test_a_name_that_leaves_the_folder_is_refused(log, name):
    with pytest.raises(ConfigError, match="Fix:"):
        Producer(log).produce(name, value=b"")


def test_a_consumer_polls_from_where_it_subscribed(log):
    with Producer(log) as producer:
        producer.produce("clicks", value=b"old")
    from_start, from_end = Consumer(log), Consumer(log)
    from_start.subscribe(["clicks"])
    from_end.subscribe(["clicks"], from_end=True)
    with Producer(log) as producer:
        producer.produce("clicks", value=b"new")

    assert [from_start.poll().value, from_start.poll().value, from_start.poll()] == [
        b"old",
        b"new",
        None,
    ]
    assert [from_end.poll().value, from_end.poll()] == [b"new", None]


class Place(NamedTuple):
    """As `confluent_kafka.TopicPartition`."""

    topic: str
    partition: int
    offset: int


def test_a_consumer_goes_on_where_it_is_sent(log):
    with Producer(log) as producer:
        for number in range(4):
            producer.produce("clicks", str(number).encode())
    consumer = Consumer(log)
    consumer.subscribe(["clicks"])
    first = consumer.poll()

    consumer.seek(Place("clicks", 0, 2))
    then = [consumer.poll(), consumer.poll(), consumer.poll()]
    consumer.seek(Place("clicks", 0, 0))
    again = consumer.poll(None)
    consumer.unsubscribe()

    assert (first.value, [r and r.value for r in then]) == (b"0", [b"2", b"3", None])
    assert again.value == b"0"
    assert consumer.poll() is None


def test_a_consumer_takes_what_quix_calls_on_a_change_of_partitions_and_warns_once(log, caplog):
    log.create("clicks", 1)
    consumer = Consumer(log)

    with caplog.at_level(logging.WARNING, logger="millpond"):
        consumer.subscribe(["clicks"], on_assign=print, on_lost=print)
        consumer.subscribe(["clicks"], on_assign=print)

    assert len(caplog.records) == 1
    assert "on_assign, on_lost (this consumer joins no group" in caplog.text
    with pytest.raises(TypeError, match="Fix: did you mean 'on_assign'"):
        consumer.subscribe(["clicks"], on_asign=print)
    with pytest.raises(ConfigError, match=r"from_end=(.|\n)*Fix: pass on_assign= by name"):
        consumer.subscribe(["clicks"], print)


def test_a_producer_reports_each_delivery_when_the_record_is_written(log):
    found = []
    producer = Producer(log)
    producer.produce("clicks", b"1", b"k", on_delivery=lambda *given: found.append(given))
    producer.produce("clicks", b"2")
    before = list(found)

    assert (producer.poll(0), producer.poll(0), producer.flush()) == (1, 0, 0)
    assert before == []
    ((error, record),) = found
    assert (error, record.topic, record.key, record.value) == (None, "clicks", b"k", b"1")
    assert len([*Consumer(log).read("clicks")]) == 2


def test_a_producer_ignores_how_long_quix_waits_and_warns_once(log, caplog):
    with caplog.at_level(logging.WARNING, logger="millpond"), Producer(log) as producer:
        for _ in range(3):
            producer.produce("clicks", b"", poll_timeout=5.0, buffer_error_max_tries=3)

        with pytest.raises(TypeError, match="Fix: did you mean 'poll_timeout'"):
            producer.produce("clicks", b"", pol_timeout=5.0)
        with pytest.raises(TypeError, match="Fix: did you mean 'timestamp'"):
            producer.produce("clicks", b"", timestmp=5)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", [Consumer, KafkaConsumer])
@pytest.mark.parametrize("name", ["commit", "store_offsets", "committed", "assign", "consume"])
def test_a_consumer_says_what_to_do_instead_of_what_it_does_not_have(kind, name):
    consumer = kind.__new__(kind)

    with pytest.raises(AttributeError, match=rf"a consumer has no '{name}'(.|\n)*Fix: "):
        getattr(consumer, name)


@pytest.mark.parametrize("kind", [Producer, KafkaProducer])
def test_a_producer_says_what_to_do_instead_of_what_it_does_not_have(kind):
    producer = kind.__new__(kind)

    with pytest.raises(AttributeError, match=r"no 'begin_transaction'(.|\n)*Fix: .*to_topic"):
        _ = producer.begin_transaction
    with pytest.raises(AttributeError, match=r"no 'producee'(.|\n)*Fix: did you mean 'produce'"):
        _ = producer.producee


def test_a_closed_consumer_gives_nothing(log):
    with Producer(log) as producer:
        producer.produce("clicks", value=b"1")
    with Consumer(log) as consumer:
        consumer.subscribe(["clicks"])

    assert consumer.poll() is None


def test_a_topic_that_does_not_exist_cannot_be_read(log):
    with pytest.raises(TopicError, match="does not exist(.|\n)*Fix:"):
        list(Consumer(log).read("clicks"))


def test_the_partition_of_a_key_never_changes():
    assert [choose_partition(key, 0, 100) for key in (b"", b"a", b"abc")] == [0, 7, 78]
    assert choose_partition(None, 5, 3) == 2


# --- the application's writer ---------------------------------------------------------------


def outputs(*records):
    columns = list(zip(*((k, v, 0, 0, p, o) for o, (k, v, p) in enumerate(records)), strict=True))
    schema = records_schema(0)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_batch_that_is_delivered_again_changes_nothing(log):
    writer = LogWriter(log, "app/1", {"out": 3})
    batch = outputs((b"a", b"1", 0), (b"b", b"2", 0), (None, b"3", 1))

    writer.write("out", batch, 0)
    LogWriter(log, "app/1", {"out": 3}).write("out", batch, 0)

    assert sorted(r.value for r in Consumer(log).read("out")) == [b"1", b"2", b"3"]


def test_a_batch_of_which_some_partitions_were_written_is_completed(log):
    log.create("out", 4)
    batch = outputs(*((b"key-%d" % i, b"%d" % i, 0) for i in range(20)))
    LogWriter(log, "app/1", {}).write("out", batch, 0)
    whole = sorted(r.value for r in Consumer(log).read("out"))
    last = next(p for p in (3, 2, 1, 0) if log.end("out", p))
    for file in (log.path / "out" / str(last)).iterdir():
        file.unlink()  # as if the writer had died before it came there

    again = Log(log.path)
    LogWriter(again, "app/1", {}).write("out", batch, 0)

    assert sorted(r.value for r in Consumer(again).read("out")) == whole


def test_the_next_batch_is_written(log):
    writer = LogWriter(log, "app/1", {})
    writer.write("out", outputs((b"a", b"1", 0)), 0)
    writer.write("out", outputs((b"a", b"2", 0)), 1)

    assert [r.value for r in Consumer(log).read("out")] == [b"1", b"2"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_another_batch_of_the_same_number_is_refused_by_the_writer(log, partitions):
    batch = outputs((b"a", b"1", 0), (b"b", b"2", 0), (b"c", b"3", 0))
    LogWriter(log, "app/1", {"out": partitions}).write("out", batch, 0, "what it read")

    again = LogWriter(Log(log.path), "app/1", {})
    again.write("out", batch, 0, "what it read")
    with pytest.raises(TopicError, match="now writes another batch of that number(.|\n)*Fix:"):
        again.write("out", batch, 0, "something else")

    assert sorted(r.value for r in Consumer(log).read("out")) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("kind", ["write", "dead-letter"])
def test_a_delivery_passes_on_what_its_batch_reads(log, kind):
    plan = make_plan(frame().to_topic(make_topic("out"))._graph)
    (number,) = (output.number for output in plan.outputs if output.kind == kind)

    def deliver(reads):
        writer = LogWriter(Log(log.path), "app/1", {})
        delivery = Delivery(plan, [], writer, "dead", lambda *_: None)
        gathered = Gathered(BatchReport(0), {number: outputs((b"a", b"1", 0))})
        if kind == "write":
            delivery.deliver(gathered, 0, reads)
        else:
            delivery.deliver_dead_letters(gathered, 0, reads)

    deliver({"in": {"0": 1}})
    deliver({"in": {"0": 1}})
    with pytest.raises(TopicError, match="now writes another batch of that number"):
        deliver({"in": {"0": 2}})

    topic = "out" if kind == "write" else "dead"
    assert [r.value for r in Consumer(log).read(topic)] == [b"1"]
