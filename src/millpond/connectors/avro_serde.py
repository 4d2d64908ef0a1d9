"""Avro: values to bytes and back, by a schema that travels to the workers."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from millpond.connectors.registry import (
    Registered,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    imported,
    refuse_with_registry,
    registry_for,
    shorter,
)
from millpond.connectors.serde_errors import attempt
from millpond.errors import ConfigError, SerializationError, shown

__all__ = ["AvroDeserializer", "AvroSerializer"]


class AvroSerializer(Registered):
    r"""Writes Avro. Needs `pip install 'millpond[avro]'`.

    >>> write = AvroSerializer({"type": "record", "name": "Click", "fields": [
    ...     {"name": "user", "type": "string"}, {"name": "count", "type": "long"}]})
    >>> write({"user": "ann", "count": 2})
    b'\x06ann\x04'

    Args:
        schema: The schema, as a dict, a list, the name of a type, or JSON text.
        strict: Refuse records that lack a field of the schema, or have another.
        strict_allow_default: Likewise, but a field that has a default may be missing.
        disable_tuple_notation: Do not take a tuple for `(name of the record, record)`.
        schema_registry_client_config: Register the schema there, and write its id in front.
        schema_registry_serialization_config: How that is done.
    """

    def __init__(
        self,
        schema: Any,
        strict: bool = False,
        strict_allow_default: bool = False,
        disable_tuple_notation: bool = False,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        if schema is None:
            msg = "AvroSerializer needs a schema."
            raise ConfigError(msg + "\nFix: AvroSerializer(schema).")
        self._schema, self._text = _parsed(schema)
        self._options = {"strict": strict, "strict_allow_default": strict_allow_default}
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=True
        )
        if self._registry is None:
            self._options["disable_tuple_notation"] = disable_tuple_notation
        else:
            refuse_with_registry(disable_tuple_notation=disable_tuple_notation)
        self._write_with = imported("fastavro", "avro").schemaless_writer

    def __call__(self, value: Any) -> bytes:
        return attempt("write as avro", self._write, value)  # type: ignore[no-any-return]

    def _write(self, value: Any) -> Any:
        if self._registry is not None:
            return self._registry.write(self._confluent, value)
        data = BytesIO()
        self._write_with(data, self._schema, value, **self._options)
        return data.getvalue()

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        strict = {f"validate.{name.replace('_', '.')}": v for name, v in self._options.items() if v}
        return imported("confluent_kafka.schema_registry.avro", "registry").AvroSerializer(
            client, self._text, conf={**settings.for_writing(), **strict}
        )


class AvroDeserializer(Registered):
    r"""Reads Avro. Needs `pip install 'millpond[avro]'`.

    >>> read = AvroDeserializer({"type": "record", "name": "Click", "fields": [
    ...     {"name": "user", "type": "string"}, {"name": "count", "type": "long"}]})
    >>> read(b"\x06ann\x04")
    {'user': 'ann', 'count': 2}

    Args:
        schema: The schema with which the bytes were written. With a registry, which knows that
            one, it is the schema as which they are read, and may be left out.
        reader_schema: The schema as which they are read, where it is another.
        return_record_name: Give `(name, record)` for a record that comes from a union.
        return_record_name_override: Likewise, but only where the union has several records.
        return_named_type: Give `(name, value)` for any named type that comes from a union.
        return_named_type_override: Likewise, but only where the union has several named types.
        handle_unicode_errors: What is done about text that is not UTF-8, as in `bytes.decode`.
        schema_registry_client_config: The registry with which the bytes were written.
        schema_registry_serialization_config: How it is asked.
    """

    def __init__(
        self,
        schema: Any = None,
        reader_schema: Any = None,
        return_record_name: bool = False,
        return_record_name_override: bool = False,
        return_named_type: bool = False,
        return_named_type_override: bool = False,
        handle_unicode_errors: str = "strict",
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=False
        )
        if schema is None and self._registry is None:
            msg = "AvroDeserializer needs the schema with which the bytes were written."
            raise ConfigError(msg + "\nFix: AvroDeserializer(schema), or name a registry.")
        self._read_with = imported("fastavro", "avro").schemaless_reader
        self._schema, text = _parsed(schema)
        self._reader_schema, reader_text = _parsed(reader_schema)
        self._text = reader_text or text
        self._options = {
            "return_record_name": return_record_name,
            "return_record_name_override": return_record_name_override,
            "return_named_type": return_named_type,
            "return_named_type_override": return_named_type_override,
            "handle_unicode_errors": handle_unicode_errors,
        }
        if self._registry is not None:
            refuse_with_registry(
                return_record_name_override=return_record_name_override,
                return_named_type=return_named_type,
                return_named_type_override=return_named_type_override,
                handle_unicode_errors=handle_unicode_errors != "strict",
            )

    def __call__(self, data: bytes) -> Any:
        return attempt("read as avro", self._read, data)

    def _read(self, data: bytes) -> Any:
        if self._registry is not None:
            return self._registry.read(self._confluent, data)
        stream = BytesIO(data)
        value = self._read_with(stream, self._schema, self._reader_schema, **self._options)
        # Avro has no marks: bytes of another schema can look like a value, with something after.
        if stream.tell() != len(data):
            msg = (
                f"cannot read as avro: {shown(data)} was written with another schema: "
                f"{len(data) - stream.tell()} of {len(data)} bytes are left over.\n"
                "Fix: give the schema of the producer; if it writes with a registry, "
                "schema_registry_client_config."
            )
            raise SerializationError(msg)
        return value

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        return imported("confluent_kafka.schema_registry.avro", "registry").AvroDeserializer(
            client,
            self._text,
            return_record_name=self._options["return_record_name"],
            conf=settings.for_reading(),
        )


def _parsed(schema: Any) -> tuple[Any, str | None]:
    """Return a schema as fastavro wants it, and its text."""
    fastavro = imported("fastavro", "avro")
    if schema is None:
        return None, None
    try:
        if isinstance(schema, str) and schema.strip()[:1] in ("{", "[", '"'):
            schema = json.loads(schema)
        parsed = fastavro.parse_schema(schema)
        if isinstance(schema, dict):  # without fastavro's own marks, if it was parsed before
            schema = {name: v for name, v in schema.items() if not name.startswith("__")}
        return parsed, json.dumps(schema)
    except Exception as error:
        msg = f"this is no Avro schema: {shown(schema)} ({shorter(error)}).\n"
        msg += 'Fix: schema={"type": "record", "name": ..., "fields": [...]}.'
        raise ConfigError(msg) from error
