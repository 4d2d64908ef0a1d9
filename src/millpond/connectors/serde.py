"""Record fields to bytes and back: json, bytes, str, int, double.

Takes a name or an object; gives a `Serializer` and a `Deserializer`. A missing field (None) is
a missing field in bytes too: it never reaches a (de)serializer. JSON, Avro and Protobuf are in
`json_serde`, `avro_serde` and `protobuf_serde`.
"""

from __future__ import annotations

import base64
import inspect
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from millpond.arguments.async_functions import refuse_async
from millpond.connectors.json_serde import JSONDeserializer, JSONSerializer
from millpond.connectors.serde_errors import failed
from millpond.errors import ConfigError, SerializationError, shown
from millpond.state.codec import Codec
from millpond.state.plain import from_text, to_text

__all__ = [
    "Deserializer",
    "SerializationContext",
    "Serializer",
    "bound",
    "deserializer",
    "fast",
    "key_form",
    "key_from_text",
    "key_to_text",
    "serializer",
]


def fast(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the C function that a (de)serializer calls, where only errors differ."""
    return getattr(function, "fast", None) or function


class Serializer(Protocol):
    """Gives the bytes of a value that is not None.

    >>> from millpond import Application
    >>> topic = Application(consumer_group="shop").topic("names", value_serializer=str.encode)
    >>> topic.serialize(value="ann").value
    b'ann'
    """

    def __call__(self, value: Any, /) -> bytes: ...


class Deserializer(Protocol):
    """Gives the value of bytes that are not None.

    >>> from millpond import Application
    >>> topic = Application(consumer_group="shop").topic("names", value_deserializer=bytes.decode)
    >>> topic.value_deserializer(b"ann")
    'ann'
    """

    def __call__(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class SerializationContext:
    """What a (de)serializer of (value, ctx), as in Quix Streams, gets to know about the field.

    >>> SerializationContext("clicks", "value").topic
    'clicks'
    """

    topic: str
    field: str
    """"key" or "value"."""
    headers: Any = None
    """Always None here."""


class BytesSerializer:
    """Passes bytes on; text becomes UTF-8."""

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(failed("write as bytes", value, error)) from error
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerializationError(failed("write as bytes", value, "it is not bytes"))


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
            raise SerializationError(failed("write as text", value, "it is not a str"))
        try:
            return value.encode(self._codec)
        except UnicodeEncodeError as error:
            raise SerializationError(failed("write as text", value, error)) from error


class StringDeserializer:
    """Reads UTF-8 text."""

    def __init__(self, codec: str = "utf-8") -> None:
        self._codec = codec

    def __call__(self, data: bytes) -> str:
        try:
            return data.decode(self._codec)
        except UnicodeDecodeError as error:
            raise SerializationError(failed("read as text", data, error)) from error


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
            raise SerializationError(failed(f"write as {self.what}", value, error)) from error


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
            raise SerializationError(failed(f"read as {self.what}", data, error)) from error


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


def key_form(made: Any) -> str:
    """Return how keys are read: the name of the deserializer, "typed" for the codec, or "own"."""
    if isinstance(getattr(made, "__self__", None), Codec):
        return "typed"
    return next((name for name, kind in _DESERIALIZERS.items() if type(made) is kind), "own")


def key_to_text(form: str, key: bytes | None) -> str | None:
    """Return a stored key as text, by the form in which keys are read."""
    if key is None:
        return None
    if form == "typed":
        return to_text(key)
    if form in ("int", "integer", "double"):
        return str(_DESERIALIZERS[form]()(key))
    try:
        return key.decode()
    except UnicodeDecodeError:
        return to_text(Codec().encode(key))


def key_from_text(form: str, text: str | None) -> bytes | None:
    """Return the stored key of a text that `key_to_text` gave."""
    if text is None:
        return None
    if form == "typed":
        return from_text(text)
    if form in ("int", "integer", "double"):
        number = float(text) if form == "double" else int(text)
        return _SERIALIZERS[form]()(number)  # type: ignore[no-any-return]
    if text.startswith('{"$bytes": '):
        return base64.b64decode(json.loads(text)["$bytes"])
    return text.encode()


def bound(made: Any, topic: str, field: str) -> Any:
    """Return a (de)serializer that knows its topic and field, where it wants to know them."""
    bind = getattr(made, "bind", None)
    if bind is not None:
        return bind(topic, field)
    if getattr(made, "split_values", False) is True or getattr(made, "extra_headers", None):
        msg = f"{shown(made)} has split_values or extra_headers, which are not used here."
        fix = "sdf.apply(list, expand=True) gives several records, sdf.set_headers(...) headers"
        raise ConfigError(f"{msg}\nFix: {fix}.")
    return _WithContext(made, SerializationContext(topic, field)) if _wants_context(made) else made


class _WithContext:
    """A (de)serializer of (value, ctx), to be called with the value alone."""

    def __init__(self, made: Callable[[Any, Any], Any], context: SerializationContext) -> None:
        self._made = made
        self._context = context

    def __call__(self, value: Any) -> Any:
        return self._made(value, self._context)


def _wants_context(made: Any) -> bool:
    """Tell whether a (de)serializer cannot be called with one argument, but with two."""
    try:
        parameters = inspect.signature(made)
    except ValueError:
        return False  # a builtin without a signature
    for arguments, answer in ((1, False), (2, True)):
        try:
            parameters.bind(*range(arguments))
        except TypeError:
            continue
        return answer
    msg = f"a (de)serializer is called with (value) or (value, ctx), not so {shown(made)}."
    raise ConfigError(msg + "\nFix: def __call__(self, value): ...")


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
    refuse_async(made, f"a {what}")
    return made
