"""Where the JVM and its Python workers on this machine meet: sockets in a folder of this run.

What comes by such a socket is not checked for Spark's secret, so nobody else may open it: the
folder has mode 0700 and a name that cannot be known before. The next start removes it where the
program was killed.
"""

from __future__ import annotations

import atexit

from millpond.spark.scratch import Scratch

__all__ = ["socket_settings"]

# What the system takes for the path of a socket (108 bytes on Linux, 104 on macOS), less the name
# that Spark gives it: a dot, 36 letters, ".sock".
_LONGEST = 103 - 44

_opened: list[Scratch] = []


def socket_settings() -> dict[str, str]:
    """Return the settings of Spark; where no folder can be had, workers come by TCP, with a secret.

    Only for a local master: a folder of this machine means nothing to the workers of a cluster.
    """
    enabled = "spark.python.unix.domain.socket.enabled"
    try:
        folder = _folder()
    except OSError:  # no room for temporary files
        return {enabled: "false"}
    if len(folder.encode()) > _LONGEST:
        return {enabled: "false"}
    return {enabled: "true", "spark.python.unix.domain.socket.dir": folder}


def _folder() -> str:
    """Return the folder of this program."""
    if not _opened or not _opened[0].path.exists():
        _opened[:] = [Scratch("millpond-sockets-")]
        atexit.register(_opened[0].remove)
    return str(_opened[0].path)
