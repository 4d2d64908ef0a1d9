"""Joins as settings: what the face has checked, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.arguments.duration import span

__all__ = [
    "AsOf",
    "AsTable",
    "Broadcast",
    "Direction",
    "Emission",
    "ForeignKey",
    "How",
    "Interval",
    "JoinKind",
    "TwoTables",
    "is_join",
    "side_names",
]

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

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return True

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

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return True

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        if side == 0:
            waits = self.direction != "backward"
            return "not" if self.emit == "now" else span(self.reach_ms) if waits else "until met"
        every = "every one" if self.emit == "now" else "the newest"
        return f"{every}, for {span(self.reach_ms)}"


@dataclass(frozen=True, slots=True)
class AsTable:
    """Each left record meets the row of its key: as it is now, or as it was at its own time."""

    how: How
    history_ms: int | None = None
    waits: bool = True
    """Whether the left side starts when the table has been read to where it ended at the start."""

    def __str__(self) -> str:
        when = "as it is now"
        if self.history_ms is not None:
            when = f"as of the record's time, history {span(self.history_ms)}"
        return f"{self.how}, {when}"

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        return "table join" + ", history" * (self.history_ms is not None)

    @property
    def holds_back_ms(self) -> int:
        """How much older than the watermark a result may be."""
        return 0 if self.history_ms is None else 1

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return self.history_ms is not None

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        if side == 0:
            return "not" if self.history_ms is None else "until met"
        more = "" if self.history_ms is None else f", and all of the last {span(self.history_ms)}"
        return f"the last of each key{more}"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Each left record meets a row of a small table, by any field; each copy has all rows."""

    how: How
    waits: bool = True
    """As of `AsTable`."""
    holds_back_ms: int = 0

    def __str__(self) -> str:
        return f"{self.how}, broadcast"

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        return "broadcast join"

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return False

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        return "the whole table, in each copy" if side else "not"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Rows of a table that name a row of another one, and that row, as a table."""

    how: How
    holds_back_ms: int = 0

    def __str__(self) -> str:
        return f"{self.how}, two tables, by a field"

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        return "foreign key join"

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return True

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        return "the last of each key"


@dataclass(frozen=True, slots=True)
class TwoTables:
    """The rows of two tables that have the same key, as a table."""

    how: How
    holds_back_ms: int = 0

    def __str__(self) -> str:
        return f"{self.how}, two tables"

    @property
    def form(self) -> str:
        """What must stay the same for kept records to be found again."""
        return "join of two tables"

    @property
    def goes_by_right(self) -> bool:
        """Whether the watermark of the right side counts."""
        return True

    def keeps(self, side: int) -> str:
        """Say how long a record of a side is kept, for people."""
        return "the last of each key"


JoinKind = Interval | AsOf | AsTable | Broadcast | ForeignKey | TwoTables

_FORMS = (
    "interval join",
    "as-of join",
    "table join",
    "broadcast join",
    "foreign key join",
    "join of two tables",
)


def is_join(settings: str) -> bool:
    """Tell whether the settings of a store are those of a join."""
    return settings.startswith(_FORMS)


def _signed(ms: int) -> str:
    return f"-{span(-ms)}" if ms < 0 else f"+{span(ms)}"
