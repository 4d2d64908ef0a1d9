"""The one shape that flows, and the place a record came from.

A record is (value, key, timestamp, headers); inside a stage these travel as four arguments,
not as an object. `Record` is what sinks, consumers and tests see.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from millpond.arguments.hints import missing
from millpond.errors import MillpondError

__all__ = ["Headers", "MessageContext", "Record", "current_context", "message_context"]

Headers = list[tuple[str, bytes]]

NOWHERE = -1
"""The partition of what is no record: a timer, or a window that closes."""


class Record(NamedTuple):
    """One record as sinks, consumers and tests see it.

    >>> Record("ann", {"page": "/"}, 5_000).value
    {'page': '/'}
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None = None
    topic: str = ""
    partition: int = 0
    offset: int = -1

    if not TYPE_CHECKING:  # type: ignore[misc]

        def __getattr__(self, name: str) -> Any:
            raise missing("a record", name, self._fields, _HINTS)


_HINTS = {
    "error": "poll() raises what goes wrong; a record is (key, value, timestamp, headers, ...), "
    "attributes and not methods: record.value.",
    "timestamp_ms": "record.timestamp.",
    "latency": "record.timestamp is when it was written.",
}


@dataclass(frozen=True, slots=True)
class MessageContext:
    """Where the record that is being processed came from. Returned by `message_context`.

    >>> MessageContext("clicks", partition=0, offset=12).offset
    12
    """

    topic: str
    partition: int
    offset: int
    size: int = 0
    """Bytes of the record's value: as it was read, or as it moved after `group_by`."""


current_context: ContextVar[Callable[[], MessageContext] | None] = ContextVar(
    "millpond_context", default=None
)
"""Says where the record came from that is being processed; None: where there is none."""


def message_context() -> MessageContext:
    """Return topic, partition, offset and size of the record being processed.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().apply(lambda value: message_context().offset), ["a", "b"])
    [0, 1]

    Raises:
        MillpondError: outside of a function that Millpond calls for a record.
    """
    context = current_context.get()
    if context is None:
        msg = (
            "message_context() was called where no record is being processed.\n"
            "Fix: call it inside a function given to apply, update, filter or the like."
        )
        raise MillpondError(msg)
    return context()
