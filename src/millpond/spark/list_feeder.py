"""Records of lists and of polled sources on their way to the spools that the query reads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from millpond.connectors.polled_source import PollSpool
from millpond.connectors.sources import Spool
from millpond.errors import SimulatedCrash
from millpond.spark.run_state import CommittedOffsets

__all__ = ["ListFeeder"]

# Items of a list that are spooled ahead of the query, and at a time.
_AHEAD, _AT_A_TIME = 500_000, 50_000

# Seconds that the end of a run waits for an iterable to give the item it was asked for.
_LAST_ITEM = 10.0

# Seconds for which a first piece of a list is waited for, and between two looks at full spools.
_FIRST_PIECE, _LOOK = 0.3, 0.05

logger = logging.getLogger("millpond")


class ListFeeder:
    """Keeps the spools of lists ahead of the query, in a thread of its own.

    Only that thread advances spools. The others read how far they are, which only grows.
    """

    def __init__(
        self, spools: Mapping[str, Spool | PollSpool], committed: CommittedOffsets, *, drains: bool
    ) -> None:
        self._spools = spools
        self._committed = committed
        self._drains = drains
        self._ended = threading.Event()
        self.error: BaseException | None = None
        """What an iterable raised."""
        self._thread = threading.Thread(target=self._feed, name="millpond-feed", daemon=True)

    def start(self) -> None:
        """Begin, and wait for a first piece; a drain wants all of it."""
        self._thread.start()
        self._thread.join(None if self._drains else _FIRST_PIECE)
        for name, spool in self._spools.items():
            if spool.is_done and 0 < spool.taken <= self._committed.position(name):
                taken = spool.taken
                logger.info("source %s: earlier runs have read all its %d items", name, taken)

    def end(self) -> None:
        """Stop; what an iterable has in hand goes to the spool, and a later run reads it."""
        self._ended.set()
        self._thread.join(_LAST_ITEM)

    def abandon(self) -> None:
        """Stop without waiting."""
        self._ended.set()

    def is_read(self) -> bool:
        """Tell whether every item of every list is in a committed batch."""
        return all(
            spool.is_done and self._committed.position(name) >= spool.taken
            for name, spool in self._spools.items()
        )

    def crash_where_marked(self, read: int) -> None:
        """Fail the batch that reaches a CRASH mark of a test.

        Args:
            read: How many records it has read.
        """
        for name, spool in self._spools.items():
            if spool.crash_at is not None and read:
                done = self._committed.position(name)
                if done + read >= spool.crash_at:
                    spool.crash_at = None
                    msg = f"a CRASH mark of source {name!r} was reached."
                    raise SimulatedCrash(msg)

    def _feed(self) -> None:
        try:
            while not self._ended.is_set() and not all(s.is_done for s in self._spools.values()):
                taken = 0
                for name, spool in self._spools.items():
                    is_ahead = spool.taken - self._committed.position(name) >= _AHEAD
                    if not spool.is_done and (self._drains or not is_ahead):
                        taken += spool.advance(_AT_A_TIME, time.time_ns() // 1_000_000)
                if not taken:
                    self._ended.wait(_LOOK)
        except BaseException as error:
            self.error = error
