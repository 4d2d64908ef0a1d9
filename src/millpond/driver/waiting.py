"""What is waited for, and since when.

Takes a `with` around what may not answer, and what workers are at; gives what has been waited for
for longer than a moment, to the live line, the log and `app.waiting`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millpond.driver.held_back import silence

__all__ = ["SHOWN_AFTER", "WORTH_A_WORD", "Reminder", "Waiting", "Waits"]

# Seconds after which something that is waited for is shown and logged.
SHOWN_AFTER = 10.0

# How many times longer than before something is waited for when it is logged again.
_GROWTH = 4

# Seconds from which on `app.waiting` has it, and the report of a batch.
WORTH_A_WORD = 1.0

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class Waiting:
    """Something that is waited for."""

    what: str
    """A step at a record, a sink, a broker: in words."""
    since: float
    """When that began, in seconds since 1970."""
    seconds: float
    """For how long."""
    more: str = ""
    """Where it is at work, if that is known: file and line."""
    fix: str = ""
    """What can be done."""

    def __str__(self) -> str:
        return f"{self.what} for {silence(int(self.seconds * 1000))}"


class Waits:
    """What the driver waits for itself. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, str, float]] = {}
        self._done: dict[str, float] = {}
        self._next = 0

    @contextmanager
    def __call__(self, what: str, fix: str = "") -> Iterator[None]:
        """Say what is waited for as long as the block runs."""
        number, began = self._begin(what, fix)
        try:
            yield
        finally:
            with self._lock:
                del self._open[number]
                took = self._clock() - began
                if took >= WORTH_A_WORD:
                    self._done[what] = self._done.get(what, 0.0) + took

    def _begin(self, what: str, fix: str) -> tuple[int, float]:
        with self._lock:
            self._next += 1
            began = self._clock()
            self._open[self._next] = what, fix, began
            return self._next, began

    def now(self) -> list[Waiting]:
        """Return what is waited for, that which began first in front."""
        now, wall = self._clock(), time.time()
        with self._lock:
            found = list(self._open.values())
        return [Waiting(what, wall - now + at, now - at, fix=fix) for what, fix, at in found]

    def take_done(self) -> dict[str, float]:
        """Return for how many seconds what was waited for, and begin again."""
        with self._lock:
            done, self._done = self._done, {}
        return done


class Reminder:
    """Logs what is waited for: once, and again each time it has taken four times as long."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}
        """After how many seconds each was logged last."""

    def look(self, waiting: list[Waiting]) -> None:
        found = {one.what: one for one in waiting if one.seconds >= SHOWN_AFTER}
        self._logged = {what: n for what, n in self._logged.items() if what in found}
        for what, one in found.items():
            if one.seconds >= self._logged.get(what, 0.0) * _GROWTH:
                self._logged[what] = one.seconds
                more = f"; it is at {one.more}" if one.more else ""
                logger.warning("%s%s%s", one, more, f".\nFix: {one.fix}" if one.fix else ".")
