"""Every method that a user's aggregation overrides is used, on each way that records take."""

import pytest

import millpond as mp
from millpond.aggregations.user_defined import as_aggregation
from millpond.testing import frame, run_local


class Doubled(mp.Sum):
    def agg(self, old, new, timestamp):
        return old + 2 * (new if self.column is None else new[self.column])


class DoubledByOurNames(mp.Sum):
    def add(self, state, value, timestamp):
        return super().add(state, {"a": 2 * value["a"]}, timestamp)


class DoubledBySuper(mp.Sum):
    def agg(self, old, new, timestamp):
        return super().agg(old, {"a": 2 * new["a"]}, timestamp)


class FromTen(mp.Count):
    def initialize(self):
        return 10


class Rounded(mp.Sum):
    def result(self, value):
        return round(value, 1)


class MeanOfMore(mp.Mean):
    def result(self, value):
        total, count = value
        return total / (count + 1)


class Nested(mp.Mean):
    def result(self, value):
        return [super().result(value)]


class Longest(mp.Collect):
    def result(self, items):
        return max(super().result(items))


class Spread(mp.Collector):
    def result(self, items):
        items = list(items)
        return items, max(items) - min(items)


class Product(mp.Aggregator):
    def initialize(self):
        return 1

    def agg(self, old, new, timestamp):
        return old * new[self.column]

    def result(self, value):
        return value

    def merge(self, a, b):
        raise AssertionError("only sessions that do not overlap may be merged")


class InQuixNames(mp.Aggregation):
    def initialize(self):
        return []

    def agg(self, old, new, timestamp):
        return [*old, new["a"]]

    def result(self, value):
        return sorted(value)


VALUES = [4, 1, 2]

OWN = [
    (Doubled("a"), VALUES, 14),
    (Doubled("a"), [0.5, 0.25], 1.5),
    (DoubledByOurNames("a"), VALUES, 14),
    (DoubledBySuper("a"), [0.5, 0.25], 1.5),
    (FromTen("a"), VALUES, 13),
    (Rounded("a"), [0.25, 0.51], 0.8),
    (MeanOfMore("a"), [0.5, 1.5, 1.0], 0.75),
    (Nested("a"), [0.5, 1.5], [1.0]),
    (Longest("a"), VALUES, 4),
    (Spread("a"), VALUES, ([4, 1, 2], 3)),
    (Product("a"), VALUES, 8),
    (InQuixNames(), VALUES, [1, 2, 4]),
]

WAYS = {
    "combined": lambda sdf, agg: sdf.group_by("k").tumbling_window(100).agg(v=agg).final(),
    "watermark": lambda sdf, agg: sdf.tumbling_window(100).agg(v=agg).final(),
    "key": lambda sdf, agg: sdf.hopping_window(100, 100).agg(v=agg).final("key"),
    "session": lambda sdf, agg: sdf.session_window(10).agg(v=agg).final(),
    "sliding": lambda sdf, agg: sdf.sliding_window(50).agg(v=agg).final(),
    "totals": lambda sdf, agg: sdf.group_by("k").agg(v=agg, emit="batch"),
    "each": lambda sdf, agg: sdf.agg(v=agg),
}


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("own", "values", "expected"), OWN, ids=[type(own).__name__ for own, *_ in OWN]
)
def test_what_an_own_aggregation_overrides_is_used(own, values, expected, way, cut):
    program = WAYS[way](frame(), own)
    # The last record closes the window; the one before it is the last of those that count.
    records = [("x", {"a": a, "k": "x"}, 10 + i) for i, a in enumerate(values)]
    closing = [] if way in ("totals", "each") else [("x", {"a": 1, "k": "x"}, 1000)]

    given = [result["v"] for result in run_local(program, records + closing, batches=cut)]

    assert expected in given


def test_items_of_a_counted_window_come_in_the_order_of_arrival():
    program = frame().tumbling_count_window(3).agg(v=Spread("a")).final()
    records = [("x", {"a": a}, 10 - a) for a in (1, 2, 0)]

    (result,) = run_local(program, records)

    assert result["v"] == ([1, 2, 0], 2)


def test_sessions_that_are_joined_ask_an_own_aggregation_for_every_record():
    program = frame().session_window(10, grace_ms=100).agg(v=Product("a"), n=FromTen()).final()
    records = [("x", {"a": a}, at) for a, at in ((2, 0), (3, 16), (5, 8), (1, 500))]

    for cut in (None, 1):
        (first, *_) = run_local(program, records, batches=cut)
        assert (first["start"], first["v"], first["n"]) == (0, 30, 13)


def test_state_of_floats_that_a_subclass_kept_before_is_read():
    exact = mp.Sum("a").add(0, {"a": 0.5}, 0)  # what 0.1.0 kept for a subclass, too
    adapted = as_aggregation(Doubled("a"), "v")

    assert adapted.result(adapted.add(exact, {"a": 1.0}, 1)) == 2.5


@pytest.mark.parametrize("name", ["merge", "merger"])
def test_reduce_takes_a_merger_under_both_names(name):
    reduce = mp.Reduce(lambda so_far, value: so_far + value, lambda value: value)
    with_merge = mp.Reduce(max, min, **{name: lambda one, other: one + other})

    assert not reduce.is_mergeable
    assert with_merge.merge(1, 2) == 3
