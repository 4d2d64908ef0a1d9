"""What the JVM and its Python processes write to standard error, passed on as it comes.

Takes a pipe; writes its lines to this program's standard error, where a notebook shows them, too.
Left out: what Java and PySpark print at every start, and the tracebacks of PySpark's own processes
whose query was stopped. A line that does not come from these is never left out.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.spark.internals.printed_lines import is_at_every_start, is_dying, is_of_spark

__all__ = ["passed_on"]

_TRACEBACK = "Traceback (most recent call last)"

# What stands between two tracebacks of one error, and the seconds in which it comes.
_CHAIN = ("During handling of the above", "The above exception was")
_MOMENT = 0.3


@contextmanager
def passed_on() -> Iterator[int]:
    """Give a file descriptor; what is written to it goes on to standard error."""
    reading, writing = os.pipe()
    pipe = os.fdopen(reading, "rb")
    threading.Thread(target=pass_on, args=(pipe,), daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def pass_on(pipe: Any) -> None:
    """Write lines on, without those of every start and without tracebacks of dying workers."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read() -> None:
        for line in pipe:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    held: list[str] = []
    is_after = False
    while True:
        try:
            # A traceback may have another one after it; whether it has is known in a moment.
            line = lines.get(timeout=_MOMENT if held and not _is_open(held) else None)
        except queue.Empty:
            line = b""
        text = "" if line is None else line.decode("utf-8", "replace")
        if held and (not text or not _belongs(held, text)):
            _write(held)
            held = []
        if line is None:
            return
        if held or text.startswith(_TRACEBACK):
            held.append(text)
        elif is_at_every_start(text):
            is_after = True  # PySpark writes an empty line after each of its own
            continue
        elif not (is_after and not text.strip()):
            sys.stderr.write(text)
        is_after = False


def _belongs(held: list[str], text: str) -> bool:
    """Tell whether a line belongs to the tracebacks held."""
    if text.startswith(_TRACEBACK):
        return _last(held).startswith(_CHAIN)
    return _is_open(held) or not text.strip() or text.startswith(_CHAIN)


def _is_open(held: list[str]) -> bool:
    """Tell whether the line is still to come that says what the error was."""
    return held[-1].startswith((" ", _TRACEBACK))


def _last(held: list[str]) -> str:
    return [line for line in held if line.strip()][-1]


def _write(held: list[str]) -> None:
    frames = [line for line in held if line.startswith('  File "')]
    is_theirs = all(map(is_of_spark, frames))
    # One without its last line is of a process that was killed while it wrote.
    if not is_theirs or not (_is_open(held) or is_dying(_last(held))):
        sys.stderr.write("".join(held))
