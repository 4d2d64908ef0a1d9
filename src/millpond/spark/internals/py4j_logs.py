"""What py4j logs, without what must not be read.

Relies on: the loggers `py4j.java_gateway` and `py4j.clientserver`; messages that begin with
    "Command to send: " or "Answer received: "; the lines of a command, which begin with its kind.
Seen with: 4.3, with py4j 0.10.9.9.
Without it: at level DEBUG, settings and pickled functions would be in the user's log.
For Spark 4.4: `py4j/java_gateway.py`, `py4j/clientserver.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_py4j", "without_py4j_log"]

# Where py4j logs what a function of ours raised. It is raised to the caller anyway.
_PY4J = logging.getLogger("py4j.clientserver")

# How many lines of a command say what is called, by its first one. What comes after them are the
# arguments: settings, and functions with all that they use.
_SAID = {"c": 3, "i": 2}

# What an answer begins with: whether it is an error, and the type of what it has.
_TYPE = 3


def quiet_py4j() -> None:
    """Keep py4j from logging its commands, which contain settings and pickled functions.

    Where a program sets the root logger to DEBUG, py4j would follow. A level that was set on py4j's
    own logger stays; then a command is logged without its arguments.
    """
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    for name in ("py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(name).addFilter(_without_arguments)  # a second time does nothing


def _without_arguments(record: logging.LogRecord) -> bool:
    what, _, content = str(record.msg).partition(": ")
    if what == "Command to send":
        lines = content.splitlines()
        said = lines[: _SAID.get(lines[0], 1)] if lines else []
        record.msg, record.args = f"{what}: {' '.join(said)} ...", None
    elif what == "Answer received":
        record.msg, record.args = f"{what}: {content[:_TYPE]} ...", None
    return True


@contextmanager
def without_py4j_log() -> Iterator[None]:
    """Keep py4j from logging what a handler raises."""
    before = _PY4J.level
    _PY4J.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _PY4J.setLevel(before)
