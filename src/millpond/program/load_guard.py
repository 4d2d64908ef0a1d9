"""What a program may do while a command loads its file: be built, and nothing else.

`Application` asks here before it runs, writes or clears something. Outside of a load, every answer
is "go on".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.arguments.callsite import CallSite, here
from millpond.errors import ConfigError

__all__ = ["NoProducer", "Reached", "is_left_out", "loads", "stop_at"]

logger = logging.getLogger("millpond")


class Reached(BaseException):
    """Ends the loading of a file at its own `run()` or `backfill()`.

    What is written after that call needs what it did, so it is not executed either. It is no
    `Exception`, because programs catch those around `run()`.
    """

    def __init__(self, application: Any, call: str, call_site: CallSite) -> None:
        super().__init__(call)
        self.application = application
        self.call = call
        self.call_site = call_site


class NoProducer:
    """Takes records while a file is loaded, and writes none: what is only looked at writes nothing.

    Workers load the modules of a program in this way, so a function that is run there later must
    not lose what it writes to a producer of its module.
    """

    def produce(self, *_: Any, **__: Any) -> None:
        """Write nothing.

        Raises:
            ConfigError: the file is loaded, and a function of it is run.
        """
        if not _loads:
            msg = f"a producer that was made while its module was loaded writes nothing ({here()})."
            fix = (
                "write with to_topic(); or make the producer in a function that is decorated with "
                "@mp.resource, which opens it in each worker"
            )
            raise ConfigError(f"{msg}\nFix: {fix}.")

    def poll(self, timeout: float = 0.0) -> int:
        """Wait for nothing."""
        return 0

    def flush(self, timeout: float | None = None) -> int:
        """Write nothing."""
        return 0

    def __enter__(self) -> NoProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


# Whether a command loads a file, and whether only to look at it. One for the process: a command
# loads one file, and threads that the file starts must not run it either.
_loads = False
_looks = False


@contextmanager
def loads(*, looks: bool) -> Iterator[None]:
    """Load a file in this block; `looks`: the command changes and writes nothing by its code."""
    global _loads, _looks
    before = _loads, _looks
    _loads, _looks = True, looks
    try:
        yield
    finally:
        _loads, _looks = before


def stop_at(application: Any, call: str) -> None:
    """End the load here, if there is one: the command decides what is run."""
    if not _loads:
        return
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit  # ends a thread without a word; the file is loaded to its end
    raise Reached(application, call, here())


def is_left_out(call: str) -> bool:
    """Return whether a call must do nothing, because the program is only looked at; say so."""
    if _looks:
        logger.warning("%s of %s is left out: this command only looks.", call, here())
    return _looks
