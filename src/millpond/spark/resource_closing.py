"""How resources are closed that workers have opened.

In a worker: `announce` is called before the first one is opened; from then on the process closes
what is open before it ends, and when the driver asks for it. On the driver: `close_all` asks the
workers of a run on this machine, and waits for them. Workers of another machine close when their
process ends, which is when the application does.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from millpond.folders import is_locked
from millpond.resource import Scope
from millpond.spark.internals.worker_process import before_the_end

__all__ = ["announce", "close_all"]

logger = logging.getLogger("millpond")

# Seconds that the end of a run waits for its workers to close what they have opened.
_PATIENCE = 10.0

_ENDED = "ended"

_open: dict[int, tuple[Scope, Path | None, int]] = {}
"""What this process has opened: for each scope, where that is said, and the lock on it."""

_is_prepared: set[int] = set()
"""The process that closes what is open before it ends; a process forked from it does not."""


# --- in a worker ----------------------------------------------------------------------------


def announce(scope: Scope, folder: Path | None) -> None:
    """Say that this process is about to open something; see to it that it is closed."""
    if id(scope) in _open:
        return
    file = None if folder is None else folder / str(os.getpid())
    lock = -1
    if file is not None:
        try:
            lock = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)  # gone where the process is gone, however it ended
        except OSError:  # the run has ended, or there is no room: the process closes as it ends
            file = None
    _open[id(scope)] = scope, file, lock
    if os.getpid() not in _is_prepared:
        _is_prepared.add(os.getpid())
        before_the_end(lambda: _close(ended_only=False), _asked)


def _asked(number: int, frame: Any) -> None:
    """Close what belongs to runs that have ended; where none has, this process is to end."""
    if not _close(ended_only=True):
        os._exit(0)


def _close(*, ended_only: bool) -> bool:
    """Close what is open, and tell whether there was anything to be closed."""
    found = False
    for name, (scope, file, lock) in list(_open.items()):
        if ended_only and (file is None or not (file.parent / _ENDED).exists()):
            continue
        found = True
        del _open[name]
        scope.close()
        if file is not None:
            file.unlink(missing_ok=True)
            with suppress(OSError):
                os.close(lock)
    return found


# --- on the driver --------------------------------------------------------------------------


def close_all(folder: Path) -> None:
    """Let the workers of a run close what they have opened, and wait until they have."""
    workers = _workers(folder)
    if not workers:
        return
    (folder / _ENDED).touch()
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGHUP)
    deadline = time.monotonic() + _PATIENCE
    while _workers(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left := _workers(folder):
        logger.warning("resources are not closed yet in the worker processes %s", left)


def _workers(folder: Path) -> list[int]:
    """Return the processes that have opened something and are alive."""
    return [int(file.name) for file in folder.iterdir() if file.name != _ENDED and is_locked(file)]
