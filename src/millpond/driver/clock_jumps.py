"""Whether the wall clock was set.

Takes it with a clock that only goes on, whenever somebody looks; gives by how much it was set
since then, and warns of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from millpond.driver.held_back import at_time, silence

__all__ = ["JumpWatch"]

# What a clock may be put right by without a word (milliseconds).
_SMALL = 60_000

logger = logging.getLogger("millpond")


@dataclass
class JumpWatch:
    """Compares the wall clock with one that only goes on, from the first look on."""

    _apart: int | None = None
    """How far the two were apart, in milliseconds."""

    def look(self, wall_ms: int, steady: float) -> int:
        """Return by how much the wall clock was set, in milliseconds; 0 for a minute or less.

        Args:
            wall_ms: The wall clock, in milliseconds.
            steady: `time.monotonic()`, in seconds.
        """
        apart = wall_ms - int(steady * 1000)
        if self._apart is None:
            self._apart = apart
        jump = apart - self._apart
        if abs(jump) <= _SMALL:
            return 0
        self._apart = apart
        return jump

    def log(self, wall_ms: int, steady: float) -> int:
        """Look, and warn if the clock was set."""
        jump = self.look(wall_ms, steady)
        if jump:
            logger.warning(
                "the wall clock of this machine was set %s by %s: it shows %s, where %s was "
                "expected. Processing timers, idle_after and max_future go by the clock as it is.\n"
                "Fix: let NTP keep the clock; if this machine was suspended, there is nothing to "
                "do.",
                "forward" if jump > 0 else "back",
                silence(abs(jump)),
                at_time(wall_ms),
                at_time(wall_ms - jump),
            )
        return jump
