"""Headers to bytes and back: a list of (name, bytes) pairs, or nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from millpond.errors import SerializationError, shown
from millpond.record import Headers

__all__ = ["decode_headers", "encode_headers"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]]).decode


def encode_headers(headers: Any) -> bytes | None:
    """Return the bytes of headers given as pairs or as a dict; text values become UTF-8."""
    if not headers and isinstance(headers, list | tuple | dict | None):
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    try:
        return _encode(
            [(_name(n), v.encode() if isinstance(v, str) else _bytes(v)) for n, v in pairs]
        )
    except (TypeError, ValueError) as error:
        msg = (
            f"headers must be (name, bytes) pairs, got {shown(headers)}.\n"
            'Fix: [("name", b"value")].'
        )
        raise SerializationError(msg) from error


def decode_headers(data: bytes | None) -> Headers | None:
    """Return the pairs, or None."""
    return None if data is None else _decode(data)  # type: ignore[return-value]


def _name(name: Any) -> str:
    if isinstance(name, str):
        return name
    raise TypeError(name)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(value)
