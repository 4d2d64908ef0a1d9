"""Protobuf: messages to bytes and back.

What travels to the workers are descriptors: the modules that protoc has written are not needed
there.
"""

from __future__ import annotations

from typing import Any

from millpond.connectors.registry import (
    Registered,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    imported,
    refuse_with_registry,
    registry_for,
)
from millpond.connectors.serde_errors import attempt
from millpond.errors import ConfigError, shown

__all__ = ["ProtobufDeserializer", "ProtobufSerializer"]


class ProtobufSerializer(Registered):
    r"""Writes Protobuf, from messages or from dicts in protobuf's JSON form.

    >>> from google.protobuf.api_pb2 import Mixin
    >>> ProtobufSerializer(Mixin)({"name": "acl", "root": "v1"})
    b'\n\x03acl\x12\x02v1'

    Args:
        msg_type: The class that protoc has written.
        deterministic: Give the same bytes for the same message, whatever the order in its maps.
        ignore_unknown_fields: Leave out what a dict has and the message has not.
        schema_registry_client_config: Register the schema there, and write its id in front.
        schema_registry_serialization_config: How that is done.
    """

    def __init__(
        self,
        msg_type: Any,
        deterministic: bool = False,
        ignore_unknown_fields: bool = False,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        from google.protobuf import json_format

        self._class = _MessageClass(msg_type)
        self._deterministic = deterministic
        self._ignore_unknown_fields = ignore_unknown_fields
        self._parse = json_format.ParseDict
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=True
        )
        if self._registry is not None:
            refuse_with_registry(deterministic=deterministic)

    def __call__(self, value: Any) -> bytes:
        return attempt("write as protobuf", self._write, value)  # type: ignore[no-any-return]

    def _write(self, value: Any) -> Any:
        if not isinstance(value, self._class.type):
            value = self._message(value)
        if self._registry is not None:
            return self._registry.write(self._confluent, value)
        return value.SerializeToString(deterministic=self._deterministic)

    def _message(self, value: Any) -> Any:
        """Return a message from its JSON form, or from one of another class of this name."""
        wanted, kind = self._class.type.DESCRIPTOR.full_name, self._class.type
        if getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) == wanted:
            return kind.FromString(value.SerializeToString())
        # Some of protobuf's own types are texts or lists in JSON.
        if isinstance(value, dict) or wanted.startswith("google.protobuf."):
            unknown = self._ignore_unknown_fields
            return self._parse(value, kind(), ignore_unknown_fields=unknown)
        msg = f"it must be a {wanted} or a dict, not of type {type(value).__name__}"
        raise TypeError(msg)

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        return imported("confluent_kafka.schema_registry.protobuf", "registry").ProtobufSerializer(
            self._class.type, client, conf={**settings.for_writing(), **settings.for_references()}
        )


class ProtobufDeserializer(Registered):
    r"""Reads Protobuf, as dicts in protobuf's JSON form or as messages.

    >>> from google.protobuf.api_pb2 import Mixin
    >>> ProtobufDeserializer(Mixin)(b"\n\x03acl\x12\x02v1")
    {'name': 'acl', 'root': 'v1'}

    Args:
        msg_type: The class that protoc has written.
        use_integers_for_enums: Give numbers, not names, for enums.
        preserving_proto_field_name: Name fields as in the .proto file, not in lowerCamelCase.
        to_dict: False: give the messages themselves, which is much faster.
        schema_registry_client_config: The registry with which the bytes were written.
        schema_registry_serialization_config: How it is asked.
    """

    def __init__(
        self,
        msg_type: Any,
        use_integers_for_enums: bool = False,
        preserving_proto_field_name: bool = False,
        to_dict: bool = True,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        from google.protobuf import json_format

        self._class = _MessageClass(msg_type)
        self._to_dict = to_dict
        self._options = {
            "always_print_fields_with_no_presence": True,
            "use_integers_for_enums": use_integers_for_enums,
            "preserving_proto_field_name": preserving_proto_field_name,
        }
        self._convert = json_format.MessageToDict
        self._registry = registry_for(
            schema_registry_client_config, schema_registry_serialization_config, writes=False
        )

    def __call__(self, data: bytes) -> Any:
        return attempt("read as protobuf", self._read, data)

    def _read(self, data: bytes) -> Any:
        if self._registry is not None:
            message = self._registry.read(self._confluent, data)
        else:
            message = self._class.type.FromString(data)
        return self._convert(message, **self._options) if self._to_dict else message

    def _confluent(self, client: Any, settings: SchemaRegistrySerializationConfig) -> Any:
        module = imported("confluent_kafka.schema_registry.protobuf", "registry")
        # Given the client too, it would parse the writer's schema, for which it has no use, and
        # which fails for messages of protobuf's own.
        read = module.ProtobufDeserializer(self._class.type, settings.for_reading())
        known = set()

        def read_known(data: bytes, context: Any) -> Any:
            if data[:5] not in known and data[0] == 0:
                client.get_schema(int.from_bytes(data[1:5]))
                known.add(data[:5])
            return read(data, context)

        return read_known


class _MessageClass:
    """A message class that travels as its descriptor."""

    def __init__(self, msg_type: Any) -> None:
        from google.protobuf.message import Message

        if not isinstance(msg_type, type) or not issubclass(msg_type, Message):
            msg = f"msg_type must be a class that protoc has written, got {shown(msg_type)}."
            raise ConfigError(msg + "\nFix: from orders_pb2 import Order.")
        self.type: Any = msg_type

    def __reduce__(self) -> tuple[Any, ...]:
        from google.protobuf import descriptor_pool

        descriptor = self.type.DESCRIPTOR
        is_default = descriptor.file.pool is descriptor_pool.Default()
        return _message_class, (descriptor.full_name, _files_of(descriptor.file), is_default)


def _files_of(file: Any) -> list[bytes]:
    """Return a file and those that it needs, before those that need them."""
    found: dict[str, bytes] = {}

    def add(file: Any) -> None:
        for needed in file.dependencies:
            add(needed)
        found.setdefault(file.name, file.serialized_pb)

    add(file)
    return list(found.values())


def _message_class(name: str, files: list[bytes], is_default: bool) -> _MessageClass:
    """Return a class from its descriptor; in the default pool, the one that protoc's module has."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.Default() if is_default else descriptor_pool.DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file)
    except TypeError:  # another file of this name is there
        return _message_class(name, files, is_default=False)
    return _MessageClass(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)))
