"""What the JVM and its Python processes write to standard error, passed on as it comes.

Takes a pipe; writes its lines to this program's standard error, where a notebook shows them, too.
Left out: what Java and PySpark print at every start, and the tracebacks of PySpark's own processes
whose query was stopped. A line that does not come from these is never left out.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["passed_on"]

# Lines of Java and PySpark that come with every start, from their beginning to their end.
_AT_EVERY_START = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|(Starting )?Streaming TransformWithStateIn\w+ Python worker\b"
)

# The last line of a traceback of a worker whose query was stopped under it.
_DYING = re.compile(
    r"BrokenPipeError|ConnectionResetError|EOFError|.*CANNOT_OPEN_SOCKET|KeyboardInterrupt"
)

_TRACEBACK = "Traceback (most recent call last)"

# Files whose tracebacks these are: Python's own, PySpark's, and this package's part for Spark.
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_OURS = ("/pyspark/", "/py4j/", "/millpond/spark/")
_INSTALLED = ("/site-packages/", "/dist-packages/")

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
        elif _AT_EVERY_START.match(text.rstrip()):
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
    is_of_spark = all(_is_of_spark(line) for line in frames)
    # One without its last line is of a process that was killed while it wrote.
    if not is_of_spark or not (_is_open(held) or _DYING.match(_last(held))):
        sys.stderr.write("".join(held))


def _is_of_spark(line: str) -> bool:
    """Tell whether a line of a traceback names a file of Spark or of Python itself."""
    file = line.split('"')[1]
    if any(part in file for part in _OURS) or file.startswith("<frozen "):
        return True
    return file.startswith(_STDLIB) and not any(part in file for part in _INSTALLED)
