"""Records handed to librdkafka, for the writer of outputs and for producers of people.

Takes a connection; gives a producer that waits where librdkafka holds too much, and remembers
what did not arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from millpond.connectors.kafka.closing import close_at_exit
from millpond.connectors.kafka.connection import Connection

__all__ = ["Sender"]

# What librdkafka takes for "choose the partition" and for "the time is now".
_BY_KEY, _NOW = -1, 0


class Sender:
    """A librdkafka producer at work."""

    def __init__(
        self,
        connection: Connection,
        usual: dict[str, Any] | None = None,
        must: dict[str, Any] | None = None,
    ) -> None:
        """Make the producer; the settings are those of `Connection.producer`."""
        self.failed: list[KafkaError] = []
        """Why records did not arrive."""
        on_failure = _into(
            self.failed
        )  # it does not know the sender, which so goes when it is let go
        self.producer = connection.producer(
            usual or {}, {"on_delivery": on_failure, **(must or {})}
        )
        close_at_exit(self)

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Any,
        partition: int | None,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Hand over a record; the partition is chosen by the key where it is None.

        `on_delivery` is called as well where it arrived, or did not.
        """
        called = None if on_delivery is None else _both(_into(self.failed), on_delivery)
        place = _BY_KEY if partition is None else partition
        moment = _NOW if timestamp is None else timestamp if timestamp > 0 else 1
        while True:
            try:
                # By position: 0.7 us a call, by name 1.0. The sixth, an alias of the fifth, is not
                # looked at (librdkafka 2.16).
                self.producer.produce(topic, value, key, place, called, None, moment, headers)
                return
            except BufferError:  # more than librdkafka holds at a time
                self.producer.poll(0.1)

    def let_go(self) -> None:
        """Close the producer; records that the broker does not have yet are given up."""
        if hasattr(self, "producer"):
            self.producer.purge()  # or it would wait for the broker when it goes
            del self.producer


def _both(
    first: Callable[[Any, Any], None], second: Callable[[Any, Any], None]
) -> Callable[[Any, Any], None]:
    def delivered(error: Any, message: Any) -> None:
        first(error, message)
        second(error, message)

    return delivered


def _into(failed: list[KafkaError]) -> Callable[[KafkaError | None, Any], None]:
    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(error)

    return delivered
