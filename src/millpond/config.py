"""The options of an application, checked once."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from millpond.arguments.duration import milliseconds
from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.topic import check_name
from millpond.errors import ConfigError, shown
from millpond.options import (
    Durability,
    ErrorCallback,
    ErrorPolicy,
    KafkaOptions,
    LostRecords,
    OffsetReset,
    Persistence,
    ProcessingGuarantee,
    Recovery,
    SparkOptions,
    StateChange,
    StateOptions,
)

__all__ = ["Config", "groups_for", "seconds_of", "set_up_logging", "settings_of"]

logger = logging.getLogger("millpond")

# Records a batch reads at most where the user sets no limit: it bounds memory, and at the speed
# of two cores it is a batch of a few seconds.
DEFAULT_BATCH = 1_000_000

PARTITIONS = "spark.sql.shuffle.partitions"
MOST_PARTITIONS = 10_000


def groups_for(partitions: int, *, is_local: bool) -> int:
    """Return how many key groups new state gets; they stay, and are the bound of parallelism.

    A batch pays for each group that it touches: one of 150,000 records took 460 ms with 128 groups
    on two cores, and 390 with 32. So there are 16 for each partition, and 1,024 where that is more.
    A cluster that is still starting tells of few cores only, so there are 128 at least.
    """
    least, most = 32 if is_local else 128, 1024
    return max(least, min(16 * partitions, most), partitions)


@dataclass(frozen=True)
class Config:
    """Options of `Application`; see there for what they mean."""

    consumer_group: str = "default"
    state_dir: str = "state"
    topics_dir: str = "topics"
    connection: ConnectionConfig | None = None
    processing_guarantee: ProcessingGuarantee = "exactly-once"
    auto_create_topics: bool = True
    on_lost_records: LostRecords = "stop"
    consumer_extra_config: dict[str, Any] = field(default_factory=dict, repr=False)
    producer_extra_config: dict[str, Any] = field(default_factory=dict, repr=False)
    auto_offset_reset: OffsetReset = "latest"
    commit_interval: float = 0.0
    max_records_per_batch: int | None = None
    on_error: ErrorPolicy = "stop"
    on_processing_error: ErrorCallback | None = None
    recover: Recovery = "stop"
    on_state_change: StateChange = "refuse"
    durability: Durability = "power"
    persistence: Persistence = "directory"
    state_ttl_ms: int | None = None
    master: str | None = None
    spark: Any = field(default=None, repr=False)
    spark_config: dict[str, str] = field(default_factory=dict, repr=False)
    step_timeout: float | None = None
    stop_timeout: float = 30.0
    loglevel: str | int | None = "INFO"

    def __post_init__(self) -> None:
        check_name(self.consumer_group, "consumer group")
        _one_of("auto_offset_reset", self.auto_offset_reset, ("latest", "earliest", "error"))
        guarantees = ("exactly-once", "at-least-once")
        _one_of("processing_guarantee", self.processing_guarantee, guarantees)
        _one_of("on_lost_records", self.on_lost_records, ("stop", "skip"))
        _one_of("on_error", self.on_error, ("stop", "dead-letter"))
        _one_of("recover", self.recover, ("stop", "auto"))
        _one_of("on_state_change", self.on_state_change, ("refuse", "accept"))
        _one_of("durability", self.durability, ("power", "process"))
        _one_of("persistence", self.persistence, ("directory", "none"))
        if not isinstance(self.commit_interval, int | float) or not self.commit_interval >= 0:
            msg = f"commit_interval is seconds, 0 or more; got {shown(self.commit_interval)}."
            raise ConfigError(msg + "\nFix: commit_interval=1.0.")
        limit = self.max_records_per_batch
        if limit is not None and (type(limit) is not int or limit < 1):
            msg = f"max_records_per_batch must be an int of 1 or more, or None; got {shown(limit)}."
            raise ConfigError(msg + "\nFix: max_records_per_batch=100_000.")
        partitions = str(self.spark_config.get(PARTITIONS, 1))
        if not partitions.isdecimal() or not 1 <= int(partitions) <= MOST_PARTITIONS:
            msg = f"{PARTITIONS} must be 1 to {MOST_PARTITIONS:,}, got {shown(partitions)}."
            raise ConfigError(msg + f'\nFix: spark_config={{"{PARTITIONS}": "8"}}.')
        if self.on_processing_error is not None and not callable(self.on_processing_error):
            msg = f"on_processing_error must be a function, got {shown(self.on_processing_error)}."
            raise ConfigError(msg + "\nFix: def handle(error, record, logger): return True.")


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        msg = f"{name} must be one of {', '.join(map(repr, allowed))}; got {shown(value)}."
        raise ConfigError(msg + f"\nFix: {name}={allowed[0]!r}.")


def settings_of(
    address: str | ConnectionConfig | None,
    kafka: KafkaOptions,
    spark: SparkOptions,
    state: StateOptions,
) -> dict[str, Any]:
    """Return the settings in the option objects of an application, by their names in `Config`."""
    return {
        "connection": _connection(address, kafka.broker_availability_timeout),
        "processing_guarantee": kafka.processing_guarantee,
        "consumer_extra_config": dict(kafka.consumer_extra_config),
        "producer_extra_config": dict(kafka.producer_extra_config),
        "master": spark.master,
        "spark": spark.session,
        "spark_config": dict(spark.config),
        "state_ttl_ms": None if state.ttl is None else milliseconds(state.ttl, "state_ttl"),
        "recover": state.recover,
        "on_state_change": state.on_change,
        "durability": state.durability,
        "persistence": state.persistence,
    }


def seconds_of(name: str, given: float | timedelta) -> float:
    """Return a length in seconds."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        msg = f"{name} is seconds or a timedelta, more than 0; got {shown(given)}."
        raise ConfigError(f"{msg}\nFix: {name}=60.")
    return float(seconds)


def _connection(
    given: str | ConnectionConfig | None, patience: float | None
) -> ConnectionConfig | None:
    """Return how to connect to Kafka; None: topics are those of the embedded log."""
    if patience is not None and (not isinstance(patience, int | float) or not patience >= 0):
        msg = f"broker_availability_timeout is seconds, 0 or more; got {shown(patience)}."
        raise ConfigError(msg + "\nFix: broker_availability_timeout=120.")
    if given is None:
        return None
    connection = ConnectionConfig.of(given)
    return connection if patience is None else replace(connection, patience=patience or math.inf)


def set_up_logging(level: str | int) -> None:
    """Show what the logger `millpond` has from a level on.

    Raises:
        ConfigError: there is no such level.
    """
    try:
        logger.setLevel(level)
    except ValueError:
        msg = f"there is no loglevel {level!r}.\nFix: loglevel='INFO'."
        raise ConfigError(msg) from None
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s millpond: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
