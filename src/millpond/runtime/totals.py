"""Several aggregations as one: the list of their states, and the dict of their results."""

from __future__ import annotations

from typing import Any

from millpond.aggregations import Aggregation

__all__ = ["Totals"]

States = list[Any]


class Totals:
    """Named aggregations at work.

    >>> from millpond.aggregations import Count, Sum
    >>> totals = Totals({"n": Count(), "amount": Sum("amount")})
    >>> totals.result(totals.add(totals.start(), {"amount": 3}, 0))
    {'n': 1, 'amount': 3}
    """

    def __init__(self, aggregations: dict[str, Aggregation], *, by_arrival: bool = False) -> None:
        self._aggregations = list(aggregations.values())
        self._adds = [aggregation.add for aggregation in self._aggregations]
        self._results = [
            (name, a.result_by_arrival if by_arrival else a.result)
            for name, a in aggregations.items()
        ]
        self.is_commutative = all(a.is_commutative and a.is_mergeable for a in self._aggregations)

    def start(self) -> States:
        return [aggregation.start() for aggregation in self._aggregations]

    def add(self, states: States, value: Any, timestamp: int) -> States:
        """Return the states with one more value."""
        return [add(state, value, timestamp) for add, state in zip(self._adds, states, strict=True)]

    def merge(self, earlier: States, later: States) -> States:
        """Return the states of two runs of records, one behind the other."""
        return [
            aggregation.merge(one, other)
            for aggregation, one, other in zip(self._aggregations, earlier, later, strict=True)
        ]

    def result(self, states: States) -> dict[str, Any]:
        return {
            name: result(state) for (name, result), state in zip(self._results, states, strict=True)
        }
