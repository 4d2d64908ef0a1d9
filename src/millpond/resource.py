"""Connections and clients: opened once in each worker process, on first use, and closed.

Takes a generator function that yields what it opened; gives a `Resource`, which functions call.
What a run has opened in a process belongs to the `Scope` of that run, and is closed with it.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar
from uuid import uuid4

from cloudpickle import list_registry_pickle_by_value

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import function_name, here
from millpond.errors import ConfigError, ResourceError, shown

__all__ = ["Resource", "Scope", "enter", "resource", "within"]

logger = logging.getLogger("millpond")

T = TypeVar("T")


def resource(function: Callable[[], Iterator[T]]) -> Resource[T]:
    """Make a resource of a generator function: what comes before `yield` opens, the rest closes.

    Call the resource where its value is needed. It is opened on the first call in each worker
    process, and closed at the end of the run.

    >>> import millpond as mp
    >>> from millpond.testing import frame, run_local
    >>> @mp.resource
    ... def names():
    ...     print("open")
    ...     yield {1: "ann", 2: "bob"}
    ...     print("close")
    >>> run_local(frame().apply(lambda value: names()[value]), [1, 2, 1])
    open
    close
    ['ann', 'bob', 'ann']

    Args:
        function: A generator function without arguments that yields once.
    """
    refuse_async(function, "@mp.resource")
    inner = inspect.unwrap(function) if callable(function) else function
    if not inspect.isgeneratorfunction(inner) or inspect.signature(function).parameters:
        msg = f"@mp.resource takes a generator function without arguments, got {shown(function)} "
        msg += f"({here()}).\nFix: def database(): connection = connect(); yield connection; "
        raise ConfigError(msg + "connection.close().")
    return Resource(function)


class Resource(Generic[T]):
    """What is opened once in each process. Made by `resource`; call it to get the value.

    >>> @resource
    ... def answer():
    ...     yield 42
    >>> answer()
    42
    """

    def __init__(self, function: Callable[[], Iterator[T]], identity: str = "") -> None:
        self._function = function
        self._identity = identity or uuid4().hex
        self.__name__ = function_name(function)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __call__(self) -> T:
        """Return the value; open it where this process has not."""
        scope = _current.get() or _of_process[0]
        return scope.value(self)  # type: ignore[no-any-return]

    # Copies of one resource, in functions that were sent separately, share what is open.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"resource {self.__name__!r} ({self._place})"

    @property
    def _place(self) -> str:
        code = inspect.unwrap(self._function).__code__
        return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"

    def __reduce__(self) -> Any:
        # A worker imports the module and finds the resource there, unless it is the program.
        module = sys.modules.get(self.__module__)
        by_value = {"__main__", *list_registry_pickle_by_value()}
        if self.__module__ not in by_value and getattr(module, self.__qualname__, None) is self:
            return self.__qualname__
        return Resource, (self._function, self._identity)

    def _open(self) -> tuple[T, Iterator[T]]:
        generator = self._function()
        try:
            return next(generator), generator
        except StopIteration:
            reason = "it yields nothing"
            fix = "let the function yield what it opened"
            cause: Exception | None = None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            fix = "make sure that it can be opened where the workers run"
            cause = error
        msg = f"{self} could not be opened: {reason}\nFix: {fix}, and run again."
        raise ResourceError(msg) from cause

    def _close(self, generator: Iterator[T]) -> None:
        try:
            next(generator)
        except StopIteration:
            return
        except Exception as error:
            logger.warning("%s could not be closed: %s: %s", self, type(error).__name__, error)
            return
        logger.warning("%s yields more than once; what follows the second is not done", self)


class Scope:
    """What one run has opened in this process."""

    def __init__(self, on_first: Callable[[], object] = lambda: None) -> None:
        """Make a scope; `on_first` is called before the first resource is opened."""
        self._on_first = on_first
        self._opened: dict[Resource[Any], tuple[Any, Iterator[Any]]] = {}

    def value(self, wanted: Resource[Any]) -> Any:
        """Return the value of a resource; open it where it is not open."""
        found = self._opened.get(wanted)
        if found is None:
            if not self._opened:
                self._on_first()
            found = self._opened[wanted] = wanted._open()
        return found[0]

    def close(self) -> None:
        """Close what is open, the latest first; what is used again is opened again."""
        while self._opened:
            wanted, (_, generator) = self._opened.popitem()
            wanted._close(generator)


_outside = Scope()
"""What is opened by calls that no run makes, such as those of a test."""
atexit.register(_outside.close)

_of_process = [_outside]
"""The scope of this process, where it is a worker."""

_current: ContextVar[Scope | None] = ContextVar("millpond_scope", default=None)
"""The scope of the run in hand, where one process has several: on the driver."""


def enter(scope: Scope) -> None:
    """Let resources that this process opens from now on belong to a scope."""
    _of_process[0] = scope


@contextmanager
def within(scope: Scope) -> Iterator[None]:
    """Let resources that are used in this block belong to a scope."""
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)
