"""`offsets/<batch>`: what a batch reads, written before it runs.

Relies on: a first line `v1`; a line of JSON with `batchTimestampMs` and, in `conf`, the number of
    state partitions; then one line for each source, in the order of the plan.
For Spark 4.4: `OffsetSeqLog` and `OffsetSeqMetadata`. Version 2 (`OffsetMap`, sources by name) is
    in 4.3 already; `spark.sql.streaming.offsetLog.formatVersion` is held at 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.documents import parsed
from millpond.storage.batch_source import (
    BatchClock,
    Offsets,
    Planned,
    clock_in,
    has_clock,
    is_edit,
    offsets_in,
)

__all__ = ["ERRORS", "FOLDER", "VERSIONS", "Batch", "batch_in", "is_whole"]

FOLDER, VERSIONS = "offsets", ("v1",)

ERRORS = (ValueError, KeyError, IndexError, TypeError, AttributeError)
"""What `batch_in` raises for a text that is torn or changed."""


@dataclass(frozen=True)
class Batch:
    """What is written down about a batch before it runs."""

    number: int
    time_ms: int
    """When it was planned, by the wall clock."""
    partitions: int
    """Into how many parts its state is divided."""
    source: Planned = field(default_factory=dict)
    """What our own source wrote: `millpond` (offsets) and `clock`."""
    foreign: tuple[str, ...] = ()
    """What the sources of Spark itself wrote."""

    @property
    def offsets(self) -> Offsets:
        """Up to where it reads each source."""
        return offsets_in(self.source)

    @property
    def clock(self) -> BatchClock:
        """What time it is in it."""
        return clock_in(self.source)

    @property
    def has_clock(self) -> bool:
        """Whether it has a time: one that reads Spark's own sources only has none."""
        return has_clock(self.source)

    @property
    def is_edit(self) -> bool:
        """Whether people have put it there, with changed values."""
        return is_edit(self.source)

    @property
    def now(self) -> int:
        """The wall clock of the batch; the same whenever it is replayed."""
        return self.clock.now or self.time_ms

    @property
    def reads(self) -> list[Any]:
        """What it reads and when it was planned: the same whenever it is replayed."""
        if self.foreign:
            return [self.offsets, self.time_ms, *self.foreign]
        return [self.offsets, self.clock.now]


def is_whole(number: int, text: str) -> bool:
    """Tell whether a text is what Spark writes about a batch."""
    try:
        batch_in(number, text)
    except ERRORS:
        return False
    return True


def batch_in(number: int, text: str) -> Batch:
    """Return what a file says; raises one of `ERRORS` where it is torn or changed."""
    version, settings, *sources = text.splitlines()
    if version != "v1":
        msg = f"its version is {version[:20]!r}"
        raise ValueError(msg)
    if not sources:
        msg = "it is cut off before the first source"
        raise ValueError(msg)
    about = parsed(settings)
    own: dict[str, Any] = {}
    foreign = []
    for line in sources:
        offsets = parsed(line) if line.startswith("{") else None
        if isinstance(offsets, dict) and "millpond" in offsets:
            own = offsets
        else:
            foreign.append(line)
    partitions = int(about.get("conf", {}).get("spark.sql.shuffle.partitions", 0))
    clock_in(own)  # refused here, where the file is known
    return Batch(number, int(about.get("batchTimestampMs", 0)), partitions, own, tuple(foreign))
