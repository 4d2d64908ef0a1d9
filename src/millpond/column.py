"""Expressions on the fields of a value: `sdf["price"] * 2`.

A `Column` is a small tree of callables: it takes a record's value (and what else a function
may ask for) and gives a value. It belongs to the frame it was taken from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.hints import missing, public
from millpond.errors import ConfigError, MillpondError, shown

__all__ = ["Column", "StreamingSeries"]

Evaluate = Callable[..., Any]


_OF_A_KEY = 'columns are about one record; totals of a key are sdf.agg(total=Sum("field")).'
_HINTS = {
    **dict.fromkeys(("sum", "count", "mean", "min", "max"), _OF_A_KEY),
    "map": 'sdf["a"].apply(function).',
    "is_not": 'sdf["a"].isnot(other).',
    "test": "run_local(sdf, records) of millpond.testing runs it without a broker.",
}


class Column:
    """A value computed from each record. Made by `sdf["field"]`; operators make new columns.

    >>> from millpond.testing import frame, run_local
    >>> sdf = frame()
    >>> sdf = sdf[(sdf["price"] > 10) & ~sdf["sold"]]
    >>> sdf["half"] = sdf["price"] / 2
    >>> run_local(sdf, [{"price": 12, "sold": False}, {"price": 20, "sold": True}])
    [{'price': 12, 'sold': False, 'half': 6.0}]
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        evaluate: Evaluate,
        text: str,
        owner: object = None,
        *,
        takes_state: bool = False,
        takes_metadata: bool = False,
    ) -> None:
        self._evaluate = evaluate
        self._text = text
        self._owner = owner
        """The frame that the column was taken from; it is evaluated where that frame uses it."""
        self._takes_state = takes_state
        self._takes_metadata = takes_metadata

    def __repr__(self) -> str:
        return f"Column({self._text})"

    def __bool__(self) -> bool:
        msg = (
            f"a column has no truth value of its own: {self._text}.\n"
            "Fix: use & for and, | for or, ~ for not, with parentheses around comparisons."
        )
        raise ConfigError(msg)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("a column", name, public(Column), _HINTS)

    def apply(self, func: Callable[[Any], Any]) -> Column:
        """Return the column of the function's results.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["page"].apply(len) > 1], [{"page": "/"}, {"page": "/tea"}])
        [{'page': '/tea'}]

        Args:
            func: A function of the value of the column.
        """
        refuse_async(func, "a column's apply()")
        return self._with(
            lambda mine: func(mine), f"{getattr(func, '__name__', 'f')}({self._text})"
        )

    def isin(self, other: Container[Any]) -> Column:
        """Tell for each record whether the value is in a container.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["page"].isin(["/", "/tea"])], [{"page": "/"}, {"page": "/cup"}])
        [{'page': '/'}]

        Args:
            other: A list, a set or another container.
        """
        return self._with(lambda mine: mine in other, f"{self._text} in {shown(other, 30)}")

    def contains(self, other: Any) -> Column:
        """Tell for each record whether the value contains another.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["tags"].contains("new")], [{"tags": ["new"]}, {"tags": []}])
        [{'tags': ['new']}]

        Args:
            other: A value, or a column of the same frame.
        """
        return self._binary(other, lambda mine, its: its in mine, "contains")

    def is_(self, other: Any) -> Column:
        """Tell for each record whether the value is the same object, as Python's `is` does.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["paid"].is_(True)], [{"paid": True}, {"paid": 1}])
        [{'paid': True}]

        Args:
            other: An object such as None, True or False, or a column of the same frame.
        """
        return self._binary(other, operator.is_, "is")

    def isnot(self, other: Any) -> Column:
        """Tell for each record whether the value is another object, as Python's `is not` does.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["paid"].isnot(True)], [{"paid": True}, {"paid": 1}])
        [{'paid': 1}]

        Args:
            other: An object such as None, True or False, or a column of the same frame.
        """
        return self._binary(other, operator.is_not, "is not")

    def isnull(self) -> Column:
        """Tell for each record whether the value is None.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["user"].isnull()], [{"user": None}, {"user": "ann"}])
        [{'user': None}]
        """
        return self._with(lambda mine: mine is None, f"{self._text} is None")

    def notnull(self) -> Column:
        """Tell for each record whether the value is not None.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["user"].notnull()], [{"user": None}, {"user": "ann"}])
        [{'user': 'ann'}]
        """
        return self._with(lambda mine: mine is not None, f"{self._text} is not None")

    def abs(self) -> Column:
        """Return the absolute value.

        >>> from millpond.testing import frame, run_local
        >>> sdf = frame()
        >>> run_local(sdf[sdf["change"].abs() > 10], [{"change": -12}, {"change": 3}])
        [{'change': -12}]
        """
        return self._with(abs, f"abs({self._text})")

    def __getitem__(self, item: Any) -> Column:
        return self._with(lambda mine: field(mine, item), f"{self._text}[{item!r}]")

    def __invert__(self) -> Column:
        return self._with(operator.not_, f"~{self._text}")

    def __neg__(self) -> Column:
        return self._with(operator.neg, f"-{self._text}")

    def __add__(self, other: Any) -> Column:
        return self._binary(other, operator.add, "+")

    def __radd__(self, other: Any) -> Column:
        return self._binary(other, lambda mine, its: its + mine, "r+")

    def __sub__(self, other: Any) -> Column:
        return self._binary(other, operator.sub, "-")

    def __rsub__(self, other: Any) -> Column:
        return self._binary(other, lambda mine, its: its - mine, "r-")

    def __mul__(self, other: Any) -> Column:
        return self._binary(other, operator.mul, "*")

    def __rmul__(self, other: Any) -> Column:
        return self._binary(other, lambda mine, its: its * mine, "r*")

    def __truediv__(self, other: Any) -> Column:
        return self._binary(other, operator.truediv, "/")

    def __rtruediv__(self, other: Any) -> Column:
        return self._binary(other, lambda mine, its: its / mine, "r/")

    def __mod__(self, other: Any) -> Column:
        return self._binary(other, operator.mod, "%")

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._binary(other, operator.eq, "==")

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._binary(other, operator.ne, "!=")

    def __lt__(self, other: Any) -> Column:
        return self._binary(other, operator.lt, "<")

    def __le__(self, other: Any) -> Column:
        return self._binary(other, operator.le, "<=")

    def __gt__(self, other: Any) -> Column:
        return self._binary(other, operator.gt, ">")

    def __ge__(self, other: Any) -> Column:
        return self._binary(other, operator.ge, ">=")

    def __and__(self, other: Any) -> Column:
        return self._binary(other, _and, "&")

    def __or__(self, other: Any) -> Column:
        return self._binary(other, _or, "|")

    def _with(self, function: Callable[[Any], Any], text: str) -> Column:
        evaluate = self._evaluate
        return self._like(lambda *record: function(evaluate(*record)), text, self)

    def _binary(self, other: Any, function: Callable[[Any, Any], Any], sign: str) -> Column:
        left = self._evaluate
        if isinstance(other, Column):
            if other._owner is not self._owner:
                msg = (
                    f"{self._text} and {other._text} belong to different frames.\n"
                    "Fix: take both columns from the same frame."
                )
                raise ConfigError(msg)
            right = other._evaluate
            if function in (_and, _or):
                return self._like(
                    _lazy(left, right, function is _and),
                    f"({self._text} {sign} {other._text})",
                    self,
                    other,
                )
            return self._like(
                lambda *record: function(left(*record), right(*record)),
                f"({self._text} {sign} {other._text})",
                self,
                other,
            )
        return self._with(
            lambda mine: function(mine, other), f"({self._text} {sign} {shown(other, 30)})"
        )

    def _like(self, evaluate: Evaluate, text: str, *parts: Column) -> Column:
        return Column(
            evaluate,
            text,
            self._owner,
            takes_state=any(part._takes_state for part in parts),
            takes_metadata=any(part._takes_metadata for part in parts),
        )


StreamingSeries = Column
"""Quix Streams' name for it."""


def _and(mine: Any, its: Any) -> Any:
    return mine and its


def _or(mine: Any, its: Any) -> Any:
    return mine or its


def _lazy(left: Evaluate, right: Evaluate, is_and: bool) -> Evaluate:
    """The second operand is looked at only where the first does not decide."""
    if is_and:
        return lambda *record: left(*record) and right(*record)
    return lambda *record: left(*record) or right(*record)


def field(value: Any, name: Any) -> Any:
    """Return a field of a value, or say which fields there are."""
    try:
        return value[name]
    except (KeyError, IndexError):
        known = list(value) if isinstance(value, dict) else f"{len(value)} items"
        msg = (
            f"the value has no field {name!r}; it has {shown(known)}.\n"
            f"Fix: check the name, or test for it with sdf.contains({name!r})."
        )
        raise MillpondError(msg) from None
    except TypeError:
        msg = (
            f"field {name!r} was asked of a value of type {type(value).__name__}: {shown(value)}.\n"
            "Fix: columns need values that are dicts; use apply() for others."
        )
        raise MillpondError(msg) from None
