"""Variables that functions changed while they ran as copies: a change that nobody else sees.

Takes functions and their copies, before and after a run; gives the variables from outside that are
another value then.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

__all__ = ["Outside", "changed_variables", "outside"]

_COMPARED = (int, float, str, bytes, list, dict, set, frozenset, tuple, bytearray, deque)

Outside = dict[tuple[int, str], bytes]
"""For each function, by its number, and each variable: what is in it, pickled."""


def outside(
    functions: Iterable[Callable[..., Any]], copies: Iterable[Callable[..., Any]]
) -> Outside:
    """Return what the variables from outside hold that the copies of functions use.

    Args:
        functions: Functions as the program has them.
        copies: Their copies, in the same order.
    """
    found: Outside = {}
    for number, (function, copy) in enumerate(zip(functions, copies, strict=False)):
        if copy is function:  # of a module that is imported: nothing was copied
            continue
        for name, value in _variables(copy):
            if isinstance(value, _COMPARED):
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


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables from outside that a function uses, with their values."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:  # an empty cell
            continue
    used = _names(function.__code__)
    for name, value in function.__globals__.items():
        if name in used and not name.startswith("__"):
            yield name, value


def _names(code: CodeType) -> set[str]:
    """Return the names that a function uses, those of functions inside it too."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
