"""Functions that users give to methods: what they are called, and what they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import function_name, here
from millpond.errors import ConfigError, shown

__all__ = ["check_function", "named"]


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Give a function a name, as plans and errors show it."""
    function.__name__ = name
    return function


def _how_to_take(names: Sequence[str] | None) -> str:
    if names:
        return f"def function({', '.join(names)}): ..."
    return (
        "change its parameters, or the stateful= and metadata= of the call: stateful=True passes "
        "the state, metadata=True key, timestamp and headers"
    )


def check_function(
    function: Any, arguments: int, method: str, names: Sequence[str] | None = None
) -> None:
    """Refuse what is no function, or none of so many arguments.

    Args:
        function: What was given.
        arguments: How many arguments it is called with.
        method: What it was given to.
        names: What the arguments are called; None: those of a record.
    """
    if not callable(function):
        msg = f"{method}() takes a function, got {shown(function)} ({here()})."
        msg += "\nFix: pass the function itself."
        raise ConfigError(msg)
    refuse_async(function, f"{method}()")
    try:
        inspect.signature(function).bind(*range(arguments))
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        wanted: Sequence[str] = (
            names
            or {
                1: ["value"],
                2: ["value", "state"],
                3: ["key", "value", "state"],
                4: ["value", "key", "timestamp", "headers"],
                5: ["value", "key", "timestamp", "headers", "state"],
            }[arguments]
        )
        msg = (
            f"{method}() calls {function_name(function)!r} with {arguments} argument(s), "
            f"({', '.join(wanted)}), which it does not take ({here()}).\n"
            f"Fix: {_how_to_take(names)}."
        )
        raise ConfigError(msg) from None
