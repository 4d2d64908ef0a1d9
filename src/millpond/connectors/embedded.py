"""The embedded log as the place where topics live; `connectors.kafka` is the same for Kafka."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from typing import Any

from millpond.connectors.clients import Consumer, LogWriter, Producer
from millpond.connectors.log import Log
from millpond.connectors.other_topics import other_topics, warning_of_new_input
from millpond.connectors.sources import LogReader
from millpond.connectors.topic import Topic
from millpond.errors import DamagedTopicError, TopicError

__all__ = ["EmbeddedBroker"]

logger = logging.getLogger("millpond")


class EmbeddedBroker:
    """The topics of an application, in a folder."""

    def __init__(
        self,
        log: Log,
        topics: dict[str, Topic],
        *,
        creates: bool = True,
        skips_lost: bool = False,
    ) -> None:
        self._log = log
        self._topics = topics
        self._creates = creates
        self._skips_lost = skips_lost

    def connect(self) -> None:
        """There is nobody to connect to."""

    def prepare(self, topic: Topic, known_as: str | None = None, *, reads: bool = False) -> str:
        """Make a topic where it is missing; its offsets tell whether it is the old one.

        Args:
            topic: The topic.
            known_as: The id under which state knows it.
            reads: Whether it is made only because it is read; until something is written to it,
                its name may be a mistake.
        """
        self._create(topic.name, topic.config.num_partitions, is_input=reads)
        if reads and self._log.is_unconfirmed(topic.name):
            logger.warning("%s", warning_of_new_input(topic.name, self._log.topics()))
        return ""

    def _create(self, name: str, partitions: int, *, is_input: bool = False) -> None:
        if not self._creates and not self._log.exists(name):
            option = "" if partitions == 1 else f" --partitions {partitions}"
            folder = shlex.quote(str(self._log.path))
            msg = (
                f"topic {name!r} does not exist in {self._log.path} and auto_create_topics is off. "
                f"{other_topics(name, self._log.topics())}\n"
                f"Fix: millpond topics create {name}{option} --topics-dir {folder}"
            )
            raise TopicError(msg)
        self._log.create(name, partitions, is_input=is_input)

    def reader(self, topic: Topic) -> LogReader:
        """Return the reader of a topic that was prepared."""
        return LogReader(str(self._log.path), topic.name, self._skips_lost)

    def writer(
        self, group: str, stream: str, writes: bool, positions: Callable[[int], Any]
    ) -> LogWriter:
        """Return what writes the outputs of batches."""
        wanted = {name: topic.config.num_partitions for name, topic in self._topics.items()}
        return LogWriter(self._log, stream, wanted, self._create)

    def producer(self) -> Producer:
        return Producer(self._log, self._topics, self._create)

    def consumer(self) -> Consumer:
        return Consumer(self._log, self._topics)

    def delete(self, topic: str) -> None:
        """Delete a topic with its records."""
        self._log.delete(topic)

    def listed(self) -> list[tuple[str, int, int]]:
        """Return the name, the partitions and the number of records of each topic."""
        log, rows = self._log, []
        for name in log.topics():
            try:
                count = log.partitions(name)
            except DamagedTopicError as error:  # the others are listed all the same
                logger.warning("%s", error)
                continue
            records = sum(log.end(name, p) - log.start(name, p) for p in range(count))
            rows.append((name, count, records))
        return rows
