"""Joins as settings: what the face has checked, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.arguments.duration import span

__all__ = ["AsOf", "Direction", "Emission", "How", "Interval", "JoinKind", "is_join", "side_names"]

How = Literal["inner", "left", "right", "outer"]
Direction = Literal["backward", "forward", "nearest"]
Emission = Literal["watermark", "now"]

side_names = ("left", "right")
"""What the sides of a join are called, by their number."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Each left record meets the right ones from `backward_ms` before it to `forward_ms` after."""

    how: How
    backward_ms: int
    forward_ms: int
    grace_ms: int = 0
    emit: Emission = "watermark"

    def __str__(self) -> str:
        bounds = f"from {_signed(-self.backward_ms)} to {_signed(self.forward_ms)}"
        grace = f", grace {span(self.grace_ms)}" * bool(self.grace_ms)
        return f"{self.how}, {bounds}{grace}" + ", now" * (self.emit == "now")

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        bounds = f"from {-self.backward_ms} to {self.forward_ms} ms"
        return f"interval join, {self.how}, {bounds}" + ", now" * (self.emit == "now")

    @property
    def width_ms(self) -> int:
        """How many milliseconds the interval has; the records of as many are kept together."""
        return self.backward_ms + self.forward_ms + 1

    @property
    def holds_back_ms(self) -> int:
        """How much older than the watermark a result may be."""
        waits = [0]
        if self.emit == "watermark" and self.how in ("left", "outer"):
            waits.append(max(1, self.forward_ms + 1))
        if self.emit == "watermark" and self.how in ("right", "outer"):
            waits.append(max(1, self.backward_ms + 1))
        return self.grace_ms + max(waits)

    def lasts_ms(self, side: int) -> int:
        """How long after its time a record of a side may be met by one that is not late."""
        return (self.backward_ms if side else self.forward_ms) + self.grace_ms

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        waits = self.emit == "watermark" and self.how in (side_names[side], "outer")
        return span(max(self.lasts_ms(side) + (0 if waits else self.width_ms - 1), 0))


@dataclass(frozen=True, slots=True)
class AsOf:
    """Each left record meets one right record: the nearest before it, after it, or either."""

    how: How
    grace_ms: int
    direction: Direction = "backward"
    tolerance_ms: int | None = None
    emit: Emission = "watermark"

    def __str__(self) -> str:
        far = "" if self.tolerance_ms is None else f", within {span(self.tolerance_ms)}"
        return f"{self.how}, {self.direction}{far}" + ", now" * (self.emit == "now")

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        return f"as-of join, {self.direction}" + ", now" * (self.emit == "now")

    @property
    def reach_ms(self) -> int:
        """How far from a left record a right one may be."""
        return self.grace_ms if self.tolerance_ms is None else self.tolerance_ms

    @property
    def holds_back_ms(self) -> int:
        """How much older than the watermark a result may be."""
        if self.emit == "now":
            return 0
        return 1 if self.direction == "backward" else self.reach_ms + 1

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        if side == 0:
            waits = self.direction != "backward"
            return "not" if self.emit == "now" else span(self.reach_ms) if waits else "until met"
        every = "every one" if self.emit == "now" else "the newest"
        return f"{every}, for {span(self.reach_ms)}"


JoinKind = Interval | AsOf


def is_join(settings: str) -> bool:
    """Tell whether the settings of a store are those of a join."""
    return settings.startswith(("interval join", "as-of join"))


def _signed(ms: int) -> str:
    return f"-{span(-ms)}" if ms < 0 else f"+{span(ms)}"
