"""A connection to a broker: address, secrets, clients, and errors in words.

Takes an address or a `ConnectionConfig`; gives librdkafka clients that are quiet, and turns what
they raise into an error that says what to do.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.kafka.closing import close_at_exit
from millpond.errors import BrokerError, ConfigError

__all__ = ["ANSWER", "DENIED", "Connection", "Patience", "is_passing"]

T = TypeVar("T")

# Seconds in which a broker must have answered: at the start of a program, and any later question.
_FIRST_ANSWER, ANSWER = 6.0, 12.0

# What librdkafka takes for its setting message.max.bytes.
_MESSAGE_MAX_BYTES = 1_000_000

# librdkafka's own lines: only for who asks for them, with logging.getLogger("millpond.kafka").
_logger = logging.getLogger("millpond.kafka")
_logger.addHandler(logging.NullHandler())
_logger.propagate = False


class _LastWords(logging.Handler):
    """Keeps the last line about a client that cannot go on."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.CRITICAL:
            self.text = record.getMessage()


# A leader or coordinator is being chosen: the answer is a moment away.
_SOON = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_CONTROLLER,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._NOENT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}
_UNREACHABLE = {
    *_SOON,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
}
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_WRONG_SECRET = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}


def is_passing(error: KafkaException) -> bool:
    """Tell whether it may help to wait: the broker is away, or busy with another leader."""
    return error.args[0].code() in _UNREACHABLE


class Connection:
    """A broker. Survives pickling: each process makes clients of its own, when it needs them."""

    def __init__(
        self,
        config: ConnectionConfig,
        consumer_extra: dict[str, Any] | None = None,
        producer_extra: dict[str, Any] | None = None,
    ) -> None:
        self.config = config
        self._consumer_extra = consumer_extra or {}
        self._producer_extra = producer_extra or {}
        self._admin: AdminClient | None = None
        self._heard: deque[KafkaError] = deque(maxlen=100)
        self._last_words = _LastWords()
        self._log = logging.Logger(_logger.name)
        self._log.parent = _logger
        self._log.addHandler(self._last_words)

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self.config, self._consumer_extra, self._producer_extra)

    @property
    def address(self) -> str:
        return self.config.bootstrap_servers

    @property
    def name(self) -> str:
        """What people call it."""
        return f"Kafka at {self.address}"

    # --- clients ----------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """Return the client for questions about topics.

        Do not keep it in a variable where its futures are waited for: one that raises is part of
        a cycle with that function's variables, and the client would go when Python next looks for
        cycles, in any thread.
        """
        if self._admin is None:
            self._admin = self._made(AdminClient, self._settings({}, {}, {}))
            close_at_exit(self)
        return self._admin

    def renew(self) -> None:
        """Forget what the client for questions knows: an old leader is asked again and again."""
        self._admin = None

    let_go = renew

    def consumer(self, settings: dict[str, Any], must: dict[str, Any] | None = None) -> Consumer:
        """Return a consumer that commits nothing by itself.

        Args:
            settings: What it is given where the user says nothing else.
            must: What it is given in any case.
        """
        return self._made(Consumer, self.consumer_settings(settings, must))

    def consumer_settings(
        self, settings: dict[str, Any], must: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what such a consumer is given."""
        needed = {"enable.auto.commit": False, "enable.partition.eof": True, **(must or {})}
        return self._settings(settings, self._consumer_extra, needed)

    def producer(self, settings: dict[str, Any], must: dict[str, Any] | None = None) -> Producer:
        """Return a producer that repeats nothing: it is idempotent."""
        usual = {
            "linger.ms": 5,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1024 * 1024,
            # One transaction after the other: 5 ms each instead of 96.
            "retry.backoff.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "partitioner": "murmur2_random",  # the same partition as Java's clients choose
            **settings,
        }
        needed = {
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            **(must or {}),
        }
        return self._made(Producer, self._settings(usual, self._producer_extra, needed))

    @property
    def largest(self) -> int:
        """The bytes of the largest record that a producer sends."""
        settings = {**self.config.as_librdkafka_dict(), **self._producer_extra}
        return int(settings.get("message.max.bytes", _MESSAGE_MAX_BYTES))

    def _settings(
        self, usual: dict[str, Any], extra: dict[str, Any], needed: dict[str, Any]
    ) -> dict[str, Any]:
        return {**usual, **self.config.as_librdkafka_dict(), **extra, **needed}

    def _made(self, kind: Any, settings: dict[str, Any]) -> Any:
        try:
            return kind({**settings, "error_cb": self._heard.append}, logger=self._log)
        except KafkaException as error:
            msg = f"librdkafka does not take the settings: {error.args[0].str()}."
            raise ConfigError(msg + "\nFix: see its list of settings, CONFIGURATION.md.") from error

    # --- asking -----------------------------------------------------------------------------

    def check(self) -> None:
        """Make sure that the broker answers and lets us in.

        Raises:
            BrokerError: it does not.
        """
        self._heard.clear()
        deadline = time.monotonic() + _FIRST_ANSWER
        answer = self.admin().describe_cluster(request_timeout=_FIRST_ANSWER)
        while not answer.done() and self._refusal() is None and time.monotonic() < deadline:
            self.admin().poll(0.05)  # a client that is refused only ever says so here
        try:
            answer.result(0.1)
        except (KafkaException, TimeoutError) as raised:
            silent = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
            error = raised if isinstance(raised, KafkaException) else silent
            raise self.error("connect", error) from raised

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Return what a call gives; where it fails, raise what that means.

        Args:
            what: What is being done, for the error: "list the topics".
            call: Does it.
        """
        self._heard.clear()
        deadline = time.monotonic() + _FIRST_ANSWER
        while True:
            try:
                return call()
            except (KafkaException, SystemError) as raised:
                error = self.raised(raised)
                if error.args[0].code() not in _SOON or time.monotonic() > deadline:
                    raise self.error(what, error) from error
                time.sleep(0.1)

    def raised(self, error: Exception) -> KafkaException:
        """Return what a client raised. A fatal error comes as a SystemError of Python's.

        That has the error as its cause, or lost it on the way, but the log still has its text.
        """
        if isinstance(error, KafkaException):
            return error
        if isinstance(error.__cause__, KafkaException):
            return error.__cause__
        text = self._last_words.text.rpartition("Fatal error: ")[2]
        self._last_words.text = ""
        known = (*DENIED, KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
        code = next((c for c in known if KafkaError(c).str() in text), KafkaError._FATAL)
        return KafkaException(KafkaError(code, text or str(error), True))

    def error(self, what: str, error: KafkaException) -> BrokerError:
        """Return the error that says what was wrong and what to do."""
        reported: KafkaError = error.args[0]
        if self._admin is not None:
            self._admin.poll(0)  # a client that is refused only ever says so here
        reported = self._refusal() or reported
        return BrokerError(f"could not {what}: {_reason(reported)} {self._fix(reported)}")

    def _refusal(self) -> KafkaError | None:
        reasons = {*_WRONG_SECRET, KafkaError._SSL}
        return next((heard for heard in self._heard if heard.code() in reasons), None)

    def _fix(self, error: KafkaError) -> str:
        code, address = error.code(), self.address
        if code in _WRONG_SECRET:
            who = self.config.sasl_username or "nobody"
            return (
                f"(broker {address}).\nFix: the broker refuses the credentials of {who!r}: check "
                "sasl_username, sasl_password, sasl_mechanism and security_protocol."
            )
        if code == KafkaError._SSL:
            return (
                f"(broker {address}).\nFix: check security_protocol, ssl_ca_location and the "
                "certificate's host name."
            )
        if code in DENIED:
            who = self.config.sasl_username or "ANONYMOUS"
            return (
                f"(broker {address}).\nFix: ask who runs the broker for the right, for user "
                f"{who!r}: READ on topics that are read and on the group, WRITE on topics and on "
                "the transactional id `millpond-<group>`, CREATE where topics are to be made."
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return (
                '.\nFix: producer_extra_config={"transaction.timeout.ms": ...} below the broker\'s '
                "transaction.max.timeout.ms."
            )
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return (
                '.\nFix: producer_extra_config={"message.max.bytes": ...}, and the topic\'s own '
                "max.message.bytes, or write less into one record."
            )
        if code == KafkaError.INVALID_TIMESTAMP:
            return (
                f"(broker {address}).\nFix: compare the clock of this machine with the broker's; "
                "see message.timestamp.before.max.ms and .after.max.ms of the topics."
            )
        if code in _UNREACHABLE:
            return (
                f"(broker {address}).\nFix: check the address (host:port), that a broker listens "
                "there, and that its advertised address can be reached from here."
            )
        return f"(broker {address}).\nFix: see the broker's log; the error is its own."


def _reason(error: KafkaError) -> str:
    """Return what the broker said, without librdkafka's thread names and host states."""
    text = re.sub(r"^\S+/\S+: ", "", str(error.str()))
    return f"{text.rstrip('.')} [{error.name()}]"


@dataclass
class Patience:
    """How long a broker may be away until the run gives up."""

    seconds: float
    _since: float | None = field(default=None, init=False)

    def is_over(self) -> bool:
        """Tell whether it has been away for too long, counted from the first time it was asked."""
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since > self.seconds

    def renew(self) -> None:
        """Say that it has answered."""
        self._since = None
