"""What the methods of the face take, as types: the words of an option, the functions of a user.

For programs that pass them on, such as `def start(reset: OffsetReset) -> Application`. Options that
belong together are one object: `KafkaOptions`, `SparkOptions`, `StateOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from logging import Logger
from typing import Any, Literal, Self

from millpond.arguments.callsite import here
from millpond.arguments.duration import Duration
from millpond.arguments.quix import ApplicationKeywords
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, shown
from millpond.state.timers import Timer
from millpond.state.view import State

__all__ = [
    "Durability",
    "ErrorCallback",
    "ErrorPolicy",
    "ExpandFunction",
    "ExpandMetadataFunction",
    "ExpandMetadataStateFunction",
    "ExpandStateFunction",
    "FlatKeywords",
    "Format",
    "KafkaOptions",
    "LateCallback",
    "LostRecords",
    "MetadataFunction",
    "MetadataStateFunction",
    "OffsetReset",
    "Persistence",
    "ProcessingGuarantee",
    "Recovery",
    "SparkOptions",
    "StateChange",
    "StateFunction",
    "StateOptions",
    "TimerFunction",
    "TopicFunction",
    "ValueFunction",
    "WindowCallback",
]

OffsetReset = Literal["latest", "earliest", "error"]
ProcessingGuarantee = Literal["exactly-once", "at-least-once"]
LostRecords = Literal["stop", "skip"]
ErrorPolicy = Literal["stop", "dead-letter"]
Recovery = Literal["stop", "auto"]
StateChange = Literal["refuse", "accept"]
Durability = Literal["power", "process"]
Persistence = Literal["directory", "none"]
Format = Literal["json", "bytes", "str", "string", "int", "integer", "double"]
"""The name of a serializer or a deserializer."""

ValueFunction = Callable[[Any], Any]
"""A function of the value."""
StateFunction = Callable[[Any, State], Any]
"""A function of (value, state), for `stateful=True`."""
MetadataFunction = Callable[[Any, Any, int, Any], Any]
"""A function of (value, key, timestamp, headers), for `metadata=True`."""
MetadataStateFunction = Callable[[Any, Any, int, Any, State], Any]
"""A function of (value, key, timestamp, headers, state), for both."""

ExpandFunction = Callable[[Any], Iterable[Any]]
ExpandStateFunction = Callable[[Any, State], Iterable[Any]]
ExpandMetadataFunction = Callable[[Any, Any, int, Any], Iterable[Any]]
ExpandMetadataStateFunction = Callable[[Any, Any, int, Any, State], Iterable[Any]]

TimerFunction = Callable[[Any, State, Timer], Any]
"""A function of (key, state, timer)."""
TopicFunction = Callable[[Any, Any, int, Any], Topic]
"""A function of (value, key, timestamp, headers) that chooses the topic of a record."""
LateCallback = Callable[[Any, Any, int, int, int, int, str, str, int, int], bool]
"""A function of (value, key, timestamp, late_by_ms, start, end, name, topic, partition, offset)."""
WindowCallback = Callable[[Any, Any, Any, int, Any], bool]
"""A function of (aggregated, value, key, timestamp, headers)."""
ErrorCallback = Callable[[Exception, Any, Logger], bool]
"""A function of (error, context, logger)."""


class FlatKeywords(ApplicationKeywords, total=False):
    """Keywords of `Application` for single options of `kafka=`, `spark=` and `state=`."""

    processing_guarantee: ProcessingGuarantee
    consumer_extra_config: dict[str, Any] | None
    producer_extra_config: dict[str, Any] | None
    broker_availability_timeout: float | None
    master: str | None
    spark_config: dict[str, str] | None
    state_ttl: Duration | None
    recover: Recovery
    on_state_change: StateChange
    durability: Durability
    persistence: Persistence


class _Options:
    """Options that belong together; each may also be a keyword of `Application` of its own."""

    @classmethod
    def joined(
        cls, name: str, given: Any, flat: dict[str, Any], keywords: Mapping[str, str]
    ) -> Self:
        """Return the options of an application; take from `flat` those that are theirs.

        Args:
            name: The keyword of the object.
            given: The object; None: there is none.
            flat: Single options by keyword.
            keywords: The field of each keyword.

        Raises:
            ConfigError: it is something else, or an option is given in both ways.
        """
        found = {keywords[key]: flat.pop(key) for key in list(flat) if key in keywords}
        if given is None:
            return cls(**{option: value for option, value in found.items() if value is not None})
        if not isinstance(given, cls):
            msg = f"{name}= takes {cls.__name__}, got {shown(given)} ({here()})."
            raise ConfigError(f"{msg}\nFix: {name}={cls.__name__}(...).")
        if found:
            twice = next(key for key, option in keywords.items() if option in found)
            msg = (
                f"Application() has {name}={cls.__name__}(...), and {twice}= beside it ({here()})."
            )
            raise ConfigError(f"{msg}\nFix: {cls.__name__}({keywords[twice]}=...) only.")
        return given


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(_Options):
    """How an application uses a Kafka broker: `Application(address, kafka=KafkaOptions(...))`.

    >>> KafkaOptions(processing_guarantee="at-least-once").broker_availability_timeout is None
    True

    Args:
        processing_guarantee: For outputs: "exactly-once" (each batch is one transaction) or
            "at-least-once". State is exactly once, always.
        consumer_extra_config: Settings of librdkafka for reading.
        producer_extra_config: Settings of librdkafka for writing.
        broker_availability_timeout: How many seconds a running application waits when the broker is
            away, 0 forever; the same as `ConnectionConfig(patience=...)`. Default: 600.
    """

    processing_guarantee: ProcessingGuarantee = "exactly-once"
    consumer_extra_config: dict[str, Any] = field(default_factory=dict, repr=False)
    producer_extra_config: dict[str, Any] = field(default_factory=dict, repr=False)
    broker_availability_timeout: float | None = None

    @classmethod
    def of(cls, given: Any, flat: dict[str, Any]) -> KafkaOptions:
        """Return the options of `kafka=` and of single keywords."""
        return cls.joined("kafka", given, flat, {f.name: f.name for f in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class SparkOptions(_Options):
    """The Spark that an application runs on: `Application(spark=SparkOptions(...))`.

    >>> SparkOptions(master="local[2]", config={"spark.sql.shuffle.partitions": "2"}).session

    Args:
        master: Any Spark master. Default: `local[*]`.
        session: A SparkSession to use instead of starting Spark. Its settings stay as they are.
        config: Settings of Spark for this application.
    """

    master: str | None = None
    session: Any = field(default=None, repr=False)
    config: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Any, flat: dict[str, Any]) -> SparkOptions:
        """Return the options of `spark=`, which may be a session, and of single keywords."""
        if given is not None and not isinstance(given, SparkOptions):
            given, flat["spark"] = None, given
        keywords = {"master": "master", "spark": "session", "spark_config": "config"}
        return cls.joined("spark", given, flat, keywords)


@dataclass(frozen=True, kw_only=True)
class StateOptions(_Options):
    """How an application keeps its state: `Application(state=StateOptions(...))`.

    >>> StateOptions(ttl=86_400_000, recover="auto").durability
    'power'

    Args:
        ttl: How long state is seen that is set without a `ttl`, by the time of the stream:
            milliseconds or a `timedelta`. Default: forever.
        recover: What happens when files of the state turn out to be damaged: "stop" with an error
            that names them and the command that repairs them, or "auto": go back to the last batch
            that is whole, and go on.
        on_change: What happens when the program has changed so that state would be lost (another
            window length, another name, another key): "refuse" to run, or "accept" that the old
            state is set aside or dropped and the new one starts empty.
        durability: What a batch survives once its outputs can be seen. "power": a power cut; the
            run waits until the local disk has what the batch needs. "process": the death of
            processes; the run does not wait.
        persistence: "directory", or "none": state in a temporary folder that is deleted after
            the run.
    """

    ttl: Duration | None = None
    recover: Recovery = "stop"
    on_change: StateChange = "refuse"
    durability: Durability = "power"
    persistence: Persistence = "directory"

    @classmethod
    def of(cls, given: Any, flat: dict[str, Any]) -> StateOptions:
        """Return the options of `state=` and of single keywords."""
        same = {name: name for name in ("recover", "durability", "persistence")}
        keywords = {"state_ttl": "ttl", "on_state_change": "on_change", **same}
        return cls.joined("state", given, flat, keywords)
