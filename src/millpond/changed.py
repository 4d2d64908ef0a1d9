"""Variables that functions changed while they ran as copies: a change that nobody else sees.

Takes functions and their copies after a run; gives the variables from outside that differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["changed_variables"]

_COMPARED = (int, float, str, bytes, list, dict, set, frozenset, tuple, bytearray, deque)


def changed_variables(
    functions: Iterable[Callable[..., Any]], copies: Iterable[Callable[..., Any]]
) -> Iterator[str]:
    """Yield the names of variables that the copies have changed.

    Args:
        functions: Functions as the program has them.
        copies: Their copies, in the same order.
    """
    for function, copy in zip(functions, copies, strict=False):
        if copy is function:  # of a module that is imported: nothing was copied
            continue
        for name, before, after in _variables(function, copy):
            if isinstance(after, _COMPARED) and type(before) is type(after) and before != after:
                yield name


def _variables(function: Any, copy: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the variables of a function with their values there and in its copy."""
    names = function.__code__.co_freevars
    cells = zip(names, function.__closure__ or (), copy.__closure__ or (), strict=False)
    for name, here, there in cells:
        try:
            yield name, here.cell_contents, there.cell_contents
        except ValueError:  # an empty cell
            continue
    for name, value in copy.__globals__.items():  # a copy has those that it uses
        if not name.startswith("__") and name in function.__globals__:
            yield name, function.__globals__[name], value
