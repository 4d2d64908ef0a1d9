"""Timers of a key, and the clock of a step that they and expiring values go by."""

from __future__ import annotations

from typing import Literal, NamedTuple
from zlib import crc32

from millpond.state.timer_index import NEVER

__all__ = ["AWAY", "WALL", "StepClock", "Timer"]

WALL = "wall"

AWAY = "away:"
"""Begins the names of the indexes with keys whose timers no function of the program takes."""
"""The name of the wall clock among the clocks of a stage."""


class Timer(NamedTuple):
    """A timer of a key: its name, its moment and its clock.

    >>> Timer("silence", 65_000)
    Timer(name='silence', at=65000, clock='event')
    """

    name: str
    at: int
    """When, in milliseconds since 1970."""
    clock: Literal["event", "processing"] = "event"


class StepClock:
    """What time it is for one step; set at the beginning of each batch."""

    __slots__ = ("delay_ms", "late_mark", "least", "name", "tag", "watermark")

    def __init__(self, name: str = "", delay_ms: int = 0, least: int = NEVER) -> None:
        self.name = name
        """Which clock of the stage it goes by."""
        self.tag = crc32(name.encode()).to_bytes(4, "big")
        """The same, short enough to be kept with every value that expires."""
        self.delay_ms = delay_ms
        """How far it is held back from that clock."""
        self.least = least
        """What the step had reached when the run began: it never goes back further."""
        self.watermark = NEVER
        """What has ended up to here is over."""
        self.late_mark = NEVER
        """What has ended up to here was over before the batch: records for it are late."""
