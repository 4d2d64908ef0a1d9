"""Where a broker is and how to be let in.

Takes an address and secrets; gives the settings of librdkafka. Secrets are never printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from millpond.errors import ConfigError, shown

__all__ = ["ConnectionConfig"]

_SECRET = re.compile(
    r"pass|secret|token|key\.pem|jaas|userinfo|credential|oauthbearer\.config", re.IGNORECASE
)

# Likewise, inside of a value: the setting of another library, an address.
_WITHIN = re.compile(r"(pass\w*|secret|token|sig)\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class ConnectionConfig:
    """How to connect to Kafka.

    >>> ConnectionConfig("kafka:9092", sasl_username="ann", sasl_password="tr0ub4dor")
    ConnectionConfig(bootstrap_servers='kafka:9092', sasl_username='ann', sasl_password='***')

    Args:
        bootstrap_servers: `host:port`, several divided by commas.
        security_protocol: "plaintext", "ssl", "sasl_plaintext" or "sasl_ssl".
        sasl_mechanism: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI".
        sasl_username: For PLAIN and SCRAM.
        sasl_password: Likewise.
        ssl_ca_location: File of the authority's certificates.
        ssl_certificate_location: File of the client's certificate.
        ssl_key_location: File of its key.
        ssl_key_password: Password of that file.
        patience: Seconds for which a running application waits when the broker is away.
        extra: Any other setting of librdkafka, by its own name.
    """

    bootstrap_servers: str
    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = None
    patience: float = 600.0
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        address = self.bootstrap_servers
        if not isinstance(address, str) or not address.strip():
            msg = f"a broker's address is text, `host:port`; got {shown(address)}."
            raise ConfigError(msg + '\nFix: broker_address="localhost:9092".')
        for one in address.split(","):
            if not re.fullmatch(r"\s*([\w.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?\s*", one):
                address_shown, fix = shown(one), 'host:port, for example "localhost:9092"'
                if "@" in address:  # what is before it may be a password, with commas in it
                    address_shown = shown("***@" + address.rpartition("@")[2])
                    fix = "sasl_username= and sasl_password= of ConnectionConfig; here host:port"
                raise ConfigError(f"{address_shown} is not the address of a broker.\nFix: {fix}.")

    @classmethod
    def of(cls, given: str | ConnectionConfig) -> ConnectionConfig:
        """Return the configuration of an address, or itself."""
        return given if isinstance(given, ConnectionConfig) else cls(given)

    @classmethod
    def from_librdkafka_dict(cls, config: dict[str, Any]) -> ConnectionConfig:
        """Return it from settings with librdkafka's own names."""
        if "bootstrap.servers" not in config:
            msg = "the settings have no bootstrap.servers, so there is nobody to connect to."
            raise ConfigError(msg + '\nFix: {"bootstrap.servers": "localhost:9092", ...}.')
        names = {f.name for f in fields(cls)} - {"extra", "patience"}
        known = {key: value for key, value in config.items() if key.replace(".", "_") in names}
        extra = {key: value for key, value in config.items() if key not in known}
        return cls(**{key.replace(".", "_"): v for key, v in known.items()}, extra=extra)

    def as_librdkafka_dict(self) -> dict[str, Any]:
        """Return the settings under librdkafka's own names, secrets included."""
        named = {
            f.name.replace("_", "."): getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("extra", "patience") and getattr(self, f.name) is not None
        }
        if self.sasl_username is not None:
            named.setdefault("sasl.mechanism", "PLAIN")
            named.setdefault("security.protocol", "sasl_ssl")
        return {**named, **self.extra}

    def __repr__(self) -> str:
        shown_fields = (
            f"{f.name}={_hidden(f.name, getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default and getattr(self, f.name) != {}
        )
        return f"ConnectionConfig({', '.join(shown_fields)})"


def _hidden(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_hidden(k, v)}" for k, v in value.items()) + "}"
    is_secret = _SECRET.search(name) or (isinstance(value, str) and _WITHIN.search(value))
    return repr("***") if is_secret else repr(value)
