"""A topic: a name, how its records are read and written, and how it is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.windows import LIVE, Clocking
from millpond.connectors.serde import Deserializer, Serializer, bound, deserializer, serializer
from millpond.errors import ConfigError, TopicError, shown
from millpond.record import Headers, Record

__all__ = ["TimestampType", "Topic", "TopicConfig", "check_name", "no_offsets"]

TimestampExtractor = Callable[[Any, Headers | None, int, int], int]


class TimestampType:
    """What a broker's timestamp means; the fourth argument of a timestamp extractor.

    >>> TimestampType.CREATE_TIME
    1
    """

    NOT_AVAILABLE, CREATE_TIME, LOG_APPEND_TIME = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How a topic is made where it does not exist.

    >>> TopicConfig(num_partitions=4).num_partitions
    4

    Args:
        num_partitions: The number of partitions.
        replication_factor: The number of copies in Kafka. Default: as the broker has it set.
        extra_config: Settings of a Kafka topic, by their own names.
    """

    num_partitions: int = 1
    replication_factor: int | None = None
    extra_config: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("num_partitions", "replication_factor"):
            value = getattr(self, name)
            if value is None and name == "replication_factor":
                continue
            if type(value) is not int or value < 1:
                msg = f"TopicConfig({name}=...) must be an int of 1 or more, got {shown(value)}."
                raise ConfigError(msg + f"\nFix: {name}=1.")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the application. Made by `Application.topic()`.

    >>> from millpond import Application
    >>> Application(consumer_group="shop").topic("clicks").name
    'clicks'
    """

    kind: ClassVar[Literal["topic"]] = "topic"

    name: str
    value_deserializer: Deserializer
    key_deserializer: Deserializer
    value_serializer: Serializer
    key_serializer: Serializer
    timestamp_extractor: TimestampExtractor | None = None
    config: TopicConfig = field(default_factory=TopicConfig)
    clocking: Clocking = LIVE

    def __str__(self) -> str:
        return self.name

    def serialize(
        self,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Return a record whose key and value are as they are written to the topic.

        >>> from millpond import Application
        >>> clicks = Application(consumer_group="shop").topic("clicks")
        >>> clicks.serialize(key="ann", value={"n": 1}).value
        b'{"n":1}'

        Args:
            key: The key, as a program has it.
            value: The value, as a program has it.
            headers: A dict, (name, bytes) pairs, or None.
            timestamp_ms: The time of the record.
        """
        key = None if key is None else self.key_serializer(key)
        value = None if value is None else self.value_serializer(value)
        return Record(key, value, timestamp_ms, headers, self.name)  # type: ignore[arg-type]

    def deserialize(self, message: Any) -> Record:
        """Return a record with key and value as they are read from the topic.

        >>> from millpond import Application
        >>> clicks = Application(consumer_group="shop").topic("clicks")
        >>> clicks.deserialize(Record(b"ann", b'{"n":1}', 0)).value
        {'n': 1}

        Args:
            message: A message of `confluent_kafka`, or a `Record` whose key and value are bytes.
        """
        if callable(getattr(message, "value", None)):
            key, value, headers = message.key(), message.value(), message.headers()
            place = (message.topic(), message.partition(), message.offset())
            message = Record(key, value, message.timestamp()[1], headers, *place)
        key, value = message.key, message.value
        return message._replace(  # type: ignore[no-any-return]
            key=self.key_deserializer(key) if isinstance(key, bytes) else key,
            value=self.value_deserializer(value) if isinstance(value, bytes) else value,
        )


def make_topic(
    name: str,
    value_deserializer: Any = "json",
    key_deserializer: Any = "bytes",
    value_serializer: Any = "json",
    key_serializer: Any = "bytes",
    config: TopicConfig | None = None,
    timestamp_extractor: TimestampExtractor | None = None,
    clocking: Clocking | None = None,
) -> Topic:
    """Return a topic from names or objects, checked."""
    check_name(name, "topic")
    if timestamp_extractor is not None and not callable(timestamp_extractor):
        msg = (
            f"timestamp_extractor must be a function, got {shown(timestamp_extractor)}.\n"
            "Fix: def extract(value, headers, timestamp, timestamp_type): return milliseconds."
        )
        raise ConfigError(msg)
    if config is not None and not isinstance(config, TopicConfig):
        msg = f"config must be a TopicConfig, got {shown(config)}."
        raise ConfigError(msg + "\nFix: config=TopicConfig(num_partitions=4), by name.")
    refuse_async(timestamp_extractor, "timestamp_extractor=")
    return Topic(
        name=name,
        value_deserializer=bound(deserializer(value_deserializer), name, "value"),
        key_deserializer=bound(deserializer(key_deserializer), name, "key"),
        value_serializer=bound(serializer(value_serializer), name, "value"),
        key_serializer=bound(serializer(key_serializer), name, "key"),
        timestamp_extractor=timestamp_extractor,
        config=config or TopicConfig(),
        clocking=clocking or LIVE,
    )


def no_offsets(topic: str) -> TopicError:
    """Return what is raised where a group has no place in a topic and may not choose one."""
    return TopicError(
        f"this consumer group has no offsets for topic {topic!r} and auto_offset_reset is "
        '"error".\nFix: choose "earliest" or "latest" for its first run.'
    )


def check_name(name: object, what: str) -> None:
    """Refuse names that Kafka, or a file system, would refuse or that could leave their folder."""
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) and name.strip("."):
        return
    msg = (
        f"{shown(name)} cannot be the name of a {what}.\n"
        "Fix: use 1 to 200 letters, digits, '.', '_' and '-'."
    )
    raise ConfigError(msg)
