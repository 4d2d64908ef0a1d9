"""Windows and clocks as settings: what the face has checked, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from millpond.arguments.duration import span

__all__ = [
    "HISTORY",
    "LIVE",
    "MAX_FUTURE_MS",
    "Clocking",
    "Closing",
    "Counted",
    "Session",
    "Sliding",
    "TimeWindow",
    "WindowKind",
    "loosest",
]

Closing = Literal["watermark", "key"]

# How far ahead of the wall clock a record of a live source may be (milliseconds; one hour).
MAX_FUTURE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Clocking:
    """How the time of a stream is read from its records."""

    lateness_ms: int = 0
    """How far the watermark stays behind the largest timestamp."""
    max_future_ms: int | None = None
    """How far ahead of the wall clock a timestamp may be; None: as far as it likes."""
    idle_after_ms: int | None = None
    """After how long a quiet stream goes by the wall clock; None: never."""


HISTORY = Clocking()
"""How time is read from a list or from files."""

LIVE = Clocking(max_future_ms=MAX_FUTURE_MS)
"""How time is read from what is produced while it is read."""


def loosest(clockings: Iterable[Clocking]) -> Clocking:
    """Return how time is read where streams come together: nothing is late that was on time.

    >>> loosest([Clocking(5, 100, None), Clocking(10, 200, 60)])
    Clocking(lateness_ms=10, max_future_ms=200, idle_after_ms=None)
    """
    every = list(clockings)
    return Clocking(
        max(clocking.lateness_ms for clocking in every),
        _longest(clocking.max_future_ms for clocking in every),
        _longest(clocking.idle_after_ms for clocking in every),
    )


def _longest(limits: Iterable[int | None]) -> int | None:
    """Return the largest of some limits; None is no limit."""
    found = 0
    for limit in limits:
        if limit is None:
            return None
        found = max(found, limit)
    return found


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows of one length, one every `step_ms`: tumbling where the two are equal."""

    duration_ms: int
    step_ms: int
    grace_ms: int = 0
    corrections_ms: int = 0

    @property
    def store(self) -> str:
        if self.step_ms == self.duration_ms:
            return f"tumbling_window_{self.duration_ms}"
        return f"hopping_window_{self.duration_ms}_{self.step_ms}"

    @property
    def holds_back_ms(self) -> int:
        """How far a final result's timestamp, the window's start, lies behind the clock."""
        return self.duration_ms + self.grace_ms

    def __str__(self) -> str:
        kind = "tumbling" if self.step_ms == self.duration_ms else "hopping"
        step = "" if kind == "tumbling" else f" every {span(self.step_ms)}"
        more = f", corrections {span(self.corrections_ms)}" if self.corrections_ms else ""
        return f"{kind} {span(self.duration_ms)}{step}{_grace(self.grace_ms)}{more}"


def _grace(length_ms: int) -> str:
    return f", grace {span(length_ms)}" if length_ms else ""


@dataclass(frozen=True, slots=True)
class Sliding:
    """One window for each record: the `duration_ms` before it, both ends included."""

    duration_ms: int
    grace_ms: int = 0

    @property
    def store(self) -> str:
        return f"sliding_window_{self.duration_ms}"

    @property
    def holds_back_ms(self) -> int:
        return self.duration_ms + self.grace_ms + 1

    def __str__(self) -> str:
        return f"sliding {span(self.duration_ms)}{_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class Session:
    """Records with no gap of more than `gap_ms` between them."""

    gap_ms: int
    grace_ms: int = 0

    @property
    def store(self) -> str:
        return f"session_window_{self.gap_ms}"

    @property
    def holds_back_ms(self) -> int:
        return self.gap_ms + self.grace_ms + 1

    def __str__(self) -> str:
        return f"session gap {span(self.gap_ms)}{_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows of so many records, one every `step` records; None: one after the other."""

    count: int
    step: int | None = None

    @property
    def store(self) -> str:
        if self.step is None:
            return f"tumbling_count_window_{self.count}"
        return f"hopping_count_window_{self.count}_{self.step}"

    @property
    def holds_back_ms(self) -> int:
        return 0

    def __str__(self) -> str:
        step = "" if self.step is None else f" every {self.step}"
        return f"of {self.count} records{step}"


WindowKind = TimeWindow | Sliding | Session | Counted
