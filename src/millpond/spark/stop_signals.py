"""SIGINT and SIGTERM ask a run to stop after the batch; a second one ends it at once."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["EndAtOnce", "StopSignals"]

logger = logging.getLogger("millpond")


class EndAtOnce(BaseException):
    """A second signal came. py4j would log a KeyboardInterrupt with its stack."""


class StopSignals:
    """The signals that a run has received.

    Handlers run in the main thread, which reads `asked`; other threads only set or read the event.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set when the run is to stop, by a signal or by the program."""
        self.asked: list[tuple[int, float]] = []
        """The signals that asked for it, and when."""

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals in the block; outside of the main thread Python knows none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        both = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._ask) for number in both}
        try:
            yield
        except EndAtOnce as ending:
            if ending.args[0] == signal.SIGTERM:
                raise SystemExit(128 + signal.SIGTERM) from None  # as a shell reports it
            raise KeyboardInterrupt from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        if self.asked:
            logger.warning("%s again: ending without waiting for the batch", name)
            raise EndAtOnce(number)
        self.asked.append((number, time.monotonic()))
        self.stop.set()
        logger.info("%s: stopping after the current batch; once more ends at once", name)
