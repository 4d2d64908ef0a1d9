"""JSON: values to bytes and back, with a schema or a schema registry where that is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import msgspec

from millpond.connectors.registry import (
    Registered,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    imported,
    registry_for,
    shorter,
)
from millpond.connectors.serde_errors import attempt, fix_of
from millpond.errors import ConfigError, SerializationError, shown

__all__ = ["JSONDeserializer", "JSONSerializer"]

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


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


def _fix_writing(value: Any) -> str:
    return (
        "turn the value into what JSON has before it is written, such as int(n), str(x) or a dict "
        "with text as keys, or pass value_serializer=JSONSerializer(dumps=a_function_of_yours)"
    )


def _fix_reading(data: bytes) -> str:
    if b"NaN" in data or b"Infinity" in data:
        read = "value_deserializer=JSONDeserializer(loads=json.loads)"
        return f"{read}, which reads NaN and Infinity, or fix the producer: JSON has neither"
    return fix_of(data)
