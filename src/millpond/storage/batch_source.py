"""What our source plans for a batch: offsets and a clock.

It stands in Spark's offset log, and copies of it in the journal and in the clock file. A batch that
is replayed gets it back as it was, so it is kept as it was read; only here is it taken apart.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "BatchClock",
    "Offsets",
    "Planned",
    "clock_in",
    "has_clock",
    "is_edit",
    "offsets_in",
    "rename_scope_in",
    "with_offsets",
    "with_renamed_stores",
]

Planned = dict[str, Any]
"""What was planned, as it is on disk."""

Offsets = dict[str, dict[str, int]]
"""By source and partition."""


class BatchClock(msgspec.Struct, frozen=True):
    """The time of a batch, as `driver.timekeeper` wrote it."""

    seq: int = 0
    """Its number; 0: it has none."""
    now: int = 0
    """The wall clock, in milliseconds since 1970."""
    marks: dict[str, int] = msgspec.field(default_factory=dict)
    """The watermark of each clock point."""
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    """The watermark of each store, as scope/store."""
    seen: dict[str, int] | None = None
    """The largest timestamp at each point before the batch; None: an edit has noted none."""
    arrived: dict[str, int] = msgspec.field(default_factory=dict)
    """When something last came by each point before the batch."""


def offsets_in(planned: Planned) -> Offsets:
    """Return up to where the batch reads each source."""
    return dict(planned.get("millpond", {}))


def clock_in(planned: Planned) -> BatchClock:
    """Return what time it is in the batch.

    Raises:
        ValueError: it is not what a source has written.
    """
    return msgspec.convert(planned.get("clock", {}), BatchClock)


def has_clock(planned: Planned) -> bool:
    """Tell whether the batch has a time: one of Spark's own sources has none."""
    return "seq" in planned.get("clock", {})


def is_edit(planned: Planned) -> bool:
    """Tell whether people have put the batch there, with changed values."""
    return "edits" in planned


def with_offsets(planned: Planned, offsets: Offsets) -> Planned:
    """Return the same with other offsets of some sources."""
    return {**planned, "millpond": {**offsets_in(planned), **offsets}}


def with_renamed_stores(planned: Planned, renamed: dict[str, str]) -> Planned:
    """Return the same for stores that have another name; names are scope/store."""
    clock = planned.get("clock", {})
    if not renamed or "reached" not in clock:
        return planned
    kept = {name: at for name, at in clock["reached"].items() if name not in renamed.values()}
    reached = {renamed.get(name, name): at for name, at in kept.items()}
    return {**planned, "clock": {**clock, "reached": reached}}


def rename_scope_in(planned: Planned, old: str, name: str) -> None:
    """Let a batch that is replayed wake the groups of a scope under its other name."""
    wake = planned.get("clock", {}).get("wake", {})
    if old in wake:
        wake[name] = wake.pop(old)
