"""What every aggregation is: a state, how a record changes it, and the result that it gives."""

from __future__ import annotations

from types import NoneType
from typing import Any

from millpond.column import field
from millpond.errors import ConfigError, MillpondError, shown

__all__ = ["Aggregation", "Builtin", "is_builtin", "no_add", "plain"]


class Aggregation:
    """What is kept of a run of records. Base of the built-in ones and of your own.

    Your own one says what to `add`, and if it likes where to `start` and what the `result` is.
    With a `merge`, records are brought together before they move.

    >>> class Longest(Aggregation):
    ...     def start(self):
    ...         return ""
    ...
    ...     def add(self, state, value, timestamp):
    ...         return value if len(value) > len(state) else state
    >>> longest = Longest()
    >>> state = longest.add(longest.start(), "pond", 0)
    >>> longest.result(longest.add(state, "mill", 1))
    'pond'
    """

    column: str | None = None

    is_columnar: bool = False
    """Whether nothing is asked of a value but what its column has."""

    is_commutative: bool = False
    """Whether neither the order of `add` nor that of the parts of `merge` matters, ties aside."""

    def __init__(self, column: str | None = None) -> None:
        if column is not None and (not isinstance(column, str) or not column):
            kind = type(self).__name__
            msg = (
                f"{kind} takes the name of a column or None, got {shown(column)}.\n"
                f'Fix: pass a text, as in {kind}("amount"), or nothing to take the whole value.'
            )
            raise ConfigError(msg)
        self.column = column

    def __repr__(self) -> str:
        return self.signature

    @property
    def is_mergeable(self) -> bool:
        """Whether the states of two runs of records can be made one."""
        return type(self).merge is not Aggregation.merge

    @property
    def signature(self) -> str:
        """What is kept, in a word. Who has the same signature can read the state.

        The name of the class, with the column if there is one. Override it where more decides
        what a state looks like.
        """
        return f"{type(self).__name__}({self.column or ''})"

    def start(self) -> Any:
        """Return the state before the first record: None, unless overridden."""
        return None

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        """Return the state after one more record.

        Args:
            state: What `start`, `add` or `merge` returned.
            value: The whole value of the record.
            timestamp: That of the record, in milliseconds.
        """
        raise MillpondError(no_add(self))

    def add_many(self, state: Any, found: list[Any], timestamps: list[int]) -> Any:
        """Return the state after many more records: the same as `add` for each, maybe faster.

        Args:
            state: What `start`, `add` or `merge` returned.
            found: The values, or what their column has if the aggregation `is_columnar`.
            timestamps: Those of the records.
        """
        for value, timestamp in zip(found, timestamps, strict=True):
            state = self.add(state, value, timestamp)
        return state

    def merge(self, earlier: Any, later: Any) -> Any:
        """Return the state of two runs of records, of which one arrived after the other."""
        msg = (
            f"{self.signature} cannot merge the states of two runs of records.\n"
            "Fix: give it a merge(earlier, later)."
        )
        raise MillpondError(msg)

    def result(self, state: Any) -> Any:
        """Return the result for the records: the state, unless overridden."""
        return state

    def result_by_arrival(self, state: Any) -> Any:
        """Return the result where it is the order of arrival that counts, and not the time."""
        return self.result(state)

    # --- the names that Quix Streams has ----------------------------------------------------

    def initialize(self) -> Any:
        """Return the state before the first record; see `start`."""
        return self.start()

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        """Return the state after one more record; see `add`."""
        return self.add(old, new, timestamp)

    def plain(self, state: Any) -> Any:
        """Return a state as a method that a subclass overrides is given it: without exact sums."""
        return state

    def _label(self) -> str:
        """The call, as it is written in a program."""
        return f"{type(self).__name__}({'' if self.column is None else repr(self.column)})"


class Builtin(Aggregation):
    """Looks up the column and leaves out None; the rest is in `_take`."""

    is_columnar = True

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        if self.column is not None:
            value = field(value, self.column)
        return state if value is None else self._take(state, value, timestamp)

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        raise NotImplementedError

    def add_many(self, state: Any, found: list[Any], timestamps: list[int]) -> Any:
        kinds = set(map(type, found))
        known = found
        if NoneType in kinds:
            known = [value for value in found if value is not None]
            kinds.discard(NoneType)
        try:
            taken = self._take_many(state, known, kinds)
        except Exception:  # one by one, it is said which and why
            taken = None
        if taken is not None:
            return taken
        for value, timestamp in zip(found, timestamps, strict=True):
            state = state if value is None else self._take(state, value, timestamp)
        return state

    def _take_many(self, state: Any, values: list[Any], kinds: set[type]) -> Any:
        """Return the state with all values, or None where they must be taken one by one."""
        return None


def is_builtin(kind: type) -> bool:
    """Tell whether an aggregation is one of Millpond's own, which nobody has changed."""
    package, _, module = kind.__module__.rpartition(".")
    return package == __package__ and module != "user_defined"


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as what Python has for it, and everything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def no_add(given: Aggregation) -> str:
    return (
        f"{type(given).__name__} does not say what to do with a record.\n"
        "Fix: give it an add(self, state, value, timestamp) that returns the next state."
    )
