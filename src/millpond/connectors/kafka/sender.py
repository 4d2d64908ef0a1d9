"""Records handed to librdkafka, for the writer of outputs and for producers of people.

Takes a connection; gives a producer that waits where librdkafka holds too much, and remembers
what did not arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from millpond.connectors.kafka.connection import Connection

__all__ = ["Sender"]


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
        told = _into(self.failed)  # it does not know the sender, which so goes when it is let go
        self.producer = connection.producer(usual or {}, {"on_delivery": told, **(must or {})})

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Any,
        partition: int | None,
    ) -> None:
        """Hand over a record; the partition is chosen by the key where it is None."""
        places: dict[str, int] = {} if partition is None else {"partition": partition}
        if timestamp is not None:
            places["timestamp"] = timestamp if timestamp > 0 else 1  # 0 would mean "now"
        while True:
            try:
                self.producer.produce(topic, value, key, headers=headers, **places)
                return
            except BufferError:  # more than librdkafka holds at a time
                self.producer.poll(0.1)


def _into(failed: list[KafkaError]) -> Callable[[KafkaError | None, Any], None]:
    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(error)

    return delivered
