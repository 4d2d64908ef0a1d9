"""`stateful_map`: a function of key, value and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import MillpondError, shown
from millpond.program.steps import Fold
from millpond.state.codec import Codec
from millpond.state.view import State
from millpond.worker.emit import Push, failed

__all__ = ["fold"]


def fold(step: Fold, state: State, codec: Codec, give: Push) -> Push:
    function, initial = step.function, step.initial
    start: Callable[[], Any]
    if callable(initial):
        start = initial
    else:
        encoded = codec.encode(initial)
        start = lambda: codec.decode(encoded)  # noqa: E731 - a fresh copy each time
    missing = object()

    def fold(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            before = state.get("", missing)
            result = function(key, value, start() if before is missing else before)
            output, after = result if type(result) is tuple else _pair(result)
            if after is None:
                state.delete("")
            else:
                state.set("", after)
        except Exception as error:
            failed(step, error)
            return
        give(output, key, timestamp, headers)

    return fold


def _pair(result: Any) -> tuple[Any, Any]:
    """Return what a fold gave, if it is an output and a state."""
    try:
        output, after = result
    except (TypeError, ValueError):
        msg = (
            f"the function must return (output, new state), got {shown(result)}.\n"
            "Fix: return output, state."
        )
        raise MillpondError(msg) from None
    return output, after
