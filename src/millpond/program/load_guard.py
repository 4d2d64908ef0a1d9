"""What a program may do while a command loads its file: be built, and nothing else.

`Application` asks here before it runs, writes or clears something. Outside of a load, every answer
is "go on".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millpond.arguments.callsite import CallSite, here
from millpond.errors import ConfigError

__all__ = ["AtCall", "NoProducer", "Reached", "is_left_out", "loads", "stop_at"]

logger = logging.getLogger("millpond")


class Reached(BaseException):
    """Ends the loading of a file at its own `run()` or `backfill()`.

    What is written after that call may need its result, so it is not executed either. It is no
    `Exception`, because programs catch those around `run()`.
    """

    def __init__(self, application: Any, call: str, call_site: CallSite) -> None:
        super().__init__(call)
        self.application = application
        self.call = call
        self.call_site = call_site


AtCall = Callable[[Reached], None]


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
_at_call: AtCall | None = None


@contextmanager
def loads(*, looks: bool, at_call: AtCall | None = None) -> Iterator[None]:
    """Load a file in this block.

    Args:
        looks: The command changes and writes nothing by the file's code.
        at_call: What is done at the file's own `run()` or `backfill()`, before the load ends there:
            what the file has opened around that call is still open.
    """
    with _set(True, looks, at_call):
        yield


@contextmanager
def _set(*values: Any) -> Iterator[None]:
    global _loads, _looks, _at_call
    before = _loads, _looks, _at_call
    _loads, _looks, _at_call = values
    try:
        yield
    finally:
        _loads, _looks, _at_call = before


def stop_at(application: Any, call: str) -> None:
    """End the load here, if there is one: the command decides what is run."""
    if not _loads:
        return
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit  # ends a thread without a word; the file is loaded to its end
    reached = Reached(application, call, here())
    if _at_call is not None:
        at_call = _at_call
        with _set(False, False, None):
            at_call(reached)
    raise reached


def is_left_out(call: str) -> bool:
    """Return whether a call must do nothing, because the program is only looked at; say so."""
    if _looks:
        logger.warning("%s of %s is left out: this command only looks.", call, here())
    return _looks
