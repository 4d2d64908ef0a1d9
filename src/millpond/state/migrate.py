"""State of an older version of a program, lifted when it is read.

Takes functions that make the values of version 2 from those of version 1, and so on; gives a
`State` that a function of the newest version can use. A key is lifted when it is first touched,
and its version is kept beside its values: a key without one is of version 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.arguments.duration import Duration
from millpond.errors import StateError, ValueTypeError, shown
from millpond.state.key_context import KeyContext
from millpond.state.stored import version_name
from millpond.state.view import UNSET, State

__all__ = ["Lifts", "MigratingState", "version_of"]

Lifts = dict[int, Callable[[dict[Any, Any]], dict[Any, Any]]]
"""For each version the function that makes the next one's values of its values."""


def version_of(lifts: Lifts) -> int:
    """Return the version to which functions lift."""
    return max(lifts, default=0) + 1


class MigratingState(State):
    """A state whose values are lifted before anybody sees them."""

    __slots__ = ("_lifts", "_mark", "_version")

    def __init__(self, context: KeyContext, store: str, lifts: Lifts, **options: Any) -> None:
        super().__init__(context, store, **options)
        self._lifts = lifts
        self._version = version_of(lifts)
        self._mark = version_name(store)

    def get(self, key: Any, default: Any = None) -> Any:
        self._lift()
        return super().get(key, default)

    def set(self, key: Any, value: Any, ttl: Duration | None = UNSET) -> None:
        self._lift()
        super().set(key, value, ttl)
        self._note()

    def delete(self, key: Any) -> None:
        self._lift()
        super().delete(key)
        if not super().keys():
            self._context.remove(self._mark)

    def exists(self, key: Any) -> bool:
        self._lift()
        return super().exists(key)

    def keys(self) -> list[Any]:
        self._lift()
        return super().keys()

    def _lift(self) -> None:
        entry = self._cursor.place.entry
        if entry is None:
            return
        version = entry.get(self._mark, 1)
        if version == self._version:
            return
        names = super().keys()
        if not names:
            return
        if version > self._version:
            msg = (
                f"the state of a key is of version {version}, and the program knows versions up to "
                f"{self._version}.\nFix: run the newer program, or rewind to before it."
            )
            raise StateError(msg)
        before = {name: super(MigratingState, self).get(name) for name in names}
        after = dict(before)
        for number in range(version, self._version):
            after = self._lifts[number](after)
            if type(after) is not dict:
                msg = f"a migration from version {number} gave {shown(after)}, not a dict."
                raise ValueTypeError(msg + "\nFix: return the names and values of the key.")
        # Read once more: a function may have changed what it was given.
        self._write({name: super(MigratingState, self).get(name) for name in names}, after)

    def _write(self, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        self._note()
        for name in before.keys() - after.keys():
            super().delete(name)
        for name, value in after.items():
            if name not in before:
                super().set(name, value, None)
            elif type(value) is not type(before[name]) or value != before[name]:
                self._replace(name, value)

    def _note(self) -> None:
        entry = self._cursor.place.entry
        if entry is not None and entry.get(self._mark) != self._version:
            self._context.put(self._mark, self._version)
