"""Values that state can keep, for property tests."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

__all__ = ["atoms", "hashable", "values"]

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.binary(max_size=8)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Europe/Berlin")]))
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
hashable = st.recursive(
    atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
values = st.recursive(
    atoms | hashable,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
        | st.sets(hashable, max_size=3)
    ),
    max_leaves=10,
)
