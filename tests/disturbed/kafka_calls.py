"""Ends a program before a chosen call to Kafka.

Takes the name of a call, such as "2 commit": the number of a transaction, of which 0 takes over the
group and the others are batches, and what is about to be done in it; or "offsets 3", the third
commit of offsets. The program ends as if it were killed in that moment.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import confluent_kafka

from millpond.connectors.kafka import connection

__all__ = ["IN_A_BATCH", "IN_THE_FIRST", "MIDDLE", "die_before"]

# Which output of a batch is one in the middle.
MIDDLE = 1_000

IN_THE_FIRST = ("init", "begin", "mark", "commit", "committed")
IN_A_BATCH = ("begin", "first output", "middle output", "mark", "commit", "committed")


def die_before(chosen: str) -> None:
    """From now on, clients of Kafka that are made end this process before one call."""

    def reached(call: str) -> None:
        if call == chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    class Producer(confluent_kafka.Producer):  # type: ignore[misc]
        transaction, outputs = 0, 0

        def init_transactions(self, *args: Any) -> None:
            reached(f"{self.transaction} init")
            super().init_transactions(*args)

        def begin_transaction(self) -> None:
            reached(f"{self.transaction} begin")
            self.outputs = 0
            super().begin_transaction()

        def produce(self, topic: str, *args: Any) -> None:
            self.outputs += not topic.endswith(".batches")
            if topic.endswith(".batches"):
                reached(f"{self.transaction} mark")
            elif self.outputs in (1, MIDDLE):
                name = "first" if self.outputs == 1 else "middle"
                reached(f"{self.transaction} {name} output")
            super().produce(topic, *args)

        def commit_transaction(self, *args: Any) -> None:
            reached(f"{self.transaction} commit")
            super().commit_transaction(*args)
            reached(f"{self.transaction} committed")
            self.transaction += 1

    class Consumer(confluent_kafka.Consumer):  # type: ignore[misc]
        commits = 0

        def commit(self, *args: Any, **options: Any) -> Any:
            self.commits += 1
            reached(f"offsets {self.commits}")
            return super().commit(*args, **options)

    connection.Producer, connection.Consumer = Producer, Consumer  # type: ignore[misc]
