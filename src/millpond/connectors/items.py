"""What an item of a list is as a record: a value, or a tuple with a key and more."""

from __future__ import annotations

from typing import Any

from millpond.arguments.duration import as_int64
from millpond.errors import ConfigError, SerializationError, shown
from millpond.wire.headers import encode_headers

__all__ = ["as_record"]


def as_record(item: Any, now_ms: int) -> tuple[Any, Any, int, bytes | None]:
    """Return key, value, timestamp and encoded headers of an item.

    Tuples of two, three or four are `(key, value[, timestamp[, headers]])`; anything else is a
    value without a key. Before headers, a timestamp of None is `now_ms`.

    >>> as_record(("ann", 1), 1000)
    ('ann', 1, 1000, None)
    """
    if type(item) is not tuple or not 2 <= len(item) <= 4:
        return None, item, now_ms, None
    key, value, timestamp, headers = (*item, None, None)[:4]
    if len(item) == 2 or (len(item) == 4 and timestamp is None):
        timestamp = now_ms
    if type(timestamp) is not int:
        msg = (
            f"a record's timestamp must be an int (milliseconds), got {shown(timestamp)}.\n"
            "Fix: int(moment.timestamp() * 1000). To give a tuple as a value: (key, the tuple)."
        )
        raise ConfigError(msg)
    return key, value, as_int64(timestamp), _encoded(headers)


def _encoded(headers: Any) -> bytes | None:
    try:
        if isinstance(headers, list | dict | None):
            return encode_headers(headers)
    except SerializationError:
        pass
    msg = (
        "a tuple of four is (key, value, timestamp, headers), and headers are a dict or (name, "
        f"bytes) pairs, got {shown(headers)}.\n"
        'Fix: {"name": b"value"}. To give a tuple as a value: (key, the tuple).'
    )
    raise ConfigError(msg)
