"""The outputs of batches to Kafka: each batch is one transaction, or none of it is there.

Takes Arrow columns for topics; writes them together with a record that has the number of the
batch, in the topic `<group>.batches`. Who dies between this and the commit of the batch finds
the number again and writes nothing a second time. Then the consumer group gets how far its
sources were read; that is for people and their tools, nothing depends on it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import repeat
from math import inf
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from millpond.connectors.kafka.connection import (
    ANSWER,
    DENIED,
    Connection,
    Patience,
    is_passing,
)
from millpond.connectors.kafka.group import GroupOffsets
from millpond.connectors.kafka.reader import KafkaReader
from millpond.connectors.kafka.sender import Sender
from millpond.connectors.limits import Limits, RecordsRefused
from millpond.connectors.protocols import Offsets, TopicWriter
from millpond.errors import BrokerError, TopicError
from millpond.wire.headers import decode_headers

__all__ = ["Guarantee", "KafkaWriter"]

Guarantee = Literal["exactly-once", "at-least-once"]

# Milliseconds after which the broker gives up a transaction of a program that is gone: as long
# as brokers allow, because a batch may wait for a broker that is away.
_TRANSACTION_MS = 900_000

# Seconds between two tries to write a batch, and for one try to commit it.
_PAUSE, _COMMIT = 1.0, 60.0

# Seconds after which it is looked whether the broker has refused a record.
_LOOK = 0.5

# Times that a run tries to become the one who writes, against one that does not let go.
_TRIES = 5

# Offsets at the end of the topic of batches among which the last number is looked for first.
_LAST = 200

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}

# A record is to blame.
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
}

# No waiting helps against these.
_LASTING = {*DENIED, *_REFUSED, KafkaError.POLICY_VIOLATION}

# Bytes that are sent together. A topic measures them together, so it is less for some topics.
_TOGETHER = 1_000_000

logger = logging.getLogger("millpond")

Part = tuple[str, pa.RecordBatch]


class KafkaWriter(TopicWriter):
    """Writes the outputs of an application, batch by batch; lives in the driver."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        stream: str,
        *,
        partitions: Callable[[str], int],
        positions: Callable[[int], dict[str, Offsets]],
        batches: KafkaReader | None,
        limits: Callable[[str], Limits],
    ) -> None:
        """Prepare to write.

        Args:
            connection: The broker.
            group: The consumer group, which gets how far its sources were read.
            stream: Whose batches are counted.
            partitions: Gives the number of partitions of a topic that is written.
            positions: Gives, for a batch, the offsets up to which it reads topics.
            batches: Reads the topic that has the numbers of the batches; None: no transactions,
                a batch that comes again is written again.
            limits: Gives what a topic takes of a record.
        """
        self._connection = connection
        self.waits_for = connection.name
        self._group = group
        self._stream = stream
        self._partitions = partitions
        self._positions = positions
        self._batches = batches
        self._limits = limits
        self._together = _TOGETHER
        self._parts: list[Part] = []
        self._sender: Sender | None = None
        self._run = uuid4().hex
        self._last: dict[str, Any] | None = None
        """What is known of the last batch that was written; None: the broker has to be asked."""
        if batches is not None:
            self._take_over()
        self._offsets = GroupOffsets(connection, group)

    # --- a batch ----------------------------------------------------------------------------

    def limits(self, topic: str) -> Limits:
        """Return what the producer and a topic take of a record."""
        return self._limits(topic)

    def write(self, topic: str, batch: pa.RecordBatch, batch_id: int, reads: str = "") -> None:
        """Take records of a batch; they leave when it is complete.

        Ranges of topics tell it from another batch of its number, so `reads` is not looked at.
        """
        self._parts.append((topic, batch))

    def complete(self, batch_id: int) -> None:
        """Write what was taken; a batch that comes again changes nothing.

        Raises:
            RecordsRefused: nothing of the batch can be seen; it may be taken again without some.
        """
        parts, self._parts = self._parts, []
        self._send_less_together(parts)
        patience = Patience(self._connection.config.patience)
        while parts:
            try:
                if self._batches is None:
                    self._send(parts)
                elif not self._has(batch_id):
                    self._send_as_one(parts, batch_id)
                break
            except (KafkaException, SystemError) as error:
                self._begin_again(self._connection.raised(error), patience)
            except BrokerError as error:  # of a question on the way
                if not isinstance(error.__cause__, KafkaException):
                    raise
                self._begin_again(error.__cause__, patience)
        self._offsets.tell(self._positions(batch_id))

    def _send_less_together(self, parts: list[Part]) -> None:
        """See to it that records are not refused for being sent together with others."""
        kept = [self._limits(topic).kept for topic in {topic for topic, _ in parts}]
        together = min([self._together, *(bytes for bytes in kept if bytes is not None)])
        if together < self._together:
            self._together = together
            self._let_go()

    def _send(self, parts: list[Part]) -> None:
        sender = self._opened()
        self._put(sender, parts)
        self._send_all(sender)
        if sender.failed:
            raise KafkaException(sender.failed[0])

    def _send_as_one(self, parts: list[Part], batch_id: int) -> None:
        sender = self._opened()
        if self._last is not None and self._last.get("hangs"):
            self._end_what_hangs(parts, sender)
        sender.producer.begin_transaction()
        self._put(sender, parts)
        self._commit_with(
            {"batch": batch_id, "of": self._ranges(batch_id), "run": self._run}, sender
        )

    def _commit_with(self, mark: dict[str, Any], sender: Sender) -> None:
        self._put_mark(mark, sender)
        self._send_all(sender, _COMMIT)
        sender.producer.commit_transaction(_COMMIT)
        self._last = mark

    def _send_all(self, sender: Sender, patience: float = inf) -> None:
        """Wait until the broker has all records, or refuses one.

        After a record that it refuses, it takes none of that partition: they have the wrong
        number. librdkafka would send them until the commit is given up, a minute later.
        """
        deadline = time.monotonic() + patience
        while sender.producer.flush(_LOOK) and time.monotonic() < deadline:
            self._check_refused(sender)
        self._check_refused(sender)

    def _check_refused(self, sender: Sender) -> None:
        refusals = [error for error in sender.failed if error.code() in _REFUSED]
        if refusals:
            raise KafkaException(refusals[0])

    def _put_mark(self, mark: dict[str, Any], sender: Sender) -> None:
        assert self._batches is not None
        key, value = self._stream.encode(), json.dumps(mark).encode()
        sender.put(self._batches.topic, value, key, None, None, 0)

    def _end_what_hangs(self, parts: list[Part], sender: Sender) -> None:
        """Write a batch and take it back.

        A broker that comes back takes partitions without a leader for deleted ones, and does not
        end the transaction there that it was ending when it went (seen with Kafka 4.3). Its
        records stay hidden until our next commit, and would then be seen beside those that are
        written again. What is taken back takes them with it.
        """
        logger.warning("the broker lost the end of a batch, which is written again")
        sender.producer.begin_transaction()
        self._put(sender, parts)
        self._put_mark({**(self._last or {}), "run": self._run}, sender)
        left = sender.producer.flush(_COMMIT)
        if left or sender.failed:  # what did not arrive takes nothing with it
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        sender.producer.abort_transaction(_COMMIT)

    def _put(self, sender: Sender, parts: list[Part]) -> None:
        for topic, batch in parts:
            count = self._partitions(topic)
            for key, value, timestamp, headers, instead in _rows(batch):
                partition = None if key is not None else instead % count
                sender.put(topic, value, key, timestamp, headers, partition)
            sender.producer.poll(0)

    def _opened(self) -> Sender:
        if self._sender is None:
            # Sent when a batch is whole, or much has come together: sending all the time, the
            # threads of librdkafka get in the way, and half a million records take 1.2 s, not 0.85.
            usual = {"linger.ms": 100, "batch.size": self._together}
            if self._batches is None:
                self._sender = Sender(self._connection, usual)
            else:
                usual["transaction.timeout.ms"] = _TRANSACTION_MS
                must = {"transactional.id": f"millpond-{self._group}"}
                sender = Sender(self._connection, usual, must)
                try:
                    # Fences whoever had the id before, and ends what he left open.
                    sender.producer.init_transactions(ANSWER)
                except BaseException:
                    sender.let_go()
                    raise
                self._sender = sender
        return self._sender

    def _begin_again(self, error: KafkaException, patience: Patience) -> None:
        """Forget the producer and its transaction, or give up."""
        reported: KafkaError = error.args[0]
        may_pass = reported.retriable() or reported.txn_requires_abort() or is_passing(error)
        # The broker has the same words for who was replaced and for a transaction that was open
        # for too long; which it was is found out at the next try.
        may_pass = may_pass or reported.code() in _FENCED
        may_pass = may_pass and reported.code() not in _LASTING
        if patience.is_over() or not may_pass:
            raised = self._connection.error("write the outputs of a batch", error)
            if reported.code() in _REFUSED:
                self._let_go()
                raise RecordsRefused(str(raised), time.time_ns() // 1_000_000) from error
            raise raised from error
        logger.warning("a batch could not be written yet, trying again: %s", reported.str())
        self._let_go()
        time.sleep(_PAUSE)

    def _replaced(self) -> BrokerError:
        return BrokerError(
            f"another application has taken over consumer group {self._group!r} on broker "
            f"{self._connection.address}; this one may not write any more. Nothing of this "
            "batch was written.\nFix: stop one of the two, or give it another consumer_group."
        )

    def _let_go(self) -> None:
        if self._sender is not None:
            self._sender.let_go()
        self._sender = self._last = None

    # --- what the broker knows of batches ---------------------------------------------------

    def _has(self, batch_id: int) -> bool:
        """Tell whether the broker has the batch; it is asked only where that is not known."""
        if self._last is None:
            self._look()
        assert self._last is not None
        last = self._last["batch"]
        if last > batch_id or (last == batch_id and self._last["of"] != self._ranges(batch_id)):
            msg = (
                f"broker {self._connection.address} has batch {last} of {self._stream!r}, which "
                f"now writes another batch {batch_id}: its state directory was put back to an "
                "older copy.\nFix: use the state directory that wrote the topics, or "
                "app.clear_state()."
            )
            raise TopicError(msg)
        return bool(last == batch_id)

    def _take_over(self) -> None:
        """Become the one who writes; who wrote before may need more than one refusal."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._connection.ask("take over the consumer group", self._leave_name)
                return
            except BrokerError as error:
                cause = error.__cause__
                is_fenced = isinstance(cause, KafkaException) and cause.args[0].code() in _FENCED
                self._let_go()
                if not is_fenced:
                    raise
                if not tries_left:
                    raise self._replaced() from error

    def _leave_name(self) -> None:
        """Open the producer, which fences whoever had the group before, and leave our name."""
        sender = self._opened()
        self._last = self._known()
        if self._last.get("hangs"):
            self._end_what_hangs([], sender)  # where the batch goes is known when it comes again
        sender.producer.begin_transaction()
        self._commit_with({**self._last, "run": self._run}, sender)

    def _look(self) -> None:
        """Open the producer, and ask what the last batch was.

        No answer is final while an older transaction is open, so it is asked after that.
        """
        # Asked before the producer is opened, too: that would fence who has taken over.
        self._check_ours()
        self._opened()
        self._check_ours()
        self._last = self._known()
        if self._last.get("hangs"):
            self._leave_name()  # with it, so that whoever comes next knows it, too

    def _check_ours(self) -> None:
        """Raise if another run has taken over: left its name, be it that nobody sees it yet."""
        assert self._batches is not None
        name = next((mark["run"] for _, mark in _newest_first(self._batches.uncommitted())), "")
        if name != self._run:
            self._let_go()
            raise self._replaced()

    def _known(self) -> dict[str, Any]:
        """Return what is known of the last batch of the stream.

        With "hangs" where the broker has records of an older transaction and never ended it.
        """
        assert self._batches is not None
        marks = _newest_first(self._batches)
        none = {"batch": -1, "of": "", "run": ""}
        last = next((mark for stream, mark in marks if stream == self._stream), none)
        seen, all_of_it = self._batches.latest(), self._batches.uncommitted().latest()
        return {**last, "hangs": True} if seen != all_of_it else last

    def _ranges(self, batch_id: int) -> str:
        """Return what tells a batch from another one of the same number: how far it reads."""
        return json.dumps(self._positions(batch_id), sort_keys=True)

    def close(self) -> None:
        """Let go of the connection; what is not complete is gone."""
        if self._sender is not None and self._batches is not None:
            with suppress(KafkaException, SystemError):
                self._sender.producer.abort_transaction(5)  # or readers would wait for its timeout
        self._let_go()
        self._offsets.close()


def _newest_first(batches: KafkaReader) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the streams of a topic of batches, and what is known of their batches."""
    end, oldest = (batches.initial(place)["0"] for place in ("latest", "earliest"))
    near = max(oldest, end - _LAST)
    for start, stop in ((near, end), (oldest, near)):
        found = [row for batch in batches.read("0", start, stop) for row in batch.to_pylist()]
        for row in reversed(found):
            yield row["key"].decode(), json.loads(row["value"])


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield key, value, timestamp, headers, and what stands for the partition without a key."""
    headers: Iterable[Any] = repeat(None)
    if "headers" in batch.schema.names:
        headers = map(decode_headers, batch.column("headers").to_pylist())
    key, value, timestamp, instead = (
        batch.column(name).to_pylist() for name in ("key", "value", "timestamp", "partition")
    )
    return zip(key, value, timestamp, headers, instead, strict=False)
