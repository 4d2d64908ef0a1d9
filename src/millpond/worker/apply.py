"""`apply`, `update`, `filter` and `set_headers`: a function of one record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.program.steps import Callback, Map
from millpond.state.view import State
from millpond.worker.emit import Push, failed

__all__ = ["Call", "adapted", "apply", "apply_stateful", "filter", "set_headers", "update"]


def adapted(callback: Callback, state: State) -> Callable[[Any, Any, int, Any], Any]:
    """Return the user's function with the one signature the engine calls."""
    function = callback.function
    if callback.takes_state and callback.takes_metadata:
        return lambda value, key, timestamp, headers: function(
            value, key, timestamp, headers, state
        )
    if callback.takes_state:
        return lambda value, key, timestamp, headers: function(value, state)
    if callback.takes_metadata:
        return function
    return lambda value, key, timestamp, headers: function(value)


Call = Callable[[Any, Any, int, Any], Any]


def apply(step: Map, call: Call, give: Push) -> Push:
    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = call(value, key, timestamp, headers)
        except Exception as error:
            failed(step, error)
            return
        give(result, key, timestamp, headers)

    return apply


def apply_stateful(step: Map, function: Callable[..., Any], state: State, give: Push) -> Push:
    """The commonest step of all, without the call in between."""

    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = function(value, state)
        except Exception as error:
            failed(step, error)
            return
        give(result, key, timestamp, headers)

    return apply


def update(step: Map, call: Call, give: Push) -> Push:
    def update(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            call(value, key, timestamp, headers)
        except Exception as error:
            failed(step, error)
            return
        give(value, key, timestamp, headers)

    return update


def filter(step: Map, call: Call, give: Push) -> Push:
    def keep(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            wanted = bool(call(value, key, timestamp, headers))
        except Exception as error:
            failed(step, error)
            return
        if wanted:
            give(value, key, timestamp, headers)

    return keep


def set_headers(step: Map, call: Call, give: Push) -> Push:
    def set_headers(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = call(value, key, timestamp, headers)
        except Exception as error:
            failed(step, error)
            return
        give(value, key, timestamp, new)

    return set_headers
