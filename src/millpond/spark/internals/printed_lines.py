"""What Java and PySpark print that says nothing to anybody.

Relies on: the English texts of two lines that come with every start; the last lines of tracebacks
    of workers whose query was stopped; the folders `pyspark` and `py4j`.
Seen with: 4.3, with Java 17 and 21.
Without it: the lines are seen. No line of a user's function is left out, whatever Spark prints.
For Spark 4.4: what a first run prints to standard error.
"""

from __future__ import annotations

import re
import sysconfig

__all__ = ["is_at_every_start", "is_dying", "is_of_spark"]

# Lines of Java and PySpark that come with every start, from their beginning to their end.
_AT_EVERY_START = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|(Starting )?Streaming TransformWithStateIn\w+ Python worker\b"
)

# The last line of a traceback of a worker whose query was stopped under it.
_DYING = re.compile(
    r"BrokenPipeError|ConnectionResetError|EOFError|.*CANNOT_OPEN_SOCKET|KeyboardInterrupt"
)

# Files whose tracebacks these are: Python's own, PySpark's, and this package's part for Spark.
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_OURS = ("/pyspark/", "/py4j/", "/millpond/spark/")
_INSTALLED = ("/site-packages/", "/dist-packages/")


def is_at_every_start(line: str) -> bool:
    """Tell whether a line comes with every start."""
    return _AT_EVERY_START.match(line.rstrip()) is not None


def is_dying(line: str) -> bool:
    """Tell whether it is the last line of a traceback of a worker whose query was stopped."""
    return _DYING.match(line) is not None


def is_of_spark(line: str) -> bool:
    """Tell whether a line of a traceback names a file of Spark or of Python itself."""
    file = line.split('"')[1]
    if any(part in file for part in _OURS) or file.startswith("<frozen "):
        return True
    return file.startswith(_STDLIB) and not any(part in file for part in _INSTALLED)
