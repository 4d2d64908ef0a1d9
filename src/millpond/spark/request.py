"""What is asked of a run: the program, when it ends, and what a backfill does in another way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from millpond.config import Config
from millpond.connectors.protocols import Broker
from millpond.connectors.sources import FileSource, SparkSource
from millpond.connectors.topic import Topic
from millpond.driver.gather import BatchReport
from millpond.program.graph import Graph
from millpond.program.plan import Plan
from millpond.state.codec import Codec
from millpond.storage.lock import Hold
from millpond.storage.manifest import BegunBackfill

__all__ = ["Backfill", "Limits", "Program"]


@dataclass(frozen=True)
class Program:
    """What an application consists of."""

    config: Config
    graph: Graph
    codec: Codec
    broker: Broker
    topics: dict[str, Topic]
    reports: deque[BatchReport]
    """Filled after each batch."""
    session: Callable[[str], SparkSession]
    """Gives the session for a state directory; Spark is started when it is first called."""
    fit_state: Callable[[Plan, Hold], None]
    """Changes the state so that a plan can go on with it, where that was accepted."""

    @property
    def accepts(self) -> bool:
        """Whether a change of the program may leave state."""
        return self.config.on_state_change == "accept"

    @property
    def has_foreign_sources(self) -> bool:
        """Whether Spark itself reads some of the sources; their records come without a clock."""
        return any(isinstance(source, SparkSource) for source in self.graph.sources.values())


@dataclass(frozen=True)
class Limits:
    """When a run ends, and what it returns."""

    timeout: float
    count: int
    drain: bool
    collect: bool
    metadata: bool


@dataclass
class Backfill:
    """How a run over history differs from any other."""

    files: dict[str, FileSource] = field(default_factory=dict)
    """Files that stand for a topic."""
    until: dict[str, dict[str, int]] = field(default_factory=dict)
    """Up to where topics are read; those that are not named, up to where they end now."""
    outputs: bool = False
    """Whether what comes out is written."""
    begun: BegunBackfill | None = None
    """What the manifest says of it until it has ended."""
    read: int = 0
    """Records that were read."""
    dead: int = 0
    """Records that failed and were written to the dead letters."""
