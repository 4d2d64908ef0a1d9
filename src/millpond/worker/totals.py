"""Several aggregations as one: the list of their states, and the dict of their results.

What is kept of a list says which layout it has. A list of the first layout is as long as that
layout and says nothing; after the states of any other stands its number, after a None where the
list would be as long as one of the first. So what version 0.1.0 kept can be read, and a program
that never changed its aggregations keeps no byte more. A list is lifted when it is read.
"""

from __future__ import annotations

from typing import Any

from millpond.aggregations import Aggregation
from millpond.errors import StateError
from millpond.program.layouts import Layouts, origins

__all__ = ["NOTHING", "Totals", "is_commutative"]

States = list[Any]

# Stands for the state of an aggregation that has not begun: a user's merge never sees `start()`.
NOTHING: Any = object()


class Totals:
    """Named aggregations at work.

    >>> from millpond.aggregations import Count, Sum
    >>> totals = Totals({"n": Count(), "amount": Sum("amount")})
    >>> totals.result(totals.add(totals.start(), {"amount": 3}, 0))
    {'n': 1, 'amount': 3}

    Args:
        aggregations: By field.
        by_arrival: Whether results go by the order of arrival, and not by time.
        layouts: All that what is kept may have, the present one last. Default: only the present.
    """

    def __init__(
        self,
        aggregations: dict[str, Aggregation],
        *,
        by_arrival: bool = False,
        layouts: Layouts = (),
    ) -> None:
        known: Layouts = layouts or [dict.fromkeys(aggregations, "")]
        order = list(known[-1])
        self._aggregations = [aggregations[name] for name in order]
        self._adds = [aggregation.add for aggregation in self._aggregations]
        self._results = [
            (name, order.index(name), a.result_by_arrival if by_arrival else a.result)
            for name, a in aggregations.items()
        ]
        self.is_commutative = all(map(is_commutative, self._aggregations))
        self.is_evolved = len(known) > 1
        """Whether what is kept has a mark, or may have another layout."""
        self._origins = origins(known)
        self._first = len(known[0])
        is_like_first = len(order) + 1 == self._first
        self._mark = [*[None] * is_like_first, len(known) - 1]
        self._count, self._length = len(order), len(order) + len(self._mark)

    def start(self) -> States:
        return [aggregation.start() for aggregation in self._aggregations]

    def add(self, states: States, value: Any, timestamp: int) -> States:
        """Return the states with one more value."""
        return [add(state, value, timestamp) for add, state in zip(self._adds, states, strict=True)]

    def merge(self, earlier: States, later: States) -> States:
        """Return the states of two runs of records, one after the other."""
        pairs = zip(self._aggregations, earlier, later, strict=True)
        if self.is_evolved:
            return [_merged(*pair) for pair in pairs]
        return [aggregation.merge(one, other) for aggregation, one, other in pairs]

    def merge_commutative(self, earlier: States, later: States) -> States:
        """Return lifted states merged where order does not count; the others have not begun."""
        pairs = zip(self._aggregations, earlier, later, strict=True)
        return [_merged(a, *two) if is_commutative(a) else two[0] for a, *two in pairs]

    def result(self, states: States) -> dict[str, Any]:
        return {name: result(states[place]) for name, place, result in self._results}

    # --- what is kept -----------------------------------------------------------------------

    def keep(self, states: States) -> States:
        """Return what is to be kept of states."""
        return states + self._mark if self.is_evolved else states

    def read(self, kept: States) -> States:
        """Return the states of what was kept; those of new aggregations start."""
        if not self.is_evolved:
            return kept
        if len(kept) == self._length and kept[-1] == self._mark[-1]:
            return kept[: self._count]  # of the present layout, as most are
        return self.started(self.lifted(kept))

    def lifted(self, kept: States) -> States:
        """Return the states of what was kept, for `merge`: new aggregations have not begun."""
        if not self.is_evolved:
            return kept
        number = 0 if len(kept) == self._first else (kept or [None])[-1]
        if type(number) is not int or not 0 <= number < len(self._origins):
            msg = f"the states of a key have the layout {number!r}, which is not known."
            fix = "rewind or restore the state with its manifest: millpond state rewind."
            raise StateError(f"{msg}\nFix: {fix}")
        return [NOTHING if i is None else kept[i] for i in self._origins[number]]

    def started(self, states: States) -> States:
        """Return lifted states in which every aggregation has begun."""
        pairs = zip(self._aggregations, states, strict=True)
        return [a.start() if state is NOTHING else state for a, state in pairs]


def is_commutative(aggregation: Aggregation) -> bool:
    """Tell whether states of records in any order can be merged."""
    return aggregation.is_commutative and aggregation.is_mergeable


def _merged(aggregation: Aggregation, earlier: Any, later: Any) -> Any:
    if earlier is NOTHING or later is NOTHING:
        return later if earlier is NOTHING else earlier
    return aggregation.merge(earlier, later)
