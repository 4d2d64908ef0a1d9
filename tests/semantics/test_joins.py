"""Joins by their definition: every order of arrival and every cut into batches gives the same."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.testing import frame, run_local

MOST = 60


def record(side, key, timestamp, number):
    return key, {"side": side, "n": number, "at": timestamp}, timestamp


LAST = record("neither", "z", 10_000, -1)
"""Moves the watermark to where all is over."""


def side_of(sdf, side):
    return sdf.filter(lambda value: value["side"] == side)


def pair(left, right):
    return tuple(None if one is None else one["n"] for one in (left, right))


# --- what a join is, by definition --------------------------------------------------------------


def interval_pairs(records, how, backward, forward):
    lefts = [(key, v) for key, v, _ in records if v["side"] == "l"]
    rights = [(key, v) for key, v, _ in records if v["side"] == "r"]
    pairs = [
        (key, left, right)
        for key, left in lefts
        for other, right in rights
        if key == other and -backward <= right["at"] - left["at"] <= forward
    ]
    met = {v["n"] for _, *both in pairs for v in both}
    if how in ("left", "outer"):
        pairs += [(key, left, None) for key, left in lefts if left["n"] not in met]
    if how in ("right", "outer"):
        pairs += [(key, None, right) for key, right in rights if right["n"] not in met]
    return Counter(
        (key, *pair(left, right), max(v["at"] for v in (left, right) if v))
        for key, left, right in pairs
    )


def asof_pairs(records, how, direction, reach):
    found = Counter()
    for key, left, time in records:
        if left["side"] != "l":
            continue
        # By distance, before after, and of those of one time the last that came first.
        near = sorted(
            (abs(at - time), at > time, -number)
            for number, (other, right, at) in enumerate(records)
            if right["side"] == "r"
            and other == key
            and abs(at - time) <= reach
            and (direction != "forward" or at >= time)
            and (direction != "backward" or at <= time)
        )
        met = records[-near[0][2]][1] if near else None
        if met or how == "left":
            found[key, *pair(left, met), time] += 1
    return found


# --- the engine against it ----------------------------------------------------------------------


@st.composite
def arrivals(draw):
    """Records of two sides and two keys in some order, and how they are cut into batches."""
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from("lr"), st.sampled_from("ab"), st.integers(0, MOST)),
            max_size=40,
        )
    )
    records = [record(*one, number) for number, one in enumerate(drawn)]
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=50))
    return records, sizes


def results(joined, records, sizes):
    """What comes out, each with its key and time; whatever is open at the end is closed."""
    out = joined.apply(lambda value, key, time, headers: (key, *value, time), metadata=True)
    return Counter(run_local(out, [*records, LAST], batches=[*sizes, 100]))


def on_time():
    """A frame whose records can be out of order as they like, and are not late."""
    return frame().watermark(lateness=MOST + 1)


bounds = st.tuples(st.integers(-20, 20), st.integers(-20, 20)).filter(lambda both: sum(both) >= 0)
hows = st.sampled_from(["inner", "left", "right", "outer"])


@given(arrivals(), hows, bounds)
@settings(max_examples=300)
def test_an_interval_join_gives_each_pair_once_in_any_order_and_cut(arrived, how, both):
    records, sizes = arrived
    backward, forward = both
    sdf = on_time()
    joined = side_of(sdf, "l").join_interval(
        side_of(sdf, "r"), how, pair, backward_ms=backward, forward_ms=forward
    )

    assert results(joined, records, sizes) == interval_pairs(records, how, backward, forward)


@given(arrivals(), hows, bounds, st.integers(0, 15))
@settings(max_examples=300)
def test_what_is_late_for_an_interval_join_is_told_and_all_else_is_joined(
    arrived, how, both, grace
):
    records, sizes = arrived
    backward, forward = both
    sdf = frame().watermark(lateness=5)
    joined = side_of(sdf, "l").join_interval(
        side_of(sdf, "r"), how, pair, grace, backward_ms=backward, forward_ms=forward
    )
    late = joined.late().apply(lambda report: ("late", report["value"]["n"]))
    out = joined.apply(lambda value, key, time, headers: (key, *value, time), metadata=True)
    run = run_local(out.concat(late), [*records, LAST], batches=[*sizes, 100])

    missed = {value[1] for value in run if value[0] == "late"}
    joinable = [one for one in records if one[1]["n"] not in missed]
    given = Counter(value for value in run if value[0] != "late")
    assert given == interval_pairs(joinable, how, backward, forward)
    assert sum(report.late for report in run.reports) == len(missed)


@given(
    arrivals(),
    st.sampled_from(["inner", "left"]),
    st.sampled_from(["backward", "forward", "nearest"]),
    st.integers(0, 30),
)
@settings(max_examples=400)
def test_an_asof_join_gives_the_nearest_in_any_order_and_cut(arrived, how, direction, reach):
    records, sizes = arrived
    sdf = on_time()
    joined = side_of(sdf, "l").join_asof(
        side_of(sdf, "r"), how, pair, direction=direction, tolerance=reach
    )

    assert results(joined, records, sizes) == asof_pairs(records, how, direction, reach)


@given(arrivals(), st.integers(0, 30))
@settings(max_examples=200)
def test_an_asof_join_finds_no_right_record_that_is_older_than_its_grace(arrived, grace):
    records, sizes = arrived
    sdf = on_time()
    joined = side_of(sdf, "l").join_asof(side_of(sdf, "r"), "left", pair, grace)

    assert results(joined, records, sizes) == asof_pairs(records, "left", "backward", grace)


@given(arrivals(), st.sampled_from(["backward", "forward", "nearest"]))
@settings(max_examples=200)
def test_every_left_record_of_an_asof_join_comes_out_or_is_late(arrived, direction):
    records, sizes = arrived
    sdf = frame().watermark(lateness=3)
    joined = side_of(sdf, "l").join_asof(
        side_of(sdf, "r"), "left", pair, direction=direction, tolerance=10
    )
    late = joined.late().apply(lambda report: ("late", report["side"], report["value"]["n"]))
    run = run_local(joined.concat(late), [*records, LAST], batches=[*sizes, 100])

    lefts = {one["n"] for _, one, _ in records if one["side"] == "l"}
    told = [value[2] for value in run if value[0] == "late" and value[1] == "left"]
    given = [value[0] for value in run if value[0] != "late"]
    assert sorted([*given, *told]) == sorted(lefts)
