"""How Spark ends a Python worker, and where it has Python write at a crash.

Relies on: `os._exit` or SIGHUP as the end of a worker; `signal.signal(SIGHUP, SIG_DFL)` before
    every task; `PYTHON_FAULTHANDLER_DIR`, where Spark has faulthandler write.
Seen with: 4.3.
Without it: resources of a worker are not closed when it ends (`close_all` closes those of a run,
    as long as SIGHUP comes); the lines at work are missing where a worker has crashed.
For Spark 4.4: `pyspark/daemon.py`, `pyspark/worker_util.py`, `pyspark/worker.py`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["before_the_end", "is_crash_written"]


def before_the_end(close: Callable[[], object], asked: Callable[[int, Any], None]) -> None:
    """Call `close` before this process ends, and `asked` for each SIGHUP."""
    mine, leave, setting = os.getpid(), os._exit, signal.signal

    def ends(code: int) -> Any:
        if os.getpid() == mine:
            close()
        leave(code)

    def keeps(number: Any, handler: Any) -> Any:
        # Spark sets it to its default before every task.
        ours = os.getpid() == mine and number == signal.SIGHUP and handler == signal.SIG_DFL
        return setting(number, asked if ours else handler)

    os._exit = ends  # type: ignore[assignment]
    signal.signal = keeps  # type: ignore[assignment]
    if threading.current_thread() is threading.main_thread():
        setting(signal.SIGHUP, asked)


def is_crash_written() -> bool:
    """Tell whether Spark has Python write where it was at a crash."""
    return "PYTHON_FAULTHANDLER_DIR" in os.environ
