"""Topics of the embedded log from Python: a producer, a consumer, and the application's writer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack
from zlib import crc32

import pyarrow as pa

from millpond.arguments.duration import LATEST_MS
from millpond.arguments.quix import (
    PRODUCE,
    PRODUCE_OWN,
    SUBSCRIBE,
    SUBSCRIBE_OWN,
    ProduceKeywords,
    SubscribeKeywords,
    check_keywords,
    warn_ignored,
)
from millpond.connectors.asked import ConsumerHints, ProducerHints
from millpond.connectors.log import Log
from millpond.connectors.log_partition import with_offsets
from millpond.connectors.protocols import TopicWriter
from millpond.connectors.segments import SEGMENT
from millpond.connectors.serde import BytesSerializer
from millpond.connectors.topic import Topic, check_name
from millpond.errors import ConfigError, SerializationError, TopicError, shown
from millpond.record import Record
from millpond.wire.headers import decode_headers, encode_headers

__all__ = [
    "Consumer",
    "LogWriter",
    "Producer",
    "check_partition",
    "check_timestamp",
    "choose_partition",
    "to_write",
]

# Records a producer holds back before it writes a segment.
_BUFFER = 10_000

# A column of Arrow holds less than 2 GiB, and so does each of its values.
_MOST_BYTES = 2**31 - 2


def choose_partition(key: bytes | None, instead: int, partitions: int) -> int:
    """Return the partition of a key; without a key, the one that keeps the order of the source."""
    return (crc32(key) if key is not None else instead) % partitions


OnDelivery = Callable[[Any, Record], Any]


class Producer(ProducerHints):
    """Writes records to topics. Use it in a `with` block: leaving it writes what is held back.

    Threads may share a producer: each record is written once, and the records of one thread keep
    their order. A record that cannot be written is refused by `produce`, and affects no other.

    >>> import tempfile
    >>> with Producer(Log(tempfile.mkdtemp())) as producer:
    ...     producer.produce("clicks", key="ann", value=b"{}")
    """

    def __init__(
        self,
        log: Log,
        topics: dict[str, Topic] | None = None,
        create: Callable[[str, int], None] | None = None,
    ) -> None:
        self._log = log
        self._topics = {} if topics is None else topics  # shared: topics made later are known
        self._create = create or log.create
        self._held: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        self._count = 0
        self._awaited: list[tuple[OnDelivery, Record]] = []
        self._ignored: set[str] = set()
        self._holding = threading.Lock()  # guards what is held back, never while a file is written
        self._writing = threading.Lock()  # one flush at a time: segments keep the order of records

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
        """Write a record.

        Args:
            topic: The topic or its name; it is created where it is missing, unless the application
                has `auto_create_topics=False`.
            value: Bytes, or what the topic's value serializer takes.
            key: Bytes, text, or what the topic's key serializer takes.
            headers: (name, bytes) pairs or a dict.
            partition: Default: chosen by the key.
            timestamp: Milliseconds since 1970. Default: now.
            on_delivery: A function of (error, record), called by `flush` or `poll` when the record
                is written; the error is None.
            **quix: `poll_timeout` and `buffer_error_max_tries` of Quix Streams: ignored.
        """
        if quix:
            ignore_once("produce()", quix, PRODUCE, PRODUCE_OWN, self._ignored)
        name, settings, key, value = to_write(topic, self._topics, key, value)
        check_name(name, "topic")
        check_timestamp(timestamp)
        now = time.time_ns() // 1_000_000
        row = (key, value, now if timestamp is None else timestamp, encode_headers(headers))
        if not self._log.exists(name):
            self._create(name, settings.config.num_partitions if settings else 1)
        count = self._log.partitions(name)
        check_partition(partition, count, name)
        with self._holding:
            place = choose_partition(row[0], self._count, count) if partition is None else partition
            self._held.setdefault((name, place), []).append(row)
            if on_delivery is not None:
                self._awaited.append((on_delivery, Record(*row[:3], headers, name, place)))
            self._count += 1
            is_full = self._count % _BUFFER == 0
        if is_full:
            self.flush()

    def poll(self, timeout: float = 0.0) -> int:
        """Write what is held back if `on_delivery` is to be called; return for how many records."""
        count = len(self._awaited)
        if count:
            self.flush()
        return count

    def flush(self, timeout: float | None = None) -> int:
        """Write what is held back, by whichever thread it was produced; return what is left: 0."""
        with self._writing:
            with self._holding:
                awaited, self._awaited = self._awaited, []
            try:
                for topic, partition in list(self._held):
                    self._write(topic, partition)
            except BaseException:
                with self._holding:
                    self._awaited = awaited + self._awaited
                raise
        for on_delivery, record in awaited:  # without a lock: it may produce
            on_delivery(None, record)
        return 0

    def _write(self, topic: str, partition: int) -> None:
        with self._holding:
            rows = self._held.pop((topic, partition))
        try:
            self._log.append(topic, partition, _table(rows))
        except BaseException:
            with self._holding:  # the next flush writes them, before what came since
                newer = self._held.get((topic, partition), [])
                self._held[topic, partition] = rows + newer
            raise

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(zip(*rows, strict=True), SEGMENT, strict=True)
    arrays = [pa.array(column, field.type) for column, field in columns]
    return pa.Table.from_arrays(arrays, schema=SEGMENT)


def check_from_end(given: object) -> None:
    """Refuse what Quix Streams takes in the second place of `subscribe`."""
    if type(given) is not bool:
        msg = f"subscribe(from_end=...) is True or False, got {shown(given)}."
        raise ConfigError(msg + "\nFix: pass on_assign= by name; it is not called here.")


def check_timestamp(timestamp: object) -> None:
    """Refuse what is no time of a record: milliseconds from 1970 to the year 9999."""
    if timestamp is None or (type(timestamp) is int and 0 <= timestamp <= LATEST_MS):
        return
    msg = f"timestamp must be an int of milliseconds since 1970, got {shown(timestamp)}."
    raise ConfigError(msg + "\nFix: int(moment.timestamp() * 1000).")


def check_partition(partition: object, count: int, topic: str) -> None:
    """Refuse a partition that the topic does not have."""
    if partition is None or (type(partition) is int and 0 <= partition < count):
        return
    msg = (
        f"topic {topic!r} has no partition {shown(partition)}: it has {count}.\n"
        f"Fix: choose 0 to {count - 1}, or leave partition= out: the key chooses it."
    )
    raise ConfigError(msg)


def to_write(
    topic: str | Topic, topics: Mapping[str, Topic], key: Any, value: Any
) -> tuple[str, Topic | None, bytes | None, bytes | None]:
    """Return the name of a topic, the topic if it is known, and a key and a value as bytes."""
    settings = topic if isinstance(topic, Topic) else topics.get(topic)
    return (
        topic.name if isinstance(topic, Topic) else topic,
        settings,
        as_bytes(key, settings.key_serializer if settings else None, "key"),
        as_bytes(value, settings.value_serializer if settings else None, "value"),
    )


def as_bytes(value: Any, serialize: Callable[[Any], bytes] | None, what: str) -> bytes | None:
    """Return a key or a value as a producer writes it."""
    if value is None or isinstance(value, bytes):
        data = value
    elif isinstance(value, str) and (serialize is None or isinstance(serialize, BytesSerializer)):
        data = _encoded(value, what)
    elif serialize is not None:
        data = serialize(value)
    else:
        msg = (
            f"the {what} of a record must be bytes or text where the topic is given by its name, "
            f"got {shown(value)}.\nFix: pass the topic made with app.topic(...), or serialize the "
            f"{what}."
        )
        raise TopicError(msg)
    if data is not None and not isinstance(data, bytes):
        msg = f"the serializer of a {what} must return bytes, it returned {shown(data)}."
        raise SerializationError(msg + "\nFix: return bytes, for example with text.encode().")
    if data is not None and len(data) > _MOST_BYTES:
        msg = f"the {what} of a record has {len(data):,} bytes, more than {_MOST_BYTES:,}."
        raise SerializationError(msg + "\nFix: write it to a file, and its path to the topic.")
    return data


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        msg = f"the {what} of a record is text that UTF-8 cannot encode: {error}."
        raise SerializationError(msg + f"\nFix: give the {what} as bytes.") from error


def ignore_once(
    call: str,
    given: Mapping[str, object],
    known: Mapping[str, str],
    own: tuple[str, ...],
    ignored: set[str],
) -> None:
    """Warn of the keywords that were not ignored before; refuse those that nobody knows."""
    check_keywords(call, given, known, own)
    warn_ignored(call, [name for name in given if name not in ignored], known)
    ignored.update(given)


class Consumer(ConsumerHints):
    """Reads records of topics, from the beginning or from where `subscribe` and `seek` start.

    >>> import tempfile
    >>> log = Log(tempfile.mkdtemp())
    >>> with Producer(log) as producer:
    ...     producer.produce("clicks", key="ann", value=b"{}")
    >>> with Consumer(log) as consumer:
    ...     consumer.subscribe(["clicks"])
    ...     consumer.poll().value
    b'{}'
    """

    def __init__(self, log: Log, topics: dict[str, Topic] | None = None) -> None:
        self._log = log
        self._topics = {} if topics is None else topics  # shared: topics made later are known
        self._positions: dict[tuple[str, int], int] = {}
        self._ready: list[Record] = []
        self._ignored: set[str] = set()

    def subscribe(
        self,
        topics: list[str | Topic],
        from_end: bool = False,
        **quix: Unpack[SubscribeKeywords],
    ) -> None:
        """Choose the topics that `poll` reads.

        Args:
            topics: Topics, or their names.
            from_end: Whether to begin with what comes from now on.
            **quix: `on_assign`, `on_revoke` and `on_lost` of Quix Streams: ignored.
        """
        check_from_end(from_end)
        ignore_once("subscribe()", quix, SUBSCRIBE, SUBSCRIBE_OWN, self._ignored)
        place = self._log.end if from_end else self._log.start
        for topic in topics:
            name = topic.name if isinstance(topic, Topic) else topic
            for partition in range(self._log.partitions(name)):
                self._positions[name, partition] = place(name, partition)

    def unsubscribe(self) -> None:
        """Read no topic any more."""
        self._positions.clear()
        self._ready.clear()

    def seek(self, partition: Any) -> None:
        """Go on at another place: `partition` has `topic`, `partition` and `offset`."""
        topic, number, offset = partition.topic, partition.partition, partition.offset
        self._positions[topic, number] = max(offset, self._log.start(topic, number))
        self._ready = [r for r in self._ready if (r.topic, r.partition) != (topic, number)]

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None if none comes within `timeout` seconds; None: wait."""
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            if self._ready:
                return self._ready.pop(0)
            for (topic, partition), position in self._positions.items():
                end = min(self._log.end(topic, partition), position + _BUFFER)
                if end > position:
                    self._ready += self._records(topic, partition, position, end)
                    self._positions[topic, partition] = end
            if not self._ready:
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.02)

    def read(self, topic: str | Topic) -> Iterator[Record]:
        """Yield every record that a topic holds now, partition by partition."""
        name = topic.name if isinstance(topic, Topic) else topic
        for partition in range(self._log.partitions(name)):
            start, end = self._log.start(name, partition), self._log.end(name, partition)
            yield from self._records(name, partition, start, end)

    def _records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        settings = self._topics.get(topic)
        for batch in self._log.read(topic, partition, start, end):
            *columns, places = (column.to_pylist() for column in with_offsets(batch, start).columns)
            start = places[-1] + 1 if places else start
            for key, value, moment, headers, offset in zip(*columns, places, strict=True):
                if settings is not None:
                    key = None if key is None else settings.key_deserializer(key)
                    value = None if value is None else settings.value_deserializer(value)
                place = (topic, partition, offset)
                yield Record(key, value, moment, decode_headers(headers), *place)

    def close(self) -> None:
        """Let go of the subscription."""
        self._positions.clear()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogWriter(TopicWriter):
    """Appends the outputs of batches to topics; a batch that comes again changes nothing."""

    def __init__(
        self,
        log: Log,
        writer: str,
        partitions: dict[str, int],
        create: Callable[[str, int], None] | None = None,
    ) -> None:
        self._log = log
        self._writer = writer
        self._wanted = partitions
        self._create = create or log.create

    def write(self, topic: str, batch: pa.RecordBatch, batch_id: int, reads: str = "") -> None:
        if not self._log.exists(topic):
            self._create(topic, self._wanted.get(topic, 1))
        count = self._log.partitions(topic)
        columns = [batch.column(i) for i in range(3)]
        has_headers = "headers" in batch.schema.names
        headers = batch.column("headers") if has_headers else pa.nulls(batch.num_rows, pa.binary())
        table = pa.Table.from_arrays([*columns, headers], schema=SEGMENT)
        if count == 1:
            self._log.append(topic, 0, table, self._writer, batch_id, reads)
            return
        keys, instead = batch.column("key").to_pylist(), batch.column("partition").to_pylist()
        rows: list[list[int]] = [[] for _ in range(count)]
        for i, (key, other) in enumerate(zip(keys, instead, strict=True)):
            rows[choose_partition(key, other, count)].append(i)
        for number, chosen in enumerate(rows):
            if chosen:
                part = table.take(pa.array(chosen, pa.int64()))
                self._log.append(topic, number, part, self._writer, batch_id, reads)
