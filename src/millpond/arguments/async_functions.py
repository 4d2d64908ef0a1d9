"""Functions that are `async def`, refused where they are given.

Takes a function and what it is for; nothing in the engine awaits, so such a function would give a
coroutine for every record.
"""

from __future__ import annotations

import inspect
from typing import Any

from millpond.arguments.callsite import function_name, here
from millpond.errors import ConfigError

__all__ = ["refuse_async"]


def refuse_async(function: Any, use: str) -> None:
    """Refuse a coroutine function or an async generator.

    Args:
        function: What was given; anything else passes.
        use: The method or argument it was given to.
    """
    called = vars(type(function)).get("__call__")  # of an object that is used as a function
    if not any(
        inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)
        for found in (function, called)
    ):
        return
    msg = (
        f"{use} takes an ordinary function, and {function_name(function)!r} is async "
        f"({here()}): functions are called for one record after the other, and not awaited.\n"
        "Fix: write 'def' instead of 'async def'; call asynchronous code inside it with "
        "asyncio.run(...)."
    )
    raise ConfigError(msg)
