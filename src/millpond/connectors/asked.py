"""What people ask of a producer, a consumer or a record because confluent_kafka has it.

Takes the name of a method that is not there; gives an `AttributeError` that says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.arguments.hints import missing, public

__all__ = ["ConsumerHints", "ProducerHints"]

_NO_GROUP = (
    "this consumer joins no group and keeps no offsets: app.dataframe(topic) goes on where it "
    "stopped; consumer.seek(partition) or consumer.read(topic) chooses a place."
)
_ALL_PARTITIONS = "subscribe([topic]) reads all partitions of a topic."
_CONSUMER = {
    **dict.fromkeys(("commit", "store_offsets", "committed", "memberid"), _NO_GROUP),
    **dict.fromkeys(("consumer_group_metadata", "position", "offsets_for_times"), _NO_GROUP),
    **dict.fromkeys(("assign", "assignment", "unassign", "incremental_assign"), _ALL_PARTITIONS),
    **dict.fromkeys(("incremental_unassign", "pause", "resume"), _ALL_PARTITIONS),
    "consume": "consumer.poll(timeout) gives one record, consumer.read(topic) all.",
    "list_topics": "`millpond topics ls` shows the topics.",
    "get_watermark_offsets": "`millpond topics ls` shows how many records a topic has.",
}
_NO_TRANSACTIONS = (
    "a producer has no transactions; what must be written once is written by a frame: "
    "sdf.to_topic(topic)."
)
_PRODUCER = {
    **dict.fromkeys(("begin_transaction", "commit_transaction"), _NO_TRANSACTIONS),
    **dict.fromkeys(("abort_transaction", "send_offsets_to_transaction"), _NO_TRANSACTIONS),
    "send": "producer.produce(topic, value, key).",
    "close": "use it in a `with` block, or call flush().",
    "purge": "produce() holds back little; flush() writes it.",
}


class ConsumerHints:
    """What a consumer says of a method that it does not have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a consumer", name, public(type(self)), _CONSUMER)


class ProducerHints:
    """What a producer says of a method that it does not have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a producer", name, public(type(self)), _PRODUCER)
