"""Variables that functions changed while they ran: a change that nobody else sees on Spark.

Takes what a step calls, before and after a run; gives the variables from outside that hold
something else then: variables of the function, of its module, of classes and of objects.
"""

from __future__ import annotations

import inspect
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, ModuleType
from typing import Any

__all__ = ["Outside", "changed_variables", "outside"]

_MUTABLE = (list, dict, set, bytearray, deque)
_COMPARED = (int, float, str, bytes, frozenset, tuple, *_MUTABLE)

# How many steps a variable is looked for from a function: an object, its class, what it calls.
_DEPTH = 4

Outside = dict[tuple[int, str], bytes]
"""For each callable, by its number, and each variable: what is in it, pickled."""

IsUsers = Callable[[str], bool]
"""Tells whether a module of a name is the user's."""


def outside(callables: Iterable[Any], is_users: IsUsers) -> Outside:
    """Return what the variables hold that are outside of callables.

    Args:
        callables: Functions, methods and callable objects, as they run.
        is_users: Tells whether a module is the user's; others are not looked at.
    """
    found: Outside = {}
    for number, called in enumerate(callables):
        for name, value in _Variables(is_users).of(called):
            try:
                found[number, name] = pickle.dumps(value)
            except Exception:  # it holds a function, a lock, a class of a function
                continue
    return found


def changed_variables(before: Outside, after: Outside) -> Iterator[str]:
    """Yield the names of the variables that hold something else than before."""
    for place, value in after.items():
        if before.get(place, value) != value:
            yield place[1]


class _Variables:
    """A walk over the variables that can be reached from a callable."""

    def __init__(self, is_users: IsUsers) -> None:
        self._is_users = is_users
        self._seen: set[int] = set()

    def of(self, called: Any) -> Iterator[tuple[str, Any]]:
        """Yield each variable from outside that a callable uses, with its value."""
        owner = getattr(called, "__self__", None)
        if inspect.isfunction(called):
            yield from self._of_function(called, _DEPTH)
        elif inspect.ismethod(called):
            name = owner.__name__ if inspect.isclass(owner) else type(owner).__name__
            yield from self._inside(name, owner, _DEPTH)
            yield from self.of(called.__func__)
        elif isinstance(owner, _COMPARED):  # a method such as that of a list
            yield f"{type(owner).__name__} of {called.__name__}()", owner
        else:
            yield from self._inside(type(called).__name__, called, _DEPTH)

    def _of_function(self, function: Any, depth: int) -> Iterator[tuple[str, Any]]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        used = _names(function.__code__)
        for name, cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            yield from self._of_variable(name, value, used, depth)
        for name, value in function.__globals__.items():
            if name in used and not name.startswith("__"):
                yield from self._of_variable(name, value, used, depth)

    def _of_variable(
        self, name: str, value: Any, used: set[str], depth: int
    ) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _COMPARED):
            if isinstance(value, _MUTABLE):
                if id(value) in self._seen:
                    return
                self._seen.add(id(value))
            yield name, value
        elif isinstance(value, ModuleType):
            if self._is_users(value.__name__):
                held = [(n, v) for n, v in vars(value).items() if n in used and n[:2] != "__"]
                for inner, content in held:
                    yield from self._of_variable(f"{name}.{inner}", content, used, depth - 1)
        else:
            yield from self._inside(name, value, depth)

    def _inside(self, name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield what a class, an object or another function of the user holds."""
        kind = value if inspect.isclass(value) or inspect.isfunction(value) else type(value)
        if not depth or id(value) in self._seen or not self._is_users(kind.__module__ or ""):
            return
        self._seen.add(id(value))
        if inspect.isfunction(value):
            yield from self._of_function(value, depth - 1)
            return
        for inner, content in list(getattr(value, "__dict__", {}).items()):
            if inspect.isfunction(content):
                yield from self._inside(name, content, depth - 1)
            elif not inner.startswith("__"):
                yield from self._of_variable(f"{name}.{inner}", content, set(), depth - 1)
        if not inspect.isclass(value):
            yield from self._inside(kind.__name__, kind, depth - 1)


def _names(code: CodeType) -> set[str]:
    """Return the names that a function uses, those of functions inside it too."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
