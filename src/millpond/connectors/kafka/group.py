"""How far a consumer group has read, reported to the broker beside the batches.

Takes offsets; the broker shows them to lag tools. Nothing depends on them, so nobody waits for
them: while the broker is away, only the newest are kept.
"""

from __future__ import annotations

import logging
import threading

from confluent_kafka import KafkaException, TopicPartition

from millpond.connectors.kafka.closing import close_at_exit
from millpond.connectors.kafka.connection import Connection
from millpond.connectors.protocols import Offsets

__all__ = ["GroupOffsets"]

# Seconds between two tries, and for which the end of a run waits for the last offsets.
_PAUSE, _LAST = 1.0, 5.0

logger = logging.getLogger("millpond")


class GroupOffsets:
    """Commits offsets of a group, in a thread of its own."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._consumer = connection.consumer({}, {"group.id": group})
        self._news = threading.Condition()
        self._newest: list[TopicPartition] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="millpond-offsets", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def tell(self, positions: dict[str, Offsets]) -> None:
        """Say how far topics were read; returns at once."""
        places = [
            TopicPartition(topic, int(partition), offset)
            for topic, offsets in positions.items()
            for partition, offset in offsets.items()
        ]
        with self._news:
            self._newest = places or self._newest
            self._news.notify()

    def _work(self) -> None:
        has_warned = False
        while places := self._next():
            try:
                self._consumer.commit(offsets=places, asynchronous=False)
                has_warned = False
            except Exception as error:  # whatever it is: nobody waits for this thread
                if not has_warned:
                    reason = error.args[0].str() if isinstance(error, KafkaException) else error
                    logger.warning("lag is not up to date: %s", reason)
                has_warned = True
                self._put_back(places)
        self._consumer.close()

    def _next(self) -> list[TopicPartition]:
        """Wait for offsets and return them; none when there is no more to do."""
        with self._news:
            self._news.wait_for(lambda: self._newest or self._is_closed)
            places, self._newest = self._newest, []
            return places

    def _put_back(self, places: list[TopicPartition]) -> None:
        """Keep offsets for another try, unless there are newer ones or it is too late."""
        with self._news:
            self._news.wait_for(lambda: self._newest or self._is_closed, _PAUSE)
            if not self._is_closed:
                self._newest = self._newest or places

    def close(self) -> None:
        """Report what is still to be reported, unless the broker is away."""
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join(_LAST)

    let_go = close
