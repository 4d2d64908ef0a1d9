"""The embedded log as the place where topics live; `connectors.kafka` is the same for Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.connectors.clients import Consumer, LogWriter, Producer
from millpond.connectors.log import Log
from millpond.connectors.sources import LogReader
from millpond.connectors.topic import Topic

__all__ = ["EmbeddedBroker"]


class EmbeddedBroker:
    """The topics of an application, in a folder."""

    def __init__(self, log: Log, topics: dict[str, Topic]) -> None:
        self._log = log
        self._topics = topics

    def connect(self) -> None:
        """There is nobody to connect to."""

    def prepare(self, topic: Topic, known_as: str | None = None) -> str:
        """Make a topic where it is missing; its offsets tell whether it is the old one."""
        self._log.create(topic.name, topic.config.num_partitions)
        return ""

    def reader(self, topic: Topic) -> LogReader:
        """Return the reader of a topic that was prepared."""
        return LogReader(str(self._log.path), topic.name)

    def writer(
        self, group: str, stream: str, writes: bool, positions: Callable[[int], Any]
    ) -> LogWriter:
        """Return what writes the outputs of batches."""
        wanted = {name: topic.config.num_partitions for name, topic in self._topics.items()}
        return LogWriter(self._log, stream, wanted)

    def producer(self) -> Producer:
        return Producer(self._log, self._topics)

    def consumer(self) -> Consumer:
        return Consumer(self._log, self._topics)

    def listed(self) -> list[tuple[str, int, int]]:
        """Return the name, the partitions and the number of records of each topic."""
        log, rows = self._log, []
        for name in log.topics():
            count = log.partitions(name)
            records = sum(log.end(name, p) - log.start(name, p) for p in range(count))
            rows.append((name, count, records))
        return rows
