"""Ranges of a Kafka topic as Arrow columns.

Takes a partition and two offsets; gives the committed records between them, always the same
ones. Lives in the driver (what is there to read?) and in workers (reading it). Offsets may have
gaps, where transactions ended or a topic was compacted, so records come with their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millpond.connectors.kafka.connection import Connection, Patience, is_passing
from millpond.connectors.kafka.raw import RawMessage, read_raw
from millpond.connectors.kafka.topics import Found, describe, offsets_of
from millpond.connectors.protocols import Offsets, SourceReader
from millpond.connectors.segments import SEGMENT
from millpond.connectors.topic import no_offsets
from millpond.errors import BrokerError, TopicError
from millpond.wire.headers import encode_headers

__all__ = ["KafkaReader"]

RECORDS = SEGMENT.append(pa.field("offset", pa.int64()))

# Messages taken from librdkafka at a time, and the seconds for which the first one is waited for.
_AT_A_TIME, _WAIT = 10_000, 0.5

# Records that are fetched together at most, and held until they are read.
_TOGETHER = 2_000

# Seconds for which the number of partitions, the oldest offsets and a record's size are believed.
_FRESH = 1.0

# Messages looked at to guess how large those are that wait.
_SAMPLE = 20

_SETTINGS = {
    "group.id": "millpond-reader",  # needed by librdkafka; no group is joined, nothing committed
    "enable.auto.offset.store": False,
    # How long a fetch is put off when the queue is full: with the default of a second, 150,000
    # records/s came through; so, 600,000.
    "fetch.queue.backoff.ms": 1,
    # What is asked for is there already, so there is nothing to wait for.
    "fetch.wait.max.ms": 5,
}

logger = logging.getLogger("millpond")

Range = tuple[str, int, int]
"""A partition, the first offset and the one after the last."""


class KafkaReader(SourceReader):
    """Reads one topic."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        topic_id: str,
        *,
        skips_lost: bool = False,
        committed: bool = True,
    ) -> None:
        self._connection = connection
        self.topic = topic
        self._id = topic_id
        self._skips_lost = skips_lost
        self._committed = committed
        self._patience = Patience(connection.config.patience)
        self.waits_for = connection.name
        self.away_since: float | None = None
        self._looked = 0.0
        self._partitions = 0
        self._oldest: Offsets = {}
        self._sizes: dict[str, tuple[float, int]] = {}
        self._reported: set[str] = set()
        self._fetched: dict[Range, list[Message]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (
            self._connection,
            self.topic,
            self._id,
            self._skips_lost,
            self._committed,
        )

    def uncommitted(self) -> KafkaReader:
        """Return a reader of the topic that sees what is not committed, too."""
        return KafkaReader(self._connection, self.topic, self._id, committed=False)

    # --- what there is ----------------------------------------------------------------------

    def initial(self, reset: str) -> Offsets:
        if reset == "error":
            raise no_offsets(self.topic)
        self._look()
        return self._oldest if reset == "earliest" else self._ends()

    def latest(self) -> Offsets:
        """Return the end of each partition."""
        self._look()
        return self._ends()

    def ends(self, begin: Offsets) -> Offsets:
        """Return the end of each partition; while the broker is away, where it was left.

        Raises:
            TopicError: records were deleted before they were read, or the topic is another one.
            BrokerError: the broker has been away for too long.
        """
        asked = time.monotonic()
        try:
            self._look()
            ends = self._ends()
        except BrokerError as error:
            if not _may_pass(error) or self._patience.is_over():
                raise
            self.away_since = self.away_since or asked
            return begin
        self.away_since = None
        self._patience.renew()
        for partition, end in ends.items():
            self._check(partition, begin.get(partition, 0), end)
        return {p: max(end, begin.get(p, 0)) for p, end in {**begin, **ends}.items()}

    def _check(self, partition: str, begin: int, end: int) -> None:
        oldest = self._oldest.get(partition, 0)
        place = f"partition {partition} of topic {self.topic!r}"
        if end < begin:
            msg = (
                f"{place} ends at {end}, but this group has read it up to {begin}: were records "
                "deleted, or the topic created again?\n"
                "Fix: start over with app.clear_state(reset_offsets=True)."
            )
            raise TopicError(msg)
        lost = f"records {begin} to {oldest - 1} of {place} were deleted before they were read"
        if begin < oldest and self._skips_lost:
            if lost not in self._reported:
                logger.warning("%s (retention); they are skipped", lost)
                self._reported.add(lost)
        elif begin < oldest:
            msg = (
                f"{lost} (retention).\n"
                'Fix: Application(on_lost_records="skip") goes on with what is left; the topic\'s '
                "retention.ms decides how long records wait."
            )
            raise TopicError(msg)

    def _look(self) -> None:
        """Ask for the partitions and their oldest records, unless that has just been done."""
        if time.monotonic() - self._looked < _FRESH:
            return
        found = describe(self._connection, self.topic)
        if found is None or (self._id and found.id != self._id):
            raise self._gone(found)
        self._partitions = found.partitions
        self._oldest = offsets_of(self._connection, self.topic, found.partitions, oldest=True)
        self._looked = time.monotonic()

    def _gone(self, found: Found | None) -> TopicError:
        what = "no longer exists" if found is None else "was deleted and created again"
        return TopicError(
            f"topic {self.topic!r} {what}; state belongs to the records of the old one.\n"
            "Fix: start over with app.clear_state(reset_offsets=True), or use another "
            "consumer_group."
        )

    def _ends(self) -> Offsets:
        return offsets_of(
            self._connection,
            self.topic,
            self._partitions,
            oldest=False,
            committed=self._committed,
        )

    # --- reading ----------------------------------------------------------------------------

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, with their offsets."""
        wanted = (partition, start, end)
        if wanted in self._fetched:
            return map(self._columns, filter(None, [self._fetched.pop(wanted)]))
        return (self._columns(some) for _, some in self._messages([wanted]))

    def _columns(self, messages: list[Any]) -> pa.RecordBatch:
        try:
            return _columns(messages)
        except (SystemError, UnicodeDecodeError) as error:
            if not _has_bad_name(error):
                raise
        first, last = messages[0], messages[-1]
        p = str(first.partition())
        positions, ends = {p: first.offset()}, {p: last.offset() + 1}
        patience = Patience(self._connection.config.patience)
        read = [message for _, some in self._raw(positions, ends, patience) for message in some]
        return _columns(read)

    def fetch(self, ranges: list[Range]) -> None:
        """Fetch ranges that are read next: many small ones cost little more than one."""
        self._fetched = {}
        if len(ranges) > 1 and sum(end - start for _, start, end in ranges) <= _TOGETHER:
            by_partition: dict[str, list[Message]] = {place: [] for place, _, _ in ranges}
            for partition, some in self._messages(ranges):
                by_partition[partition] += some
            self._fetched = {wanted: by_partition[wanted[0]] for wanted in ranges}

    def _messages(self, ranges: list[Range]) -> Iterator[tuple[str, list[Message]]]:
        """Yield the messages of ranges of different partitions, as they come."""
        # A consumer of its own costs 3 ms; one that is kept waits for what it fetched last.
        consumer = self._consumer()
        patience = Patience(self._connection.config.patience)
        positions, ends = {p: start for p, start, _ in ranges}, {p: end for p, _, end in ranges}
        consumer.assign([TopicPartition(self.topic, int(p), start) for p, start, _ in ranges])
        try:
            while left := [p for p in ends if positions[p] < ends[p]]:
                try:
                    first = consumer.poll(_WAIT)
                    # Asked for more than there is, `consume` would wait for the rest of it.
                    came = [first, *consumer.consume(_AT_A_TIME, 0)] if first is not None else []
                except (SystemError, UnicodeDecodeError) as error:
                    if not _has_bad_name(error):
                        raise
                    yield from self._raw(positions, ends, patience)
                    return
                before = dict(positions)
                for p, some in _by_partition(came, positions).items():
                    positions[p] = self._position(some, positions[p], p)
                    if any(map(Message.error, some)) or positions[p] > ends[p]:
                        some = [m for m in some if m.error() is None and m.offset() < ends[p]]
                    if some:
                        yield p, some
                if any(positions[p] > before[p] for p in left):
                    patience.renew()
                elif patience.is_over():
                    raise self._silent(positions, ends)
                self._rest(consumer, [p for p in left if positions[p] >= ends[p]])
        finally:
            consumer.close()

    def _raw(
        self, positions: Offsets, ends: Offsets, patience: Patience
    ) -> Iterator[tuple[str, list[Any]]]:
        """Yield what is left of ranges in which a header has a name that is not UTF-8."""
        settings = self._connection.consumer_settings(_SETTINGS, self._must())
        for p, end in ends.items():
            some: list[RawMessage] = []
            messages = read_raw(settings, self.topic, int(p), positions[p])
            with closing(messages):
                while positions[p] < end:
                    message = next(messages)
                    if message is None and patience.is_over():
                        raise self._silent(positions, ends)
                    if message is None:
                        continue
                    patience.renew()
                    positions[p] = self._position([message], positions[p], p)
                    if message.error() is None and message.offset() < end:
                        some.append(message)
                    if len(some) == _AT_A_TIME:
                        yield p, some
                        some = []
            if some:
                yield p, some

    def _rest(self, consumer: Consumer, done: list[str]) -> None:
        """Let no more be fetched of partitions whose range is read."""
        if done:
            consumer.pause([TopicPartition(self.topic, int(p)) for p in done])

    def _position(self, some: list[Any], position: int, partition: str) -> int:
        """Return the offset after what was read."""
        for message in reversed(some):
            error = message.error()
            if error is None:
                return max(position, int(message.offset()) + 1)
            if error.code() == KafkaError._PARTITION_EOF:
                position = max(position, message.offset())
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                msg = (
                    f"records from {position} on of partition {partition} of topic "
                    f"{self.topic!r} were deleted before they were read (retention).\n"
                    "Fix: run again; what can be done is said there."
                )
                raise TopicError(msg)
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # no group is needed to read
            elif not is_passing(KafkaException(error)):
                what = f"read partition {partition} of topic {self.topic!r}"
                raise self._connection.error(what, KafkaException(error))
        return position

    def _silent(self, positions: Offsets, ends: Offsets) -> BrokerError:
        partition = next(p for p in ends if positions[p] < ends[p])
        return BrokerError(
            f"partition {partition} of topic {self.topic!r} gave nothing from offset "
            f"{positions[partition]} on for {self._connection.config.patience:.0f} s (broker "
            f"{self._connection.address}).\n"
            "Fix: check that the broker is up, and run again; state and offsets are as of the last "
            "batch."
        )

    def _consumer(self) -> Consumer:
        return self._connection.consumer(_SETTINGS, self._must())

    def _must(self) -> dict[str, str]:
        reset = "earliest" if self._skips_lost else "error"
        level = "read_committed" if self._committed else "read_uncommitted"
        return {"isolation.level": level, "auto.offset.reset": reset}

    def record_bytes(self, partition: str, offset: int) -> int:
        """Return about how many bytes a record takes from an offset on."""
        asked, size = self._sizes.get(partition, (0.0, 0))
        if time.monotonic() - asked > 30 * _FRESH:
            try:
                size = self._sampled(partition, offset)
                self._sizes[partition] = (time.monotonic(), size)
            except BrokerError as error:
                if not _may_pass(error):
                    raise  # else it is asked again with the next batch
        return size

    def _sampled(self, partition: str, offset: int) -> int:
        self._look()
        end = min(offset + _SAMPLE, self._ends().get(partition, 0))
        _, some = next(self._messages([(partition, offset, end)]), ("", []))
        return sum(len(m.value() or b"") + len(m.key() or b"") for m in some) // max(1, len(some))


def _may_pass(error: BrokerError) -> bool:
    return isinstance(error.__cause__, KafkaException) and is_passing(error.__cause__)


def _remade(
    connection: Connection, topic: str, topic_id: str, skips_lost: bool, committed: bool
) -> KafkaReader:
    return KafkaReader(connection, topic, topic_id, skips_lost=skips_lost, committed=committed)


def _by_partition(messages: list[Message], positions: Offsets) -> dict[str, list[Message]]:
    first = next(iter(positions))
    if len(positions) == 1:
        return {first: messages}
    parts: dict[str, list[Message]] = {}
    for message in messages:
        partition = str(message.partition())
        # What is an error of the connection belongs to none.
        parts.setdefault(partition if partition in positions else first, []).append(message)
    return parts


def _has_bad_name(error: Exception) -> bool:
    """Tell whether a record could not be given because the name of a header is not UTF-8.

    confluent_kafka tells it where a record is polled, from 2.16 on where its headers are asked for.
    """
    return isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError)


def _columns(messages: list[Any]) -> pa.RecordBatch:
    def each(method: str) -> list[Any]:
        if isinstance(messages[0], Message) and isinstance(messages[-1], Message):
            return list(map(getattr(Message, method), messages))
        return [getattr(message, method)() for message in messages]

    headers = each("headers")
    columns = [
        pa.array(each("key"), pa.binary()),
        pa.array(each("value"), pa.binary()),
        pa.array([moment for _, moment in each("timestamp")], pa.int64()),
        pa.array(list(map(encode_headers, headers)), pa.binary())
        if any(headers)
        else pa.nulls(len(messages), pa.binary()),
        pa.array(each("offset"), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
