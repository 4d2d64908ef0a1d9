"""Record fields to bytes and back: json, bytes, str, int, double.

Takes a name or an object; gives a `Serializer` and a `Deserializer`. A missing field (None) is
a missing field in bytes too: it never reaches a (de)serializer. Avro and Protobuf are in
`formats`.
"""

from __future__ import annotations

import base64
import inspect
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle
import msgspec

from millpond.arguments.async_functions import refuse_async
from millpond.connectors.registry import (
    Registered,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    imported,
    registry_for,
    shorter,
)
from millpond.errors import ConfigError, MillpondError, SerializationError, shown
from millpond.state.codec import Codec
from millpond.state.plain import from_text, to_text

__all__ = [
    "Deserializer",
    "JSONDeserializer",
    "JSONSerializer",
    "SerializationContext",
    "Serializer",
    "attempt",
    "bound",
    "deserializer",
    "fast",
    "key_form",
    "key_from_text",
    "key_to_text",
    "serializer",
]

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


def fast(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the C function behind a (de)serializer, where it does the same but for its errors."""
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


class JSONSerializer(Registered):
    """Writes JSON; bytes inside a value become base64 text.

    >>> JSONSerializer()({"user": "ann", "sizes": (1, 2)})
    b'{"user":"ann","sizes":[1,2]}'

    Args:
        dumps: Function that writes a value, such as `json.dumps`. Default: msgspec's.
        schema: JSON schema that values must fit; its draft is that of `$schema`, or 2020-12. It
            needs `pip install 'millpond[jsonschema]'`.
        validator: A validator of the package jsonschema; takes the place of the schema's own.
        schema_registry_client_config: Register the schema there, and write its id in front.
        schema_registry_serialization_config: How that is done.
    """

    def __init__(
        self,
        dumps: Callable[[Any], Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        validator: Any = None,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        self._dumps: Callable[[Any], Any] | None = dumps
        self._check = _check_for(schema, validator)
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=True
        )
        if self._registry is not None and schema is None:
            msg = "JSONSerializer(schema_registry_client_config=...) has no schema to register."
            raise ConfigError(msg + '\nFix: JSONSerializer(schema={"title": ...}, ...).')
        self._schema = schema

    @property
    def fast(self) -> Callable[[Any], bytes] | None:
        return None if self._dumps or self._check or self._registry else _encode_json

    def __call__(self, value: Any) -> bytes:
        return attempt("write as json", self._write, value, _fix_writing)  # type: ignore[no-any-return]

    def _write(self, value: Any) -> Any:
        if self._check is not None:
            self._check(value)
        if self._registry is not None:
            return self._registry.write(self._confluent, value)
        if self._dumps is None:
            return _encode_json(value)
        data = self._dumps(value)
        return data.encode() if isinstance(data, str) else data

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        return imported("confluent_kafka.schema_registry.json_schema", "registry").JSONSerializer(
            json.dumps(self._schema),
            client,
            # The schema was checked above, unless it is the registry's.
            conf={**settings.for_writing(), "validate": settings.use_latest_version},
            json_encode=self._dumps or _encode_json,
        )


class JSONDeserializer(Registered):
    """Reads JSON.

    >>> JSONDeserializer()(b'{"user": "ann"}')
    {'user': 'ann'}

    Args:
        loads: Function that reads bytes, such as `json.loads`. Default: msgspec's.
        schema: JSON schema that values must fit; its draft is that of `$schema`, or 2020-12. It
            needs `pip install 'millpond[jsonschema]'`.
        validator: A validator of the package jsonschema; takes the place of the schema's own.
        schema_registry_client_config: The registry with which the bytes were written. Without a
            schema here, values must fit the one that they were written with.
        schema_registry_serialization_config: How it is asked.
    """

    def __init__(
        self,
        loads: Callable[[bytes], Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        validator: Any = None,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        self._loads: Callable[[bytes], Any] | None = loads
        self._check = _check_for(schema, validator)
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=False
        )

    @property
    def fast(self) -> Callable[[bytes], Any] | None:
        return None if self._loads or self._check or self._registry else _decode_json

    def __call__(self, data: bytes) -> Any:
        return attempt("read as json", self._read, data, _fix_reading)

    def _read(self, data: bytes) -> Any:
        if self._registry is not None:
            value = self._registry.read(self._confluent, data)
        else:
            value = (self._loads or _decode_json)(data)
        if self._check is not None:
            self._check(value)
        return value

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        is_checked = self._check is None or settings.use_latest_version
        return imported("confluent_kafka.schema_registry.json_schema", "registry").JSONDeserializer(
            None,
            schema_registry_client=client,
            conf={**settings.for_reading(), "validate": is_checked},
            json_decode=self._loads or _decode_json,
        )


class _Check:
    """Refuses values that a JSON schema does not allow."""

    def __init__(self, schema: Mapping[str, Any] | None, validator: Any) -> None:
        self._given = schema, validator
        self._validator = _checked_validator(schema, validator)
        self._error = imported("jsonschema", "jsonschema").ValidationError

    def __call__(self, value: Any) -> None:
        try:
            self._validator.validate(value)
        except self._error as error:
            msg = (
                f"{shown(value)} does not fit the JSON schema: at {error.json_path}, "
                f"{shorter(error.message)}.\nFix: correct the producer, or change the schema."
            )
            raise SerializationError(msg) from None  # its text has the whole value and schema

    # A validator holds functions that pickle does not take; a schema travels as it is.
    def __reduce__(self) -> tuple[Any, ...]:
        schema, validator = self._given
        if validator is None:
            return _Check, self._given
        return _thawed_check, (schema, cloudpickle.dumps(validator))


def _thawed_check(schema: Mapping[str, Any] | None, validator: bytes) -> _Check:
    return _Check(schema, cloudpickle.loads(validator))


def _check_for(schema: Mapping[str, Any] | None, validator: Any) -> _Check | None:
    return None if schema is None and validator is None else _Check(schema, validator)


def _checked_validator(schema: Any, validator: Any) -> Any:
    jsonschema = imported("jsonschema", "jsonschema")
    newest = jsonschema.Draft202012Validator
    try:
        if validator is not None:
            validator.check_schema(validator.schema)
            return validator
        kind = jsonschema.validators.validator_for(schema, default=newest)
        kind.check_schema(schema)
    except (AttributeError, TypeError, jsonschema.SchemaError) as error:
        msg = f"this is no JSON schema: {shown(schema or validator)} ({shorter(error)})."
        raise ConfigError(msg + '\nFix: schema={"type": "object", ...}.') from error
    # With a registry of its own a validator fetches nothing that a schema refers to.
    return kind(schema, registry=imported("jsonschema_specifications", "jsonschema").REGISTRY)


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
                raise SerializationError(_failed("write as bytes", value, error)) from error
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


def _fix(given: Any) -> str:
    return "choose the (de)serializer that fits this topic, or fix the producer"


def _fix_writing(value: Any) -> str:
    return (
        "turn the value into what JSON has before it is written, such as int(n), str(x) or a dict "
        "with text as keys, or pass value_serializer=JSONSerializer(dumps=a_function_of_yours)"
    )


def _fix_reading(data: bytes) -> str:
    if b"NaN" in data or b"Infinity" in data:
        read = "value_deserializer=JSONDeserializer(loads=json.loads)"
        return f"{read}, which reads NaN and Infinity, or fix the producer: JSON has neither"
    return _fix(data)


def attempt(
    action: str,
    function: Callable[[Any], Any],
    given: Any,
    fix: Callable[[Any], str] = _fix,
) -> Any:
    """Call a function of another library; whatever it raises is about the value it was given."""
    try:
        return function(given)
    except MillpondError:
        raise
    except Exception as error:
        raise SerializationError(_failed(action, given, error, fix(given))) from error


def _failed(action: str, value: object, reason: object, fix: str = "") -> str:
    return f"cannot {action}: {shown(value)} ({shorter(reason)}).\nFix: {fix or _fix(value)}."
