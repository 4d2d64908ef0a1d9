"""What `print()` shows: values to text, and text to the terminal, without waiting for it for long.

Takes the values of a batch; makes one text of them, which a thread writes. A batch waits where the
terminal, or whoever reads a pipe, is more than some megabytes late. A stop does not: what cannot
be written within a moment is left out.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.pretty import pretty_repr
from rich.segment import Segment, Segments

__all__ = ["Printer", "rendered"]

# Characters that wait to be written, at most, besides one batch.
_MOST = 4 << 20

# Seconds without progress after which a stop leaves out what is not written, and seconds after
# which it does so in any case.
_PATIENCE, _LONGEST = 1.0, 5.0

# Characters of a batch that are coloured, at most: that takes 75 us a line, and the rest nothing.
_COLORED = 20_000

# Characters that are written at a time: a pipe that is read slowly makes progress.
_PIECE = 1 << 16

logger = logging.getLogger("millpond")


def rendered(values: list[Any], pretty: bool, more: int, width: int) -> str:
    """Return the lines that show values; `more` is how many are left out."""
    lines = [_pretty(value, width) if pretty else str(value) for value in values]
    if more:
        s = "s" * (more != 1)
        lines.append(f"... and {more:,} more row{s}; print(limit=None) shows all")
    return "\n".join(lines)


def _pretty(value: Any, width: int) -> str:
    if isinstance(value, str):
        return value
    text = repr(value)
    # What fits into a line looks the same; taking it apart takes twenty times as long.
    return text if len(text) <= width and "\n" not in text else pretty_repr(value, max_width=width)


class Printer:
    """Writes text in a thread of its own, in order."""

    def __init__(self, stop: threading.Event, console: Console | None = None) -> None:
        """Make a printer.

        Args:
            stop: Set when the run is to end; set by the printer where nobody reads any more.
            console: The terminal with the live line, above which the text is to appear.
        """
        self._stop = stop
        self._console = console
        self._waiting: deque[tuple[str, bool]] = deque()
        self._size = 0
        self._written = 0
        """Pieces that were written: shows progress."""
        self._left_out = 0
        self._is_broken = False
        """Nothing more is written."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, text: str, pretty: bool) -> None:
        """Write a text soon; waits while too much is to be written, but not for a stop."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="millpond-print", daemon=True
                )
                self._thread.start()
            self._wait(lambda: self._size <= _MOST)
            if self._is_broken:
                self._left_out += len(text)
                return
            self._waiting.append((text, pretty))
            self._size += len(text)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until all is written, or for a stop until nothing more can be written."""
        with self._changed:
            self._wait(lambda: self._size == 0)
            if self._left_out or self._size:
                logger.warning(
                    "the last %s characters of print() are left out: they cannot be written",
                    f"{self._left_out + self._size:,}",
                )
            self._waiting.clear()
            self._is_broken = True
            self._changed.notify_all()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait; give up where the run is to end and nothing is written any more."""
        stopped = 0.0
        while not is_done() and not self._is_broken:
            written = self._written
            self._changed.wait(_PATIENCE)
            if self._stop.is_set():
                now = time.monotonic()
                stopped = stopped or now
                if written == self._written or now - stopped > _LONGEST:
                    self._is_broken = True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_broken)
                if not self._waiting:
                    return
                text, pretty = self._waiting.popleft()
            try:
                self._write(text, pretty)
            except (OSError, ValueError) as error:  # nobody reads it, no room, or it is closed
                logger.warning("stopping: what print() shows cannot be written: %s", error)
                self._stop.set()
                self._is_broken = True
            with self._changed:
                self._size -= len(text)
                self._progressed()
                if self._is_broken:
                    return

    def _progressed(self) -> None:
        self._written += 1
        self._changed.notify_all()

    def _write(self, text: str, pretty: bool) -> None:
        if self._console is not None:
            if pretty and len(text) <= _COLORED:
                self._console.print(text, markup=False, emoji=False, soft_wrap=True)
            else:
                self._console.print(Segments([Segment(f"{text}\n")]), soft_wrap=True, end="")
            return
        out: Any = sys.stdout
        is_ours = out is sys.__stdout__
        if not is_ours:  # a notebook, or a test that captures it
            out.write(text + "\n")
            out.flush()
            return
        out.flush()
        # Past Python's buffer: its lock would be held while a pipe is full, and the interpreter
        # could not end.
        data = memoryview((text + "\n").encode(out.encoding or "utf-8", "backslashreplace"))
        while data:
            data = data[os.write(out.fileno(), data[:_PIECE]) :]
            with self._changed:
                self._progressed()
