"""The topics of a broker: made, checked, and where they begin and end.

Takes topics as the program names them; gives their readers, and what a producer, a consumer or
the command line wants to know.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from millpond.connectors.kafka.connection import ANSWER, Connection
from millpond.connectors.limits import Limits
from millpond.connectors.protocols import Offsets
from millpond.connectors.topic import Topic, TopicConfig
from millpond.errors import BrokerError, TopicError

__all__ = ["Found", "create", "describe", "ensure", "limits_of", "names", "offsets_of"]

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class Found:
    """A topic as the broker has it."""

    id: str
    """Another one, if a topic of the same name is created again."""
    partitions: int
    replicas: int
    is_new: bool = False
    """Whether it was made just now."""


def names(connection: Connection) -> list[str]:
    """Return the topics that the user may see, without Kafka's own."""
    admin = connection.admin()
    known = connection.ask("list the topics", lambda: admin.list_topics(timeout=ANSWER))
    return sorted(name for name in known.topics if not name.startswith("__"))


def describe(connection: Connection, name: str) -> Found | None:
    """Return a topic, or None where there is none of the name."""

    def look() -> Found | None:
        wanted = TopicCollection([name])
        admin = connection.admin
        (future,) = admin().describe_topics(wanted, request_timeout=ANSWER).values()
        try:
            found = future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        replicas = len(found.partitions[0].replicas) if found.partitions else 0
        return Found(str(found.topic_id), len(found.partitions), replicas)

    return connection.ask(f"look up topic {name!r}", look)


def ensure(connection: Connection, topic: Topic, *, creates: bool) -> Found:
    """Return a topic of the program; make it where it is missing and that is wanted."""
    found = describe(connection, topic.name)
    if found is not None:
        for difference in _differences(connection, topic, found):
            logger.warning("topic %r has %s; it stays as it is", topic.name, difference)
        return found
    if not creates:
        msg = (
            f"topic {topic.name!r} does not exist on broker {connection.address} and "
            "auto_create_topics is off.\n"
            f"Fix: create it (millpond topics create {topic.name} --broker "
            f"{connection.address}), or check its name."
        )
        raise TopicError(msg)
    create(connection, topic.name, topic.config)
    for _ in range(200):
        found = describe(connection, topic.name)
        if found is not None:
            return replace(found, is_new=True)
        time.sleep(0.05)
    msg = f"topic {topic.name!r} was created, but broker {connection.address} does not show it."
    raise TopicError(msg + "\nFix: run again; see the broker's log.")


def _differences(connection: Connection, topic: Topic, found: Found) -> list[str]:
    """Return in what a topic is not as the program would have made it."""
    wanted = topic.config
    if wanted == TopicConfig():
        return []
    differences = []
    if found.partitions != wanted.num_partitions:
        differences.append(f"{found.partitions} partition(s), not {wanted.num_partitions}")
    if wanted.replication_factor not in (None, found.replicas):
        differences.append(f"{found.replicas} replica(s), not {wanted.replication_factor}")
    settings = _settings(connection, topic.name) if wanted.extra_config else {}
    return differences + [
        f"{name}={settings[name]}, not {value}"
        for name, value in wanted.extra_config.items()
        if name in settings and _plain(settings[name]) != _plain(value)
    ]


def _plain(setting: Any) -> set[str]:
    """Return what a setting says, however it is written: True or true, lists in any order."""
    return set(str(setting).lower().replace(" ", "").split(","))


def _settings(connection: Connection, name: str) -> dict[str, str]:
    """Return the settings of a topic; none where there is no right to see them."""
    resource = ConfigResource(ResourceType.TOPIC, name)

    def ask() -> dict[str, str]:
        admin = connection.admin
        (future,) = admin().describe_configs([resource], request_timeout=ANSWER).values()
        return {entry.name: entry.value for entry in future.result().values()}

    try:
        return connection.ask(f"look up the settings of topic {name!r}", ask)
    except BrokerError as error:
        logger.debug("%s", error)
        return {}


def limits_of(connection: Connection, name: str) -> Limits:
    """Return what a topic takes of a record; what nobody may see is left open."""
    found = _settings(connection, name)
    # Brokers before Kafka 3.6 have one setting for both; the others say what it means for them.
    both = found.get("message.timestamp.difference.max.ms")
    return Limits(
        sent=connection.largest,
        kept=_number(found.get("max.message.bytes")),
        old=_number(found.get("message.timestamp.before.max.ms", both)),
        ahead=_number(found.get("message.timestamp.after.max.ms", both)),
        has_times=found.get("message.timestamp.type") != "LogAppendTime",
        needs_key="compact" in found.get("cleanup.policy", ""),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def create(connection: Connection, name: str, config: TopicConfig) -> None:
    """Make a topic; one that is there already stays as it is."""
    new = NewTopic(
        name,
        num_partitions=config.num_partitions,
        replication_factor=config.replication_factor or -1,  # -1: what the broker's own default is
        config=dict(config.extra_config or {}),
    )

    def make() -> None:
        (future,) = connection.admin().create_topics([new], request_timeout=ANSWER).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    connection.ask(f"create topic {name!r}", make)


def delete(connection: Connection, name: str) -> None:
    """Delete a topic, and wait until the broker does not show it any more.

    Raises:
        TopicError: there is none.
    """

    def remove() -> bool:
        (future,) = connection.admin().delete_topics([name], request_timeout=ANSWER).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    if not connection.ask(f"delete topic {name!r}", remove):
        msg = f"topic {name!r} does not exist on broker {connection.address}."
        fix = f"check the name: millpond topics ls --broker {connection.address}"
        raise TopicError(f"{msg}\nFix: {fix}")
    for _ in range(200):
        if describe(connection, name) is None:
            return
        time.sleep(0.05)


def offsets_of(
    connection: Connection, name: str, partitions: int, *, oldest: bool, committed: bool = True
) -> Offsets:
    """Return the oldest offset of each partition, or the one after its last committed record."""
    spec = OffsetSpec.earliest() if oldest else OffsetSpec.latest()
    asked = {TopicPartition(name, number): spec for number in range(partitions)}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def ask() -> Offsets:
        futures = connection.admin().list_offsets(
            asked, isolation_level=level, request_timeout=ANSWER
        )
        found = {str(place.partition): f.result().offset for place, f in futures.items()}
        if any(offset < 0 for offset in found.values()):  # what it says when a broker goes away
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return found

    try:
        return connection.ask(f"look up the offsets of topic {name!r}", ask)
    except BrokerError:
        connection.renew()
        raise
