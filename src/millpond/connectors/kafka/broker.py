"""A Kafka broker as the place where topics live.

Takes a connection and what the program wants of it; gives readers, the writer of outputs, and
clients. `connectors.embedded` is the same for the embedded log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millpond.connectors.kafka.clients import KafkaConsumer, KafkaProducer
from millpond.connectors.kafka.connection import Connection
from millpond.connectors.kafka.reader import KafkaReader
from millpond.connectors.kafka.topics import (
    Found,
    delete,
    describe,
    ensure,
    limits_of,
    names,
    offsets_of,
)
from millpond.connectors.kafka.writer import Guarantee, KafkaWriter
from millpond.connectors.limits import Limits
from millpond.connectors.other_topics import warning_of_new_input
from millpond.connectors.protocols import Offsets
from millpond.connectors.topic import Topic, TopicConfig, make_topic
from millpond.errors import TopicError

__all__ = ["KafkaBroker"]

logger = logging.getLogger("millpond")


class KafkaBroker:
    """The topics of an application, on Kafka."""

    def __init__(
        self,
        connection: Connection,
        topics: dict[str, Topic],
        *,
        creates: bool,
        guarantee: Guarantee,
        skips_lost: bool,
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._creates = creates
        self._guarantee = guarantee
        self._skips_lost = skips_lost
        self._found: dict[str, Found] = {}
        self._limits: dict[str, Limits] = {}

    def connect(self) -> None:
        """Make sure that the broker answers.

        Raises:
            BrokerError: it does not, or it refuses; within 30 seconds.
        """
        self._found.clear()
        self._limits.clear()
        self._connection.check()

    def prepare(self, topic: Topic, known_as: str | None = None, *, reads: bool = False) -> str:
        """Make or check a topic; return its id.

        Args:
            topic: The topic.
            known_as: The id under which state knows it.
            reads: Whether it is only read; if it is made for that, its name may be a mistake.
        """
        found = self._find(topic)
        if known_as and found.id != known_as:
            msg = (
                f"topic {topic.name!r} was deleted and created again since this group last ran; "
                "its state belongs to the records of the old one.\n"
                "Fix: start over with app.clear_state(reset_offsets=True), or use another "
                "consumer_group."
            )
            raise TopicError(msg)
        if reads and found.is_new:
            logger.warning("%s", warning_of_new_input(topic.name, names(self._connection)))
        return found.id

    def reader(self, topic: Topic) -> KafkaReader:
        """Return the reader of a topic that was prepared."""
        topic_id = self._find(topic).id
        return KafkaReader(self._connection, topic.name, topic_id, skips_lost=self._skips_lost)

    def writer(self, group: str, stream: str, writes: bool, positions: Positions) -> KafkaWriter:
        """Return what writes the outputs of batches."""
        batches = None
        if writes and self._guarantee == "exactly-once":
            # Batches are counted in one place, of which only the end is of interest.
            config = TopicConfig(
                extra_config={"cleanup.policy": "compact", "segment.ms": "3600000"}
            )
            name = f"{group}.batches"
            topic = self._topics.get(name) or make_topic(name, config=config)
            batches = self.reader(topic)
            if self._find(topic).partitions != 1:
                msg = (
                    f"topic {name!r}, which has the numbers of the batches, must have 1 partition."
                )
                raise TopicError(msg + "\nFix: delete it and run again, or create it with one.")
        return KafkaWriter(
            self._connection,
            group,
            stream,
            partitions=self._partitions,
            positions=positions,
            batches=batches,
            limits=self._limits_of,
        )

    def _limits_of(self, name: str) -> Limits:
        """Return what this producer and a topic take; the topic is made where it is missing."""
        if name not in self._limits:
            self._partitions(name)
            self._limits[name] = limits_of(self._connection, name)
        return self._limits[name]

    def _partitions(self, name: str) -> int:
        return self._find(self._topics.get(name) or make_topic(name)).partitions

    def producer(self) -> KafkaProducer:
        return KafkaProducer(self._connection, self._topics, creates=self._creates)

    def consumer(self) -> KafkaConsumer:
        return KafkaConsumer(self._connection, self._topics)

    # --- for people -------------------------------------------------------------------------

    def delete(self, topic: str) -> None:
        """Delete a topic with its records."""
        delete(self._connection, topic)
        self._found.pop(topic, None)

    def listed(self) -> list[tuple[str, int, int]]:
        """Return the name, the partitions and about the number of records of each topic."""
        rows = []
        for name in names(self._connection):
            found = describe(self._connection, name)
            if found is None:  # deleted since it was listed
                continue
            oldest, ends = (
                offsets_of(self._connection, name, found.partitions, oldest=is_oldest)
                for is_oldest in (True, False)
            )
            rows.append((name, found.partitions, sum(ends.values()) - sum(oldest.values())))
        return rows

    def _find(self, topic: Topic) -> Found:
        if topic.name not in self._found:
            self._found[topic.name] = ensure(self._connection, topic, creates=self._creates)
        return self._found[topic.name]


Positions = Callable[[int], dict[str, Offsets]]
"""Gives, for a batch, the offsets up to which it reads each topic."""
