"""`Reduce`: an aggregation from the user's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.aggregations.base import Aggregation
from millpond.arguments.async_functions import refuse_async
from millpond.errors import ConfigError, MillpondError, shown

__all__ = ["Reduce"]


class Reduce(Aggregation):
    """What your functions make of the values, None among them.

    A state of None is no state: after a reducer that returned None, the initializer begins again.

    Args:
        reducer: Takes the state and a value, returns the next state.
        initializer: Takes the first value, returns the first state.
        merge: Takes the states of an earlier and a later run of records, returns that of both.
        merger: The same under the name that Quix Streams has.

    >>> from millpond.testing import frame, run_local
    >>> longest = Reduce(lambda longest, text: max(longest, text, key=len), lambda first: first)
    >>> run_local(frame().agg(x=longest), ["a", "pond", "of"])[-1]["x"]
    'pond'
    """

    def __init__(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
        *,
        merger: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__()
        merge = merger if merge is None else merge
        for name, given in (("reducer", reducer), ("initializer", initializer), ("merge", merge)):
            if not callable(given) and not (name == "merge" and given is None):
                msg = (
                    f"Reduce takes a function as {name}, got {shown(given)}.\n"
                    "Fix: write Reduce(lambda state, value: ..., lambda value: ...)."
                )
                raise ConfigError(msg)
            refuse_async(given, f"Reduce({name}=...)")
        self._reducer = reducer
        self._initializer = initializer
        self._merge = merge

    @property
    def is_mergeable(self) -> bool:
        return self._merge is not None

    @property
    def signature(self) -> str:
        return f"Reduce({_name_of(self._reducer)}, {_name_of(self._initializer)})"

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        return self._initializer(value) if state is None else self._reducer(state, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        if self._merge is None:
            msg = (
                f"{self.signature} cannot merge the states of two runs of records.\n"
                "Fix: give it a merge=, a function of two states."
            )
            raise MillpondError(msg)
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self._merge(earlier, later)


def _name_of(function: Callable[..., Any]) -> str:
    named = getattr(function, "func", function)  # that of a functools.partial
    return str(getattr(named, "__name__", type(named).__name__))
