"""`First`, `Last`, `Earliest` and `Latest`: one record of many, by arrival or by time."""

from __future__ import annotations

from typing import Any

from millpond.aggregations.base import Builtin

__all__ = ["Earliest", "First", "Last", "Latest"]


class First(Builtin):
    """The value that came first, None left out.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=First("page")), [{"page": "/"}, {"page": "/tea"}])[-1]["x"]
    '/'
    """

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return value if state is None else state

    def merge(self, earlier: Any, later: Any) -> Any:
        return later if earlier is None else earlier


class Last(Builtin):
    """The value that came last, None left out.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Last("page")), [{"page": "/"}, {"page": "/tea"}])[-1]["x"]
    '/tea'
    """

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return value

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier if later is None else later


class _ByTime(Builtin):
    """A value and its timestamp."""

    is_commutative = True

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier if later is None else self._take(earlier, *later)

    def result(self, state: Any) -> Any:
        return None if state is None else state[0]


class Earliest(_ByTime):
    """The value with the smallest timestamp, None left out.

    Of those with the same timestamp it is the one that came first; this alone depends on order.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Earliest()), [("ann", "b", 20), ("ann", "a", 10)])[-1]["x"]
    'a'
    """

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return (value, timestamp) if state is None or timestamp < state[1] else state


class Latest(_ByTime):
    """The value with the largest timestamp, None left out.

    Of those with the same timestamp it is the one that came last; this alone depends on order.

    >>> from millpond.testing import frame, run_local
    >>> run_local(frame().agg(x=Latest()), [("ann", "b", 20), ("ann", "a", 10)])[-1]["x"]
    'b'
    """

    def _take(self, state: Any, value: Any, timestamp: int) -> Any:
        return (value, timestamp) if state is None or timestamp >= state[1] else state
