"""A schema registry: where it is, what is asked of it, and what its answers mean.

Takes settings; gives what Confluent's (de)serializers make of a value. Only the settings travel to
the workers: a client is made in each process when it is first needed. Secrets are never printed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from millpond.errors import ConfigError, RegistryError, SerializationError, shown

__all__ = [
    "Registered",
    "Registry",
    "SchemaRegistryClientConfig",
    "SchemaRegistrySerializationConfig",
    "imported",
    "refuse_with_registry",
    "registry_for",
    "shorter",
]

# Errors of Confluent's API that say that there is no such subject, version or schema.
_NOT_FOUND = (40401, 40402, 40403)


@dataclass(frozen=True)
class SchemaRegistryClientConfig:
    """Where a schema registry is, and how to be let in.

    >>> SchemaRegistryClientConfig("https://registry:8081", basic_auth_user_info="ann:tr0ub4dor")
    SchemaRegistryClientConfig(url='https://registry:8081', basic_auth_user_info='***')

    Args:
        url: Its address; several divided by commas. A user and password in it are taken out and
            kept as `basic_auth_user_info`.
        ssl_ca_location: File of the authority's certificates.
        ssl_key_location: File of the client's key.
        ssl_certificate_location: File of the client's certificate.
        basic_auth_user_info: `user:password`.
        ssl_key_password: Password of the file of the key.
        timeout: Seconds after which a request is given up; it is tried again a few times.
        extra: Any other setting of Confluent's client, by its own name.
    """

    url: str
    ssl_ca_location: str | None = None
    ssl_key_location: str | None = None
    ssl_certificate_location: str | None = None
    basic_auth_user_info: str | None = None
    ssl_key_password: str | None = None
    timeout: float = 10.0
    extra: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            msg = f"the address of a schema registry is text, got {type(self.url).__name__}."
            raise ConfigError(msg + "\nFix: url='http://localhost:8081'.")
        user = self.basic_auth_user_info
        if user is not None and not (isinstance(user, str) and ":" in user):
            msg = "basic_auth_user_info is not a text of the form user:password."
            raise ConfigError(msg + "\nFix: basic_auth_user_info=f'{user}:{password}'.")
        parted = [_parted(one) for one in self.url.split(",")]
        object.__setattr__(self, "url", ",".join(bare for bare, _ in parted))
        users = {user for _, user in parted if user is not None}
        if not users:
            return
        if len(users) > 1 or user not in (None, *users):
            msg = "a schema registry has one user, but its url and basic_auth_user_info name two."
            raise ConfigError(msg + "\nFix: take the user and password out of the url.")
        object.__setattr__(self, "basic_auth_user_info", users.pop())

    def as_dict(self) -> dict[str, Any]:
        """Return the settings under the names of Confluent's client, secrets included."""
        named = {f.name.replace("_", "."): getattr(self, f.name) for f in fields(self)}
        del named["extra"]
        return {name: v for name, v in named.items() if v is not None} | self.extra

    def __repr__(self) -> str:
        hidden = {"basic_auth_user_info": "***", "ssl_key_password": "***"}
        hidden["extra"] = dict.fromkeys(self.extra, "***")  # type: ignore[assignment]
        parts = [
            f"{f.name}={hidden.get(f.name, getattr(self, f.name))!r}"
            for f in fields(self)
            if getattr(self, f.name) not in (f.default, {})
        ]
        return f"SchemaRegistryClientConfig({', '.join(parts)})"


@dataclass(frozen=True)
class SchemaRegistrySerializationConfig:
    """How a (de)serializer uses a schema registry.

    >>> SchemaRegistrySerializationConfig(auto_register_schemas=False).normalize_schemas
    False

    Args:
        auto_register_schemas: Register the schema with the first value that is written, where it is
            not registered yet. Otherwise it must be there.
        normalize_schemas: Let the registry bring schemas into a standard form before it compares.
        use_latest_version: Write with, or read as, the newest schema of the subject. Writing so
            needs `auto_register_schemas=False`.
        subject_name_strategy: Function of (context, name of the record) that returns the subject;
            the context has `topic` and `field`. Default: `<topic>-key` and `<topic>-value`.
        skip_known_types: Protobuf: do not register what protobuf itself brings along.
        reference_subject_name_strategy: Protobuf: function of (context, file) that returns the
            subject of an imported file. Default: its name.
        use_deprecated_format: Protobuf: must be False; Confluent's client has given it up.
    """

    auto_register_schemas: bool = True
    normalize_schemas: bool = False
    use_latest_version: bool = False
    subject_name_strategy: Callable[[Any, str | None], str | None] | None = None
    skip_known_types: bool = True
    reference_subject_name_strategy: Callable[[Any, Any], str] | None = None
    use_deprecated_format: bool = False

    def __post_init__(self) -> None:
        if self.use_deprecated_format:
            msg = "use_deprecated_format=True is not supported by Confluent's client any more."
            raise ConfigError(msg + "\nFix: leave it out, and upgrade the consumers.")

    def for_writing(self) -> dict[str, Any]:
        """Return the settings of Confluent's serializers."""
        return {
            "auto.register.schemas": self.auto_register_schemas,
            "normalize.schemas": self.normalize_schemas,
            **self.for_reading(),
        }

    def for_reading(self) -> dict[str, Any]:
        """Return the settings of Confluent's deserializers."""
        # Confluent's own default asks the registry for a name first, which not all of them know.
        strategy = self.subject_name_strategy or _confluent().topic_subject_name_strategy
        return {"use.latest.version": self.use_latest_version, "subject.name.strategy": strategy}

    def for_references(self) -> dict[str, Any]:
        """Return what Confluent's serializer of Protobuf takes besides."""
        strategy = self.reference_subject_name_strategy
        named = {"reference.subject.name.strategy": strategy} if strategy else {}
        return {"skip.known.types": self.skip_known_types, **named}


Make = Callable[[Any, SchemaRegistrySerializationConfig], Callable[[Any, Any], Any]]
"""Gives Confluent's (de)serializer for a client."""


class Registry:
    """A registry as one (de)serializer sees it: where it is, and for which topic it is asked."""

    def __init__(
        self, config: SchemaRegistryClientConfig, serialization: SchemaRegistrySerializationConfig
    ) -> None:
        self.config = config
        self.serialization = serialization
        self._place: tuple[str, str] | None = None
        self._made: tuple[int, Any, Any] = (0, None, None)

    def bound(self, topic: str, field: str) -> Registry:
        """Return this registry for a field, "key" or "value", of a topic."""
        other = Registry(self.config, self.serialization)
        other._place = (topic, field)
        return other

    def write(self, make: Make, value: Any) -> Any:
        """Return the bytes that Confluent's serializer makes of a value."""
        return self._call(make, value, schema_id=None)

    def read(self, make: Make, data: bytes) -> Any:
        """Return the value that Confluent's deserializer finds in bytes."""
        # Byte 0: four bytes of the schema's id follow; byte 1: sixteen bytes of its guid.
        if len(data) < 5 or data[0] > 1:
            msg = (
                f"{shown(data)} was not written with a schema registry: it does not begin with "
                "a zero byte and the id of a schema.\nFix: read it without "
                "schema_registry_client_config, or correct the producer."
            )
            raise SerializationError(msg)
        return self._call(make, data, data[1:17].hex() if data[0] else int.from_bytes(data[1:5]))

    def _call(self, make: Make, given: Any, schema_id: int | str | None) -> Any:
        process, function, context = self._made
        try:
            if process != os.getpid():  # never made, or made before a fork
                function, context = self._connect(make)
            return function(given, context)
        except Exception as error:
            # Without the traceback of the HTTP client: the text says all, and every record has one.
            if isinstance(error, _confluent().SchemaRegistryError):
                raise self._refused(error, schema_id) from None
            if isinstance(error, _transport_errors()):
                raise self._away(error) from None
            raise

    def _connect(self, make: Make) -> tuple[Any, Any]:
        if self._place is None:
            msg = (
                "a registry keeps schemas by topic, and this (de)serializer was given none.\n"
                "Fix: pass it to app.topic(...), or call its bind('my-topic', 'value')."
            )
            raise ConfigError(msg)
        client = _client(self.config, os.getpid())
        serialization = imported("confluent_kafka.serialization", "registry")
        context = serialization.SerializationContext(*self._place)
        function = make(client, self.serialization)
        self._made = (os.getpid(), function, context)
        return function, context

    def _away(self, error: Exception) -> RegistryError:
        return RegistryError(
            f"the schema registry at {self.config.url} does not answer "
            f"({type(error).__name__}: {shorter(error)}).\n"
            "Fix: see that it runs and can be reached from the workers, and run again."
        )

    def _refused(self, error: Any, schema_id: int | str | None) -> SerializationError:
        topic, field = self._place or ("", "")
        here, status = f"the schema registry at {self.config.url}", error.http_status_code
        answer = f"(HTTP {status}: {shorter(error.error_message)})"
        is_missing = error.error_code in _NOT_FOUND
        if is_missing and schema_id is not None:
            return SerializationError(
                f"{here} has no schema {schema_id}, with which the {field} of a record of topic "
                f"{topic!r} was written {answer}.\n"
                "Fix: name the registry that the producer writes with, or correct the producer."
            )
        if is_missing:
            what = f"does not have the schema for the {field}s of topic {topic!r}"
            fix = "register it there, or set auto_register_schemas=True."
        elif status in (409, 422):
            what = f"refuses the schema for the {field}s of topic {topic!r}"
            fix = "change the schema so that it fits those before it, or choose another subject."
        elif status in (401, 403):
            what = "does not let us in"
            fix = "set basic_auth_user_info='user:password' to a user who may do this."
        elif status == 404:
            what = "does not know Confluent's API at this address"
            fix = "set url= to where that API begins, such as http://host:8081."
        else:
            what = "failed"
            fix = "see its log, and run again."
        return RegistryError(f"{here} {what} {answer}.\nFix: {fix}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": (0, None, None)}


class Registered:
    """A (de)serializer that may have a registry."""

    _registry: Registry | None = None

    def bind(self, topic: str, field: str) -> Self:
        """Return one that knows its topic and field, "key" or "value": subjects are named so.

        Topics call this for the (de)serializers that they are given.
        """
        if self._registry is None:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._registry = self._registry.bound(topic, field)
        return bound


def registry_for(
    client: SchemaRegistryClientConfig | None,
    serialization: SchemaRegistrySerializationConfig | None,
    *,
    writes: bool,
) -> Registry | None:
    """Return the registry that the arguments of a (de)serializer name, checked."""
    for name, given, kind in (
        ("client", client, SchemaRegistryClientConfig),
        ("serialization", serialization, SchemaRegistrySerializationConfig),
    ):
        if given is not None and not isinstance(given, kind):
            msg = f"schema_registry_{name}_config must be a {kind.__name__}, got a "
            raise ConfigError(msg + f"{type(given).__name__}.\nFix: {kind.__name__}(...).")
    if client is None:
        if serialization is not None:
            msg = "schema_registry_serialization_config has no effect without a registry."
            raise ConfigError(msg + "\nFix: set schema_registry_client_config too.")
        return None
    serialization = serialization or SchemaRegistrySerializationConfig()
    if writes and serialization.use_latest_version and serialization.auto_register_schemas:
        msg = "a serializer cannot both register its schema and use the latest one."
        raise ConfigError(msg + "\nFix: set auto_register_schemas=False.")
    _confluent()  # say now, not in a worker, that it is missing
    return Registry(client, serialization)


def imported(module: str, extra: str) -> Any:
    """Return a module of an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        msg = f"{extra} needs the package {error.name!r}, which is not installed."
        raise ConfigError(msg + f"\nFix: pip install 'millpond[{extra}]'.") from error


def shorter(reason: object, limit: int = 200) -> str:
    """Return the text of a reason, cut so that an error never prints a whole record."""
    text = str(reason) or type(reason).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _confluent() -> Any:
    return imported("confluent_kafka.schema_registry", "registry")


# A client costs 70 ms and remembers schemas. Spark unpickles the plan for every task, so clients
# must outlive the objects that use them. A process that was forked needs clients of its own.
@lru_cache(maxsize=32)
def _client(config: SchemaRegistryClientConfig, process: int) -> Any:
    try:
        return _confluent().SchemaRegistryClient(config.as_dict())
    except (OSError, TypeError, ValueError) as error:
        msg = (
            f"the settings of the schema registry at {config.url} cannot work: {shorter(error)}.\n"
            "Fix: see the arguments of SchemaRegistryClientConfig."
        )
        raise RegistryError(msg) from error


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the HTTP client, which newer versions of Confluent's have replaced."""
    found = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return (OSError, *(module.TransportError for module in found if module))


def _parted(url: str) -> tuple[str, str | None]:
    """Return a url without its user and password, and these."""
    bare = url.strip()
    try:
        parts = urlsplit(bare)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        got = shown(bare.rpartition("@")[2])  # what is before it may be a password
        msg = f"a schema registry has an address that begins with http:// or https://; got {got}."
        raise ConfigError(msg + "\nFix: url='http://localhost:8081'.")
    if parts.username is None:
        return bare, None
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return parts._replace(netloc=host).geturl(), user


def refuse_with_registry(**options: bool) -> None:
    """Refuse options that are set, and that Confluent's client does not have."""
    for name, is_set in options.items():
        if is_set:
            msg = f"{name}=... has no effect with a schema registry: Confluent's client has no "
            raise ConfigError(msg + "such option.\nFix: leave it out.")
