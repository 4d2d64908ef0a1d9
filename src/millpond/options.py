"""What the methods of the face take, as types: the words of an option, the functions of a user.

For programs that pass them on, such as `def start(reset: OffsetReset) -> Application`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import Logger
from typing import Any, Literal

from millpond.connectors.topic import Topic
from millpond.state.view import State, Timer

__all__ = [
    "Durability",
    "ErrorCallback",
    "ErrorPolicy",
    "ExpandFunction",
    "ExpandMetadataFunction",
    "ExpandMetadataStateFunction",
    "ExpandStateFunction",
    "Format",
    "LateCallback",
    "LostRecords",
    "MetadataFunction",
    "MetadataStateFunction",
    "OffsetReset",
    "Persistence",
    "ProcessingGuarantee",
    "Recovery",
    "StateChange",
    "StateFunction",
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
