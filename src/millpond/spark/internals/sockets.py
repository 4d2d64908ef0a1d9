"""Where the JVM and its Python workers on this machine meet: sockets in a folder of this run.

What comes by such a socket is not checked for Spark's secret, so nobody else may open it: the
folder has mode 0700 and a name that cannot be known before. The next start removes it where the
program was killed.

Relies on: `spark.python.unix.domain.socket.enabled` and `.dir`; names of at most 44 characters that
    Spark gives to sockets there.
Seen with: 4.3.
Without it: everything goes by TCP, which costs a small batch some milliseconds.
For Spark 4.4: `SparkEnv`, `PythonRunner`; the length of the name.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from millpond.folders import Scratch

__all__ = ["socket_settings"]

# What the system takes for the path of a socket (108 bytes on Linux, 104 on macOS), less the name
# that Spark gives it: a dot, 36 letters, ".sock".
_LONGEST = 103 - 44

_opened: list[Scratch] = []


def socket_settings() -> dict[str, str]:
    """Return the settings of Spark; where no folder can be had, everything goes by TCP.

    By TCP, workers show Spark's secret; the server of their state asks nobody for one. Only for a
    local master: a folder of this machine means nothing to the workers of a cluster.
    """
    enabled = "spark.python.unix.domain.socket.enabled"
    folder = _folder()
    if folder is None:
        return {enabled: "false"}
    return {enabled: "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _folder() -> Path | None:
    """Return the folder of this program."""
    if not _opened or not _opened[0].path.exists():
        _opened[:] = _made()
    return _opened[0].path if _opened else None


def _made() -> list[Scratch]:
    for place in _places():
        with suppress(OSError):  # no room, or no such folder
            scratch = Scratch("millpond-sockets-", place)
            if len(os.fsencode(scratch.path)) <= _LONGEST:
                atexit.register(scratch.remove)
                return [scratch]
            scratch.remove()
    return []


def _places() -> Iterator[Path]:
    """Yield where sockets may lie: the path of one has to be short."""
    yield Path(tempfile.gettempdir())
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime)
    yield Path("/tmp")
