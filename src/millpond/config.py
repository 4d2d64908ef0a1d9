"""The options of an application, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.topic import check_name
from millpond.errors import ConfigError, shown
from millpond.options import (
    Durability,
    ErrorCallback,
    ErrorPolicy,
    LostRecords,
    OffsetReset,
    Persistence,
    ProcessingGuarantee,
    Recovery,
    StateChange,
)

__all__ = ["Config", "groups_for"]

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
