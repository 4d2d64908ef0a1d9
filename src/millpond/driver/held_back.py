"""Which source holds a watermark back.

Takes what a `Timekeeper` knows: where each clock point stands, when something last came by it, the
next moment at which something is due. Gives, for each clock that others have passed while
something waits for it, the points that have not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millpond.arguments.duration import span
from millpond.program.clocks import ClockPoint
from millpond.program.steps import Read, Watermark

__all__ = ["QUIET_MS", "HeldBack", "at_time", "how_to_go_on", "log_held", "silence"]

# A stream that is the only one of a step is called quiet after so long (milliseconds).
QUIET_MS = 10_000

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class HeldBack:
    """A source for which a window, a timer or the removal of expired state waits."""

    source: str
    """Its name; several, joined by "+", where their records came together before."""
    since: int | None
    """When its last record came, in milliseconds by the wall clock; None: none has come yet."""
    watermark: int | None
    """Where it holds the watermark; None: there is none before its first record."""
    ahead: int | None
    """Where the records of another source are; None: there is no other that goes by records."""
    steps: tuple[str, ...]
    """The steps that wait, each with file and line."""
    fix: str
    """What lets the watermark go on without the source."""

    def __str__(self) -> str:
        came = "yet" if self.since is None else f"since {at_time(self.since)}"
        stands = "has no value" if self.watermark is None else f"stays at {at_time(self.watermark)}"
        where = "" if self.ahead is None else f", though other records are at {at_time(self.ahead)}"
        what = f"nothing has come from {self.source!r} {came}, so the watermark {stands}{where}."
        fix = self.fix if self.since is not None else f"check that its name is right; or {self.fix}"
        return f"{what} It is waited for by {', '.join(self.steps)}.\nFix: {fix}"


def log_held(held: Iterable[HeldBack]) -> None:
    """Say which sources hold others back."""
    for one in held:
        if one.ahead is not None:
            logger.warning("%s", one)


def silence(ms: int) -> str:
    """Return for how long nothing has come, for people.

    >>> silence(59_000), silence(200_000), silence(9_000_000)
    ('59 s', '3 min', '2 h')
    """
    units = (("h", 2 * 3_600_000, 3_600_000), ("min", 60_000, 60_000))
    found = next(((unit, size) for unit, least, size in units if ms >= least), ("s", 1_000))
    return f"{ms // found[1]} {found[0]}"


def how_to_go_on(point: ClockPoint) -> str:
    """Return what to write so that a point does not wait for the next record."""
    step, idle = point.step, "idle_after=timedelta(minutes=1)"
    if point.clocking.idle_after_ms is not None:
        quiet = span(point.clocking.idle_after_ms)
        return f"wait: the others go on after {quiet} without a record."
    if isinstance(step, Read) and step.source.kind == "topic":
        return f"add {idle} to app.topic({step.name!r}, ...)."
    if isinstance(step, Watermark):
        return f"add {idle} to watermark(...) at {step.call_site}."
    lateness = point.clocking.lateness_ms
    late = f"timedelta(milliseconds={lateness}), " if lateness else ""
    return f".watermark({late}{idle}) right after {step} at {step.call_site}."


def at_time(ms: int) -> str:
    """Return a moment for people."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
