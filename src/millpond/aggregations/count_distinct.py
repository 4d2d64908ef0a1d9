"""`CountDistinct`: how many different values; exact for few, a sketch for many."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from millpond.aggregations.base import Builtin
from millpond.aggregations.value_codes import BY_VALUE, by_value, code_of
from millpond.errors import ConfigError, MillpondError, shown

__all__ = ["CountDistinct"]


class CountDistinct(Builtin):
    """The number of unlike values, None left out: exact up to a limit, then a close estimate.

    Above `exact_to` unlike values it keeps a HyperLogLog sketch of 4 KiB, whose estimate is
    rarely off by more than 3 % and depends neither on order nor on merging. Numbers are alike if
    they are equal, as for `drop_duplicates`: 1, 1.0, True and Decimal("1.0") are one, and "1" is
    another. Values of other types are alike if they are of one type and equal; of each type of
    number, any NaN is like any other.

    >>> from millpond.testing import frame, run_local
    >>> visits = [{"user": "ann"}, {"user": "bob"}, {"user": "ann"}]
    >>> run_local(frame().agg(x=CountDistinct("user")), visits)[-1]["x"]
    2
    """

    is_commutative = True

    def __init__(self, column: str | None = None, exact_to: int = 1000) -> None:
        super().__init__(column)
        if type(exact_to) is not int or exact_to < 0:
            msg = (
                f"CountDistinct takes a number from 0 as exact_to, got {shown(exact_to)}.\n"
                'Fix: write how many values to keep exactly, as in CountDistinct("user", 1000).'
            )
            raise ConfigError(msg)
        self.exact_to = exact_to

    @property
    def signature(self) -> str:
        parts = (self.column, str(self.exact_to))
        return f"{type(self).__name__}({', '.join(filter(None, parts))})"

    def start(self) -> set[bytes]:
        return {BY_VALUE}

    def _take(self, state: set[bytes] | bytes, value: Any, timestamp: int) -> set[bytes] | bytes:
        try:
            coded = code_of(value)
        except KeyError:
            raise self._uncoded(value) from None
        if isinstance(state, bytes):
            return _sketch_with(state, (coded,))
        state = by_value(state)
        state.add(coded)
        return self._bounded(state)

    def merge(self, earlier: set[bytes] | bytes, later: set[bytes] | bytes) -> set[bytes] | bytes:
        if isinstance(earlier, bytes):
            if isinstance(later, bytes):
                return _sketch_of_both(earlier, later)
            return _sketch_with(earlier, by_value(later) - {BY_VALUE})
        if isinstance(later, bytes):
            return _sketch_with(later, by_value(earlier) - {BY_VALUE})
        earlier = by_value(earlier)
        earlier |= by_value(later)
        return self._bounded(earlier)

    def _bounded(self, state: set[bytes]) -> set[bytes] | bytes:
        return state if len(state) - 1 <= self.exact_to else _sketch_of(state - {BY_VALUE})

    def result(self, state: set[bytes] | bytes) -> int:
        if not isinstance(state, bytes):
            return len(by_value(state)) - 1
        # There is a sketch because there were more than the limit: never tell fewer.
        return max(_estimate(state), self.exact_to + 1)

    def _uncoded(self, value: Any) -> MillpondError:
        return MillpondError(
            f"{self._label()} cannot tell values of type {type(value).__name__} apart, or of "
            f"what is inside: {shown(value)}.\n"
            "Fix: make it text, a number or a tuple of such before, or name "
            f"{'a' if self.column is None else 'another'} column."
        )


# Registers of a sketch, as a power of two: 4096 bytes, and a standard error of 1.6 %.
_LG_K = 12


def _sketch_of(values: Iterable[bytes]) -> bytes:
    """Return the sketch of values, of which there is one at least.

    All registers are there from the beginning, and the sketch has been through a union: so it
    estimates from its registers alone, and equal sets of values have equal bytes.
    """
    hll = _sketches()
    sketch = hll.hll_sketch(_LG_K, hll.tgt_hll_type.HLL_8, True)
    for coded in values:
        sketch.update(coded.decode("latin-1"))
    return _union(sketch, sketch)


def _sketch_with(data: bytes, values: Iterable[bytes]) -> bytes:
    sketch = _sketches().hll_sketch.deserialize(data)
    for coded in values:
        sketch.update(coded.decode("latin-1"))
    return bytes(sketch.serialize_compact())


def _sketch_of_both(one: bytes, other: bytes) -> bytes:
    read = _sketches().hll_sketch.deserialize
    return _union(read(one), read(other))


def _union(one: Any, other: Any) -> bytes:
    hll = _sketches()
    union = hll.hll_union(_LG_K)
    union.update(one)
    union.update(other)
    return bytes(union.get_result(hll.tgt_hll_type.HLL_8).serialize_compact())


def _estimate(data: bytes) -> int:
    return round(float(_sketches().hll_sketch.deserialize(data).get_estimate()))


@functools.cache
def _sketches() -> Any:
    """Imported when first needed: it loads NumPy."""
    import datasketches

    return datasketches
