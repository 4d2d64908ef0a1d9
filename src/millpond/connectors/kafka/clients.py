"""A producer and a consumer for Python programs, with the faces of those of the embedded log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millpond.arguments.quix import (
    PRODUCE,
    PRODUCE_OWN,
    SUBSCRIBE,
    SUBSCRIBE_OWN,
    ProduceKeywords,
    SubscribeKeywords,
)
from millpond.connectors.asked import ConsumerHints, ProducerHints
from millpond.connectors.clients import (
    OnDelivery,
    check_from_end,
    check_partition,
    check_timestamp,
    ignore_once,
    to_write,
)
from millpond.connectors.kafka.closing import close_at_exit
from millpond.connectors.kafka.connection import Connection
from millpond.connectors.kafka.reader import KafkaReader
from millpond.connectors.kafka.sender import Sender
from millpond.connectors.kafka.topics import describe, ensure, offsets_of
from millpond.connectors.topic import Topic, make_topic
from millpond.errors import TopicError
from millpond.record import NOWHERE, Record
from millpond.wire.headers import decode_headers, encode_headers

__all__ = ["KafkaConsumer", "KafkaProducer"]


# No group is needed to read.
_HARMLESS = {KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED}


class KafkaProducer(ProducerHints):
    """Writes records to topics. Use it in a `with` block: leaving it waits until all are there."""

    def __init__(
        self, connection: Connection, topics: dict[str, Topic] | None = None, *, creates: bool
    ) -> None:
        self._connection = connection
        self._topics = {} if topics is None else topics  # shared: topics made later are known
        self._creates = creates
        self._known: dict[str, int] = {}
        self._sender = Sender(connection)
        self._ignored: set[str] = set()
        self._awaited: list[_Awaited] = []

    def produce(
        self,
        topic: str | Topic,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
        **quix: Unpack[ProduceKeywords],
    ) -> None:
        """Write a record; see `millpond.connectors.clients.Producer`.

        `on_delivery` is called by `flush` or `poll`, with librdkafka's error if there is one.
        """
        if quix:
            ignore_once("produce()", quix, PRODUCE, PRODUCE_OWN, self._ignored)
        name, settings, key, value = to_write(topic, self._topics, key, value)
        check_timestamp(timestamp)
        pairs = decode_headers(encode_headers(headers))
        check_partition(partition, self._partitions(name, settings, partition), name)
        try:
            awaited = None
            if on_delivery is not None:
                place = (name, NOWHERE if partition is None else partition)
                record = Record(key, value, timestamp or 0, pairs, *place)
                awaited = _Awaited(on_delivery, record)
            self._sender.put(name, value, key, timestamp, pairs, partition, awaited)
            if awaited is not None:
                self._awaited.append(awaited)
            self._sender.producer.poll(0)
        except (KafkaException, SystemError) as error:
            raised = self._connection.raised(error)
            raise self._connection.error(f"write to topic {name!r}", raised) from error

    def _partitions(self, name: str, settings: Topic | None, wanted: int | None) -> int:
        """Return how many partitions a topic has; it may have more than when it was last seen."""
        count = self._known.get(name, 0)
        if not count or (type(wanted) is int and wanted >= count):
            found = ensure(self._connection, settings or make_topic(name), creates=self._creates)
            self._known[name] = count = found.partitions
        return count

    def poll(self, timeout: float = 0.0) -> int:
        """Wait for records that have an `on_delivery`; return for how many it was called.

        librdkafka reports only what did not arrive: 1 us less for each record.
        """
        count = len(self._awaited)
        if count:
            self.flush()
        return count

    def flush(self, timeout: float | None = None) -> int:
        """Wait until the broker has all records; return how many are left, which is 0.

        Raises:
            BrokerError: some did not arrive.
        """
        awaited, self._awaited = self._awaited, []  # produced before this flush, so done after it
        try:
            left = self._sender.producer.flush(-1 if timeout is None else timeout)
        except (KafkaException, SystemError) as error:
            raise self._connection.error("write", self._connection.raised(error)) from error
        if left:
            self._awaited = awaited + self._awaited
        else:
            for one in awaited:
                one.on_delivery(one.error, one.record)
        failed = [self._sender.failed.pop(0) for _ in range(len(self._sender.failed))]
        if failed:
            what = f"write {len(failed)} record(s)"
            raise self._connection.error(what, KafkaException(failed[0]))
        if left:
            late = KafkaException(KafkaError(KafkaError._TIMED_OUT))
            raise self._connection.error(f"write {left} record(s) in {timeout} s", late)
        return 0

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


@dataclass
class _Awaited:
    """A record whose delivery somebody waits for; called by librdkafka where it failed."""

    on_delivery: OnDelivery
    record: Record
    error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        self.error = error


class KafkaConsumer(ConsumerHints):
    """Reads committed records of topics, from the beginning or from the end; joins no group."""

    def __init__(self, connection: Connection, topics: dict[str, Topic] | None = None) -> None:
        self._connection = connection
        self._topics = {} if topics is None else topics  # shared: topics made later are known
        settings = {"group.id": "millpond-consumer", "auto.offset.reset": "earliest"}
        self._consumer = connection.consumer(settings)
        close_at_exit(self)
        self._ignored: set[str] = set()

    def subscribe(
        self,
        topics: list[str | Topic],
        from_end: bool = False,
        **quix: Unpack[SubscribeKeywords],
    ) -> None:
        """Choose the topics that `poll` reads; see `millpond.connectors.clients.Consumer`."""
        check_from_end(from_end)
        ignore_once("subscribe()", quix, SUBSCRIBE, SUBSCRIBE_OWN, self._ignored)
        places = [
            TopicPartition(name, int(partition), offset)
            for name in map(str, topics)
            for partition, offset in self._offsets(name, oldest=not from_end).items()
        ]
        self._consumer.assign(places)

    def unsubscribe(self) -> None:
        """Read no topic any more."""
        self._consumer.unassign()

    def seek(self, partition: Any) -> None:
        """Go on at another place: `partition` has `topic`, `partition` and `offset`."""
        place = TopicPartition(partition.topic, partition.partition, partition.offset)
        others = [p for p in self._consumer.assignment() if not _is_same(p, place)]
        kept = [_at(p, self._consumer.position([p])[0].offset) for p in others]
        self._consumer.assign([*kept, place])

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None if none comes within `timeout` seconds; None: wait."""
        deadline = time.monotonic() + (1e9 if timeout is None else timeout)
        while True:
            message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                return None
            error = message.error()
            if error is None:
                place = (message.topic(), message.partition(), message.offset())
                moment, headers = message.timestamp()[1], message.headers()
                return self._record(message.key(), message.value(), moment, headers, place)
            if error.code() not in _HARMLESS:
                raise self._connection.error("read", KafkaException(error))

    def read(self, topic: str | Topic) -> Iterator[Record]:
        """Yield every record that a topic holds now, partition by partition."""
        name = str(topic)
        oldest, ends = self._offsets(name, oldest=True), self._offsets(name, oldest=False)
        reader = KafkaReader(self._connection, name, "")
        for partition, end in ends.items():
            for batch in reader.read(partition, oldest[partition], end):
                for row in batch.to_pylist():
                    place = (name, int(partition), row["offset"])
                    headers = decode_headers(row["headers"])
                    yield self._record(row["key"], row["value"], row["timestamp"], headers, place)

    def _offsets(self, name: str, *, oldest: bool) -> dict[str, int]:
        found = describe(self._connection, name)
        if found is None:
            msg = f"topic {name!r} does not exist on broker {self._connection.address}."
            raise TopicError(msg + f"\nFix: check the name, or millpond topics create {name}.")
        return offsets_of(self._connection, name, found.partitions, oldest=oldest)

    def _record(
        self, key: Any, value: Any, timestamp: int, headers: Any, place: tuple[str, int, int]
    ) -> Record:
        settings = self._topics.get(place[0])
        if settings is not None:
            key = None if key is None else settings.key_deserializer(key)
            value = None if value is None else settings.value_deserializer(value)
        return Record(key, value, timestamp, headers, *place)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    let_go = close

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_same(one: TopicPartition, other: TopicPartition) -> bool:
    return bool((one.topic, one.partition) == (other.topic, other.partition))


def _at(place: TopicPartition, offset: int) -> TopicPartition:
    """Return a partition at an offset; where nothing was read of it yet, as it was assigned."""
    return place if offset < 0 else TopicPartition(place.topic, place.partition, offset)
