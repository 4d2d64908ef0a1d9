"""Record fields to bytes and back: json, bytes, str, int, double.

Takes a name or an object; gives a `Serializer` and a `Deserializer`. A missing field (None) is
a missing field in bytes too: it never reaches a (de)serializer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from millpond.errors import ConfigError, SerializationError, shown

__all__ = ["Deserializer", "Serializer", "deserializer", "fast", "serializer"]


def fast(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the C function behind a (de)serializer, where it does the same but for its errors."""
    return getattr(function, "fast", None) or function


class Serializer(Protocol):
    """Gives the bytes of a value that is not None."""

    def __call__(self, value: Any) -> bytes: ...


class Deserializer(Protocol):
    """Gives the value of bytes that are not None."""

    def __call__(self, data: bytes) -> Any: ...


class JSONSerializer:
    """Writes JSON; bytes inside a value become base64 text."""

    def __init__(self, dumps: Callable[[Any], Any] | None = None) -> None:
        self._dumps = dumps
        self._encode = msgspec.json.Encoder().encode
        self.fast = self._encode if dumps is None else None

    def __call__(self, value: Any) -> bytes:
        try:
            if self._dumps is None:
                return self._encode(value)
            data = self._dumps(value)
            return data.encode() if isinstance(data, str) else data
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise SerializationError(_failed("write as json", value, error)) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return JSONSerializer, (self._dumps,)


class JSONDeserializer:
    """Reads JSON."""

    def __init__(self, loads: Callable[[bytes], Any] | None = None) -> None:
        self._loads = loads
        self._decode: Callable[[bytes], Any] = loads or msgspec.json.Decoder().decode
        self.fast = self._decode if loads is None else None

    def __call__(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except ValueError as error:
            raise SerializationError(_failed("read as json", data, error)) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return JSONDeserializer, (self._loads,)


class BytesSerializer:
    """Passes bytes on."""

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerializationError(_failed("write as bytes", value, "it is not bytes"))


class BytesDeserializer:
    """Passes bytes on."""

    def __call__(self, data: bytes) -> bytes:
        return data


class StringSerializer:
    """Writes text as UTF-8."""

    def __init__(self, codec: str = "utf-8") -> None:
        self._codec = codec

    def __call__(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(_failed("write as text", value, "it is not a str"))
        try:
            return value.encode(self._codec)
        except UnicodeEncodeError as error:
            raise SerializationError(_failed("write as text", value, error)) from error


class StringDeserializer:
    """Reads UTF-8 text."""

    def __init__(self, codec: str = "utf-8") -> None:
        self._codec = codec

    def __call__(self, data: bytes) -> str:
        try:
            return data.decode(self._codec)
        except UnicodeDecodeError as error:
            raise SerializationError(_failed("read as text", data, error)) from error


class _Packed:
    format: str
    what: str

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class IntegerSerializer(_Packed):
    """Writes four bytes, most significant first, as Kafka's own integer serializer."""

    format, what = ">i", "an int of 32 bits"

    def __call__(self, value: Any) -> bytes:
        try:
            return struct.pack(self.format, value)
        except struct.error as error:
            raise SerializationError(_failed(f"write as {self.what}", value, error)) from error


class DoubleSerializer(IntegerSerializer):
    """Writes eight bytes, as Kafka's own double serializer."""

    format, what = ">d", "a double"


class IntegerDeserializer(_Packed):
    """Reads four bytes, most significant first."""

    format, what = ">i", "an int of 32 bits"

    def __call__(self, data: bytes) -> Any:
        try:
            return struct.unpack(self.format, data)[0]
        except struct.error as error:
            raise SerializationError(_failed(f"read as {self.what}", data, error)) from error


class DoubleDeserializer(IntegerDeserializer):
    """Reads eight bytes."""

    format, what = ">d", "a double"


_SERIALIZERS: dict[str, type] = {
    "json": JSONSerializer,
    "bytes": BytesSerializer,
    "str": StringSerializer,
    "string": StringSerializer,
    "int": IntegerSerializer,
    "integer": IntegerSerializer,
    "double": DoubleSerializer,
}
_DESERIALIZERS: dict[str, type] = {
    "json": JSONDeserializer,
    "bytes": BytesDeserializer,
    "str": StringDeserializer,
    "string": StringDeserializer,
    "int": IntegerDeserializer,
    "integer": IntegerDeserializer,
    "double": DoubleDeserializer,
}


def serializer(named: str | type | Serializer) -> Serializer:
    """Return the serializer of a name, a class or an object."""
    return _resolve(named, _SERIALIZERS, "serializer")  # type: ignore[no-any-return]


def deserializer(named: str | type | Deserializer) -> Deserializer:
    """Return the deserializer of a name, a class or an object."""
    return _resolve(named, _DESERIALIZERS, "deserializer")  # type: ignore[no-any-return]


def _resolve(named: Any, known: dict[str, type], what: str) -> Any:
    if isinstance(named, str):
        if named in known:
            return known[named]()
        msg = (
            f"there is no {what} named {named!r}.\nFix: use one of {', '.join(known)}, or a class."
        )
        raise ConfigError(msg)
    made = named() if isinstance(named, type) else named
    if not callable(made):
        msg = (
            f"a {what} is called with one argument, but {shown(made)} cannot be called.\n"
            f"Fix: pass a name ({', '.join(known)}), or an object with __call__."
        )
        raise ConfigError(msg)
    return made


def _failed(action: str, value: object, reason: object) -> str:
    return (
        f"cannot {action}: {shown(value)} ({reason}).\n"
        "Fix: choose the (de)serializer that fits this topic, or mend the producer."
    )
