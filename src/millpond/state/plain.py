"""Stored values as JSON, and back, without the types of a program.

Takes what the codec wrote; gives what JSON can say: a value that it cannot say is a dict of one
name that begins with `$`, as in `{"$tuple": [1, 2]}` or `{"$Point": {"x": 1}}`. So state can be
looked at, exported and edited where only its files are.

>>> from millpond.state.codec import Codec
>>> to_plain(Codec().encode((1, b"x")))
{'$tuple': [1, {'$bytes': 'eA=='}]}
>>> Codec().decode(from_plain({"$tuple": [1, {"$bytes": "eA=="}]}))
(1, b'x')
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any
from uuid import UUID

import msgspec
from msgspec.msgpack import Ext

from millpond.errors import ValueTypeError, shown
from millpond.state import codec as kinds

__all__ = ["from_plain", "from_text", "to_plain", "to_text"]

_NAMES = {
    kinds.TUPLE: "$tuple",
    kinds.SET: "$set",
    kinds.FROZENSET: "$frozenset",
    kinds.PAIRS: "$pairs",
    kinds.DATETIME: "$datetime",
    kinds.DATE: "$date",
    kinds.TIME: "$time",
    kinds.TIMEDELTA: "$timedelta",
    kinds.DECIMAL: "$decimal",
}
_CODES = {name: code for code, name in _NAMES.items()}
_REGISTERED = {kinds.ENUM: "enum", kinds.DATACLASS: "", kinds.STRUCT: "struct", kinds.FLAG: "flag"}

# Whole numbers beyond this are not the same in every reader of JSON; ours keeps them as text.
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def to_plain(data: bytes | memoryview) -> Any:
    """Return encoded bytes as something that JSON can say."""
    return _shown(_decode(data))


def from_plain(value: Any) -> bytes:
    """Return the bytes of what `to_plain` gave.

    Raises:
        ValueTypeError: for a `$` name that is not known.
    """
    return _encode(_packed(value))


def to_text(data: bytes) -> str:
    """Return encoded bytes as one word: text as it is, unless that reads like something else.

    >>> from millpond.state.codec import Codec
    >>> [to_text(Codec().encode(value)) for value in ("alice", "5", 5, (1, 2))]
    ['alice', '"5"', '5', '{"$tuple": [1, 2]}']
    """
    plain = to_plain(data)
    if isinstance(plain, str) and not _is_json(plain):
        return plain
    return json.dumps(plain)


def from_text(text: str) -> bytes:
    """Return the bytes of what `to_text` gave."""
    return from_plain(json.loads(text) if _is_json(text) else text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _shown(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if kind is list:
        return [_shown(item) for item in value]
    if kind is dict:
        shown = {key: _shown(item) for key, item in value.items()}
        # A dict of the user's that looks like one of ours is marked as what it is.
        return {"$dict": shown} if _is_marked(shown) else shown
    if kind is Ext:
        return _shown_ext(value.code, value.data)
    return value


def _shown_ext(code: int, data: Any) -> Any:
    if code == kinds.BIGINT:
        return {"$int": str(int.from_bytes(data, "big", signed=True))}
    if code == kinds.UUID_CODE:
        return {"$uuid": str(UUID(bytes=bytes(data)))}
    content = _decode(data)
    if code in _NAMES:
        return {_NAMES[code]: _shown(content)}
    if code in _REGISTERED:
        name, fields = content
        mark = _REGISTERED[code]
        return {f"${mark}:{name}" if mark else f"${name}": _shown(fields)}
    return {f"$ext:{code}": base64.b64encode(bytes(data)).decode()}


def _is_marked(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _packed(value: Any) -> Any:
    kind = type(value)
    if kind is int and not _INT_MIN <= value <= _INT_MAX:
        return _big(value)
    if kind is list:
        return [_packed(item) for item in value]
    if kind is dict:
        if _is_marked(value):
            return _packed_mark(*next(iter(value.items())))
        return {key: _packed(item) for key, item in value.items()}
    return value


def _packed_mark(mark: str, content: Any) -> Any:
    if mark == "$bytes":
        return base64.b64decode(content)
    if mark == "$float":
        return float(content)
    if mark == "$dict":
        return {key: _packed(item) for key, item in content.items()}
    if mark == "$int":
        return _big(int(content))
    if mark == "$uuid":
        return Ext(kinds.UUID_CODE, UUID(content).bytes)
    if mark in _CODES:
        packed = _packed(content)
        if mark in ("$set", "$frozenset"):  # in the one order in which the codec writes them
            packed = sorted(packed, key=_encode)
        return Ext(_CODES[mark], _encode(packed))
    if mark.startswith("$ext:"):
        return Ext(int(mark.removeprefix("$ext:")), base64.b64decode(content))
    kind, _, name = mark[1:].rpartition(":")
    codes = {known: code for code, known in _REGISTERED.items()}
    if kind in codes and (name.isidentifier() or "." in name):
        return Ext(codes[kind], _encode([name, _packed(content)]))
    msg = f"{shown({mark: content})} is no value.\nFix: {{'$dict': ...}} for a dict with that name."
    raise ValueTypeError(msg)


def _big(value: int) -> Any:
    if _INT_MIN <= value <= _INT_MAX:
        return value
    return Ext(kinds.BIGINT, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
