"""Aggregations of the user's own, as the engine needs them.

Takes what was given for an aggregation: one of ours, a subclass of one, an object with the methods
of ours or of Quix Streams. Gives an `Aggregation` that calls what the user wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from millpond.aggregations import Aggregation, Collect, Items, no_add
from millpond.aggregations.base import is_builtin
from millpond.arguments.async_functions import refuse_async
from millpond.errors import ConfigError, shown

__all__ = [
    "Adapted",
    "Aggregator",
    "BaseAggregator",
    "BaseCollector",
    "Collector",
    "as_aggregation",
]


class Aggregator(ABC):
    """Base of own aggregations with the methods that they have in Quix Streams.

    >>> class Product(Aggregator):
    ...     def initialize(self):
    ...         return 1
    ...
    ...     def agg(self, old, new, timestamp):
    ...         return old * new[self.column]
    ...
    ...     def result(self, value):
    ...         return value
    >>> from millpond.testing import frame, run_local
    >>> totals = frame().agg(product=Product("n"))
    >>> run_local(totals, [{"n": 2}, {"n": 5}])
    [{'product': 2}, {'product': 10}]
    """

    def __init__(self, column: str | None = None) -> None:
        self.column = column

    @property
    def state_suffix(self) -> str:
        """What tells its state from that of another one."""
        column = getattr(self, "column", None)
        return type(self).__name__ if column is None else f"{type(self).__name__}/{column}"

    @abstractmethod
    def initialize(self) -> Any:
        """Return the state before the first record."""

    @abstractmethod
    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        """Return the state after one more record."""

    @abstractmethod
    def result(self, value: Any) -> Any:
        """Return what a state means."""


class Collector(ABC):
    """Base of your own aggregations of all values at once, as in Quix Streams.

    >>> class Median(Collector):
    ...     def result(self, items):
    ...         items = sorted(items)
    ...         return items[len(items) // 2]
    >>> from millpond.testing import frame, run_local
    >>> window = frame().tumbling_count_window(3).agg(median=Median("ms"))
    >>> run_local(window.final(), [{"ms": 9}, {"ms": 1}, {"ms": 4}])[0]["median"]
    4
    """

    def __init__(self, column: str | None = None) -> None:
        self._column = column

    @property
    def column(self) -> str | None:
        """What is collected of a value; None: the whole value."""
        return self._column

    @abstractmethod
    def result(self, items: Iterable[Any]) -> Any:
        """Return what the values mean."""


BaseAggregator = Aggregator
BaseCollector = Collector


class Adapted(Aggregation):
    """An object with the methods of an aggregation; states are those that it makes itself."""

    def __init__(
        self,
        given: Any,
        start: Callable[[], Any],
        add: Callable[[Any, Any, int], Any],
        *,
        merges: bool,
        is_commutative: bool,
    ) -> None:
        column = getattr(given, "column", None)
        self.column = column if isinstance(column, str) else None
        self.is_commutative = is_commutative
        self._given = given
        self._start = start
        self._add = add
        self._merge = given.merge if merges else None

    @property
    def is_mergeable(self) -> bool:
        return self._merge is not None

    @property
    def signature(self) -> str:
        for name in ("signature", "state_suffix"):  # ours, that of Quix Streams
            own = getattr(self._given, name, None)
            if isinstance(own, str):
                return own
        return f"{type(self._given).__name__}({self.column or ''})"

    def start(self) -> Any:
        return self._start()

    def add(self, state: Any, value: Any, timestamp: int) -> Any:
        return self._add(self._plain(state), value, timestamp)

    def merge(self, earlier: Any, later: Any) -> Any:
        if self._merge is None:
            return super().merge(earlier, later)
        return self._merge(earlier, later)

    def result(self, state: Any) -> Any:
        return self._given.result(self._plain(state))

    def _plain(self, state: Any) -> Any:
        return self._given.plain(state) if isinstance(self._given, Aggregation) else state


class _Collected(Collect):
    """Collects for a `result` of the user's."""

    def __init__(self, given: Any) -> None:
        super().__init__(given.column)
        self._given = given

    @property
    def signature(self) -> str:
        return f"{type(self._given).__name__}({self.column or ''})"

    def result(self, state: list[Any]) -> Any:
        return self._given.result(Items(super().result(state)))

    def result_by_arrival(self, state: list[Any]) -> Any:
        return self._given.result(Items(super().result_by_arrival(state)))


def as_aggregation(given: Any, name: str) -> Aggregation:
    """Return what was given as an aggregation, or say what is wrong with it.

    Args:
        given: An `Aggregation`, or an object with `start`, `add`, `result` and perhaps `merge`,
            or one of Quix Streams: with `initialize`, `agg` and `result`, or a `Collector`.
        name: What it was given as, for the text of an error.
    """
    if isinstance(given, type):
        msg = (
            f"{name} needs an aggregation, got the class {given.__name__}.\n"
            f"Fix: write {given.__name__}(...), with parentheses."
        )
        raise ConfigError(msg)
    for method in ("initialize", "agg", "start", "add", "merge", "result"):
        refuse_async(getattr(given, method, None), f"{type(given).__name__}.{method}()")
    if isinstance(given, Aggregation):
        return _as_changed(given, name)
    if isinstance(given, Collector):
        return _Collected(given)
    for start, add in (("start", "add"), ("initialize", "agg")):
        if all(callable(getattr(given, method, None)) for method in (start, add, "result")):
            # A merge of Quix Streams may count on runs that do not overlap in time.
            merges = add == "add" and callable(getattr(given, "merge", None))
            return Adapted(
                given,
                getattr(given, start),
                getattr(given, add),
                merges=merges,
                is_commutative=getattr(given, "is_commutative", False) is True,
            )
    fix = 'use one such as Sum("amount"), or an object of your own subclass of Aggregation'
    if callable(given):
        fix = "use Reduce(reducer, initializer) for functions of your own"
    msg = f"{name} needs an aggregation, got {type(given).__name__}: {shown(given)}.\nFix: {fix}."
    raise ConfigError(msg)


def _as_changed(given: Aggregation, name: str) -> Aggregation:
    """Return an aggregation that calls every method that a subclass overrides.

    The built-in ones take many values at once and merge what they kept, and neither asks the
    methods of a subclass: one that overrides them is called record by record.
    """
    kind = type(given)
    own = [base for base in kind.__mro__ if issubclass(base, Aggregation)]
    home = next(base for base in own if is_builtin(base))
    changed = {
        method
        for method in ("initialize", "agg", "start", "add", "merge", "result")
        if getattr(kind, method) is not getattr(home, method)
    }
    speaks_quix = not changed.isdisjoint({"initialize", "agg"})
    if home is Aggregation and not speaks_quix:
        if "add" not in changed:
            raise ConfigError(f"{name}: {no_add(given)}")
        return given
    if changed <= {"merge"}:
        return given
    if home is Collect and changed == {"result"}:
        return _Collected(given)
    said = any("is_commutative" in vars(base) for base in own[: own.index(home)])
    return Adapted(
        given,
        given.initialize,
        given.agg,
        merges="merge" in changed and not speaks_quix,
        is_commutative=said and given.is_commutative,
    )
