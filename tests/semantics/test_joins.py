"""Joins by their definition: every order of arrival and every cut into batches gives the same."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import ConfigError, PlanError, SimulatedCrash, StateError, StepError
from millpond.testing import CRASH, LocalEngine, frame, run_local

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
def test_what_is_late_for_an_interval_join_is_reported_and_all_else_is_joined(
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
    reported = [value[2] for value in run if value[0] == "late" and value[1] == "left"]
    given = [value[0] for value in run if value[0] != "late"]
    assert sorted([*given, *reported]) == sorted(lefts)


# --- more than one join, and what is around it --------------------------------------------------


@given(arrivals(), st.integers(0, 20))
@settings(max_examples=100)
def test_a_frame_can_be_joined_with_itself(arrived, near):
    records, sizes = arrived
    sdf = on_time()
    joined = sdf.join_interval(sdf, on_merge=pair, backward_ms=near, forward_ms=near)

    both = [
        (key, {**value, "side": side}, time) for key, value, time in records for side in ("l", "r")
    ]
    expected = interval_pairs(both, "inner", near, near)
    found = results(joined, records, sizes)
    assert {value for value in found.elements() if value[0] == "z"} == {("z", -1, -1, 10_000)}
    del found["z", -1, -1, 10_000]
    assert found == expected


@given(arrivals())
@settings(max_examples=100)
def test_joins_follow_each_other_and_windows(arrived):
    records, sizes = arrived
    sdf = on_time()
    lefts, rights = side_of(sdf, "l"), side_of(sdf, "r")
    pairs = lefts.join_interval(
        rights, on_merge=lambda one, other: [one["n"], other["n"]], forward_ms=9
    )
    counts = rights.tumbling_window(20).count().final()
    last = pairs.join_asof(
        counts, "left", lambda both, count: (*both, count and count["start"]), name="last"
    )

    found = results(last, records, sizes)

    windows = {(key, value["at"] // 20 * 20) for key, value, _ in records if value["side"] == "r"}
    expected = Counter()
    for (key, one, other, time), times in interval_pairs(records, "inner", 0, 9).items():
        before = [start for name, start in windows if name == key and start <= time]
        expected[key, one, other, max(before, default=None), time] += times
    assert found == expected


@given(arrivals(), st.integers(1, 5))
@settings(max_examples=50)
def test_a_crash_in_any_batch_changes_nothing(arrived, after):
    records, sizes = arrived

    def run(items):
        sdf = on_time()
        lefts, rights = side_of(sdf, "l"), side_of(sdf, "r")
        near = lefts.join_interval(rights, "outer", pair, backward_ms=5, forward_ms=5)
        last = lefts.join_asof(rights, "left", pair, name="last")
        engine = LocalEngine(near.concat(last))
        engine.feed(items)
        while True:
            try:
                engine.run([*sizes, *[100] * 50])
                return Counter(engine.values)
            except SimulatedCrash:
                continue

    undisturbed = run([*records, LAST])
    crashed = run([*records[:after], CRASH, *records[after:], CRASH, LAST])
    assert crashed == undisturbed


def two_topics(**options):
    app = mp.Application(loglevel=None)
    orders = app.topic("orders", config=mp.TopicConfig(num_partitions=3))
    payments = app.topic("payments", key_deserializer="str", **options)
    return app.dataframe(orders).group_by("id"), app.dataframe(payments).group_by("order")


def test_two_topics_meet_by_a_field_and_the_slower_one_holds_the_time():
    orders, payments = two_topics()
    paid = orders.join_interval(
        payments,
        "left",
        lambda order, payment: (order["id"], payment and payment["sum"]),
        forward_ms=1_000,
    )
    engine = LocalEngine(paid)

    engine.feed({"orders": [("x", {"id": 1}, 0), ("x", {"id": 2}, 500), ("x", {"id": 3}, 9_000)]})
    assert list(engine.run()) == []  # payments say no time yet
    engine.feed(
        {"payments": [("y", {"order": 2, "sum": 7}, 1_500), ("y", {"order": 0, "sum": 0}, 5_000)]}
    )

    assert sorted(engine.run()) == [(1, None), (2, 7)]


def test_values_that_are_false_meet_like_others():
    sdf = frame()
    numbers = sdf.filter(lambda value: not isinstance(value, str))
    names = sdf.filter(lambda value: isinstance(value, str))
    records = [
        ("k", "a", 5),
        ("k", 0, 4),
        ("k", "b", 6),
        ("k", None, 6),
        ("k", "end", 100),
        ("k", 1, 100),
    ]

    found = run_local(names.join_asof(numbers, "left", lambda *both: both), records, batches=1)

    # None is the last number before "b", so what it meets is None, like a left record alone.
    assert list(found)[:2] == [("a", 0), ("b", None)]


def test_a_record_of_an_asof_join_keeps_its_time_and_headers():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(side_of(sdf, "r"), on_merge=pair)
    out = joined.apply(lambda *record: record, metadata=True)
    left, right, last = (
        record(side, "k", time, time) for side, time in (("l", 5), ("r", 4), ("x", 99))
    )

    found = run_local(out, [(*left, {"h": b"1"}), (*right, {"h": b"2"}), last], batches=1)

    assert list(found) == [((5, 4), "k", 5, [("h", b"1")])]


# --- what is made of two ------------------------------------------------------------------------

BOTH = [("k", {"l": 1, "same": "left"}, 1), ("k", {"r": 2, "same": "right"}, 1)]


def merged(on_merge, records=BOTH, how="inner", **options):
    sdf = frame()
    lefts, rights = sdf.filter(lambda v: "l" in v), sdf.filter(lambda v: "r" in v)
    joined = lefts.join_interval(rights, how, on_merge)
    return run_local(joined, [*records, ("k", {}, 100)], batches=1, **options)


@pytest.mark.parametrize(
    ("on_merge", "result"),
    [
        ("keep-left", {"l": 1, "r": 2, "same": "left"}),
        ("keep-right", {"l": 1, "r": 2, "same": "right"}),
        (lambda left, right: [left["same"], right["same"]], ["left", "right"]),
    ],
)
def test_fields_of_both_sides_are_merged_as_asked(on_merge, result):
    assert list(merged(on_merge)) == [result]


def test_a_field_that_both_sides_have_is_an_error_of_the_record():
    with pytest.raises(
        StepError, match=r"join.*(.|\n)*both sides of the join have 'same'(.|\n)*Fix: on_merge"
    ):
        merged("raise")

    run = merged("raise", on_error="dead-letter")
    assert list(run) == []
    assert [letter.value for letter in run.topics["local.dead-letters"]] == [
        b'{"r":2,"same":"right"}'
    ]


def test_what_a_merge_function_changes_is_changed_for_no_other_pair():
    def take(left, right):
        left["seen"].append(right["r"])
        return left["seen"]

    records = [("k", {"r": 1}, 1), ("k", {"r": 2}, 1), ("k", {"l": 0, "seen": []}, 1)]

    assert list(merged(take, records)) == [[1], [2]]


def test_values_that_are_no_dicts_need_a_function():
    sdf = frame()
    joined = sdf.join_asof(sdf)

    with pytest.raises(
        StepError, match=r"no dicts cannot be put together: 1(.|\n)*Fix: on_merge=lambda"
    ):
        run_local(joined, [("k", 1, 1), ("k", 2, 50)], batches=1)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("join", "text"),
    [
        (lambda a, b: a.join_interval(b, "cross"), "how is 'inner', 'left', 'right' or 'outer'"),
        (lambda a, b: a.join_asof(b, "outer"), "how is 'inner' or 'left'"),
        (lambda a, b: a.join_asof(b, on_merge="both"), "on_merge is 'raise'"),
        (lambda a, b: a.join_asof(b, direction="up"), "direction is 'backward', 'forward' or"),
        (lambda a, b: a.join_asof(b, direction="nearest"), "still to come"),
        (lambda a, b: a.join_asof(b, tolerance=-1), "tolerance must be 0 or more"),
        (lambda a, b: a.join_asof(b, emit="later"), "emit is 'watermark' or 'now'"),
        (lambda a, b: a.join_interval(b, backward_ms=-5, forward_ms=4), "ends before it begins"),
        (lambda a, b: a.join_interval(b, backward_ms=1.5), "backward_ms is an int"),
        (lambda a, b: a.join_interval(b, grace_ms=-1), "grace_ms must be 0 or more"),
        (lambda a, b: a.join_asof("b"), "a frame of the same application"),
        (lambda a, b: a.join_asof(frame()), "a frame of the same application"),
        (lambda a, b: a.join_asof(b, name="a/b"), "a text without '/'"),
        (lambda a, b: a.join_asof(b, name="default"), "'default' is the store of functions"),
        (lambda a, b: a.join_asof(b, on_merge=lambda one: one), "on_merge\\(\\) calls"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(join, text):
    sdf = frame()

    with pytest.raises(ConfigError, match=f"{text}(.|\n)*Fix:"):
        join(side_of(sdf, "l"), side_of(sdf, "r"))


@pytest.mark.parametrize(
    ("read_as", "key", "fix"),
    [
        ("bytes", "c1", "Fix: app.topic('customers', key_deserializer='str'); if a batch has read"),
        ("bytes", 7, "Fix: app.topic('customers', key_deserializer='int'); if a batch has read"),
        ("str", 7, "Fix: join by a key that is str on this side, too."),
    ],
)
@pytest.mark.parametrize("is_left", [True, False])
def test_keys_of_two_types_never_meet_and_are_refused(read_as, key, fix, is_left):
    app = mp.Application(loglevel=None)
    orders = app.dataframe(app.topic("orders"))
    orders = orders.group_by(lambda value: value["customer"], name="customer")
    customers = app.dataframe(app.topic("customers", key_deserializer=read_as))
    left, right = (orders, customers) if is_left else (customers, orders)
    engine = LocalEngine(left.join_interval(right, on_merge=pair))
    engine.feed({"customers": [("c1", {"n": 1}, 0)]})
    engine.feed({"orders": [(None, {"customer": key, "n": 2}, 0)]})

    with pytest.raises(StepError) as failed:
        engine.run()

    assert f"are {read_as}, so no two are equal.\n{fix}" in str(failed.value)


def test_keys_of_one_type_meet_wherever_they_are_from():
    app = mp.Application(loglevel=None)
    orders = app.dataframe(app.topic("orders")).group_by("customer")
    customers = app.dataframe(app.topic("customers", key_deserializer="str"))
    engine = LocalEngine(orders.join_interval(customers, on_merge=pair))
    engine.feed({"customers": [("c1", {"n": 1}, 0), (None, {"n": 3}, 0)]})
    engine.feed({"orders": [(None, {"customer": "c1", "n": 2}, 0)]})

    assert engine.run() == [(2, 1)]


def test_a_field_is_not_joined_with_the_keys_of_a_topic_that_are_bytes():
    app = mp.Application(loglevel=None)
    orders = app.dataframe(app.topic("orders"))
    customers = app.table(app.topic("customers"))
    message = r"keys of 'customers' are bytes(.|\n)*field 'customer'(.|\n)*Fix: app.topic\("

    for join in (
        lambda: orders.group_by("customer").join_asof(customers),
        lambda: customers.join_interval(orders.group_by("customer")),
        lambda: orders.join_table(customers, on="customer"),
        lambda: orders.join_table(customers, on="customer", broadcast=True),
        lambda: orders.as_table().join(customers, on="customer"),
    ):
        with pytest.raises(ConfigError, match=message):
            join()


def test_state_of_a_join_is_not_read_by_keys_of_another_type():
    def program(read_as):
        app = mp.Application(loglevel=None)
        customers = app.table(app.topic("customers", key_deserializer=read_as))
        orders = app.dataframe(app.topic("orders"))
        return orders.join_table(customers, on=lambda order: order["customer"], name="named")

    before = LocalEngine(program("bytes"))
    before.feed({"customers": [("c1", {"n": 1}, 0)]})
    before.run()

    with pytest.raises(
        StateError, match=r"table join, keys: right bytes(.|\n)*right str(.|\n)*Fix:"
    ):
        LocalEngine(program("str"), after=before)


def test_topics_whose_keys_are_read_differently_are_refused_where_they_are_joined():
    app = mp.Application(loglevel=None)
    orders = app.dataframe(app.topic("orders", key_deserializer="str"))
    customers = app.dataframe(app.topic("customers"))

    message = r"keys of 'orders' are str, and those of 'customers' bytes, so no two are equal"
    for join in (orders.join_asof, orders.join_interval):
        with pytest.raises(ConfigError, match=message):
            join(customers)
    with pytest.raises(ConfigError, match=message):
        orders.connect(customers, lambda value, state: None, lambda value, state: None)


def test_a_second_join_of_the_same_frames_needs_a_name():
    orders, payments = two_topics()
    orders.join_asof(payments, on_merge=pair)
    orders.join_interval(payments, on_merge=pair)
    with pytest.raises(
        PlanError, match=r"same name 'orders/id\+payments/order/join'(.|\n)*Fix: .*name="
    ):
        LocalEngine(orders)

    orders, payments = two_topics()
    orders.join_asof(payments, on_merge=pair)
    LocalEngine(orders.join_interval(payments, on_merge=pair, name="again"))


# --- the timing of Quix Streams -----------------------------------------------------------------


def test_now_a_left_record_meets_what_is_there():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(side_of(sdf, "r"), "left", pair, emit="now")
    records = [
        record(*one)
        for one in [("l", "k", 5, 0), ("r", "k", 3, 1), ("l", "k", 4, 2), ("l", "k", 2, 3)]
    ]

    assert list(run_local(joined, records, batches=1)) == [(0, None), (2, 1), (3, None)]


def test_now_a_record_that_met_none_is_given_at_once_and_its_pairs_later():
    sdf = frame()
    joined = side_of(sdf, "l").join_interval(
        side_of(sdf, "r"), "outer", pair, forward_ms=9, emit="now"
    )
    records = [record(*one) for one in [("l", "k", 1, 0), ("r", "k", 3, 1), ("r", "k", 50, 2)]]

    assert list(run_local(joined, records, batches=1)) == [(0, None), (0, 1), (None, 2)]


# --- one step after the other -------------------------------------------------------------------


@st.composite
def marked(draw):
    """Records of four sides and one key, each side a stream of its own."""
    drawn = draw(st.lists(st.tuples(st.sampled_from("labc"), st.integers(0, 30)), max_size=25))
    records = [
        ("k", {"side": side, "n": n, "at": time}, time) for n, (side, time) in enumerate(drawn)
    ]
    return records, draw(st.lists(st.integers(1, 6), min_size=1, max_size=30))


@given(marked(), st.lists(st.sampled_from([0, 3, 9]), min_size=3, max_size=3))
@settings(max_examples=150)
def test_three_joins_in_a_row_give_what_their_definition_says(arrived, bounds):
    records, sizes = arrived
    sdf = frame().watermark(lateness=MOST)
    joined = side_of(sdf, "l").apply(lambda value: (value["n"],))
    for other, forward in zip("abc", bounds, strict=True):
        joined = joined.join_interval(
            side_of(sdf, other), "left", lambda mine, its: (*mine, its and its["n"]),
            name=other, forward_ms=forward,
        )  # fmt: skip
    out = joined.apply(lambda value, key, time, headers: (*value, time), metadata=True)
    ends = [("z", {"side": "x"}, time) for time in (10_000, 20_000, 30_000)]
    found = Counter(run_local(out, [*records, *ends], batches=[*sizes, 100, 1, 1]))

    expected = [((value["n"],), time) for _, value, time in records if value["side"] == "l"]
    for other, forward in zip("abc", bounds, strict=True):
        rights = [(value["n"], at) for _, value, at in records if value["side"] == other]
        paired = []
        for mine, time in expected:
            met = [(n, at) for n, at in rights if time <= at <= time + forward]
            paired += [((*mine, n), at) for n, at in met] or [((*mine, None), time)]
        expected = paired
    assert found == Counter((*value, time) for value, time in expected)


def after_all(results, records):
    """What comes out in the end, and how many were late on the way."""
    engine = LocalEngine(results)
    engine.feed(records)
    engine.run()
    for time in (9_000, 90_000, 900_000):
        engine.feed([("z", {"side": "x"}, time)])
        engine.run()
    return engine.values, sum(report.late for report in engine.reports)


@pytest.mark.parametrize("joins", [1, 2, 3, 4])
def test_what_a_join_gives_late_is_in_time_for_the_window_after_it(joins):
    sdf = frame()
    joined = side_of(sdf, "l")
    for number in range(joins):
        joined = joined.join_interval(
            side_of(sdf, "abcd"[number]), "left", lambda *_: 1, name=f"j{number}", forward_ms=3
        )
    windows = joined.tumbling_window(5).count().final()

    values, late = after_all(windows, [record("l", "k", 5, 0), ("z", {"side": "x"}, 1_000)])

    assert values == [{"start": 5, "end": 10, "value": 1}]
    assert late == 0


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_windows_of_windows_lose_nothing_however_many_there_are(length):
    windows = frame()
    for number in range(length):
        windows = windows.tumbling_window(5, name=f"w{number}").count().final()

    values, late = after_all(windows, [("k", {"side": "l"}, 5), ("z", {"side": "x"}, 1_000)])

    assert values[0] == {"start": 5, "end": 10, "value": 1}
    assert late == 0


def test_unmatched_records_of_an_interval_in_the_past_are_in_time_for_the_next_step():
    sdf = frame()
    joined = side_of(sdf, "l").join_interval(
        side_of(sdf, "r"), "left", pair, backward_ms=9, forward_ms=-1
    )

    records = [record("l", "k", 5, 0), ("z", {"side": "x"}, 1_000)]
    values, _ = after_all(joined.tumbling_window(5).count().final(), records)

    assert values == [{"start": 5, "end": 10, "value": 1}]


def test_a_right_record_that_a_waiting_one_keeps_does_not_wake_the_key_again_and_again():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(
        side_of(sdf, "r"), "left", pair, direction="nearest", tolerance=10
    )
    engine = LocalEngine(joined)
    engine.feed([record("r", "k", 90, 1), record("l", "k", 100, 2), record("x", "z", 105, 0)])

    assert list(engine.run()) == []
    assert len(engine.reports) < 5


def test_records_of_one_time_come_in_the_order_of_their_arrival():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(side_of(sdf, "r"), "left", pair)
    records = [record("l", "k", 7, number) for number in range(12)]

    found = run_local(joined, [*records, LAST], batches=[13, 1])

    assert [left for left, _ in found] == list(range(12))


def test_a_join_with_other_bounds_does_not_go_on_with_the_state():
    def program(**bounds):
        sdf = frame()
        return side_of(sdf, "l").join_interval(side_of(sdf, "r"), "outer", pair, **bounds)

    engine = LocalEngine(program(backward_ms=10))
    engine.feed([record("l", "k", 0, 1)])
    engine.run()

    for changed in (program(forward_ms=10), program(backward_ms=10, emit="now")):
        with pytest.raises(StateError, match=r"interval join, outer, from -10 to 0 ms(.|\n)*Fix:"):
            LocalEngine(changed, after=engine)
    LocalEngine(program(backward_ms=10, grace_ms=5), after=engine)


def test_a_tolerance_counts_instead_of_the_grace():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(
        side_of(sdf, "r"), "left", pair, 5, direction="forward", tolerance=40
    )

    records = [record("l", "k", 0, 1), record("r", "k", 30, 2)]

    assert list(run_local(joined, [*records, LAST], batches=[1, 1, 1])) == [(1, 2)]


# --- one state for two streams ------------------------------------------------------------------


def expect(order, state):
    state.set("order", order["id"])
    state.set_timer("unpaid", after=1_000)
    return ("expected", order["id"])


def settle(payment, state):
    state.cancel_timer("unpaid")
    return ("paid", state.get("order"), payment["sum"])


def remind(key, state, timer):
    return ("unpaid", key)


def test_two_functions_share_the_state_and_the_timers_of_a_key():
    orders, payments = two_topics()
    engine = LocalEngine(orders.connect(payments, expect, settle, on_timer=remind))
    engine.feed({"orders": [("x", {"id": 1}, 0), ("y", {"id": 2}, 100)]})
    engine.feed({"payments": [(None, {"order": 1, "sum": 7}, 500)]})
    first = sorted(engine.run())
    late = {"orders": [("z", {"id": 3}, 5_000)]}
    engine.feed({**late, "payments": [(None, {"order": 3, "sum": 1}, 5_000)]})

    assert first == [("expected", 1), ("expected", 2), ("paid", 1, 7)]
    assert sorted(engine.run()) == sorted([*first, ("expected", 3), ("paid", 3, 1), ("unpaid", 2)])


@pytest.mark.parametrize(
    ("connect", "text"),
    [
        (lambda a, b: a.connect(b, lambda value: 1, settle), r"on_left of connect\(\) calls"),
        (lambda a, b: a.connect(b, expect, "settle"), r"on_right of connect\(\) takes a function"),
        (lambda a, b: a.connect("b", expect, settle), "a frame of the same application"),
    ],
)
def test_what_cannot_be_connected_is_refused_where_it_is_written(connect, text):
    sdf = frame()

    with pytest.raises(ConfigError, match=f"{text}(.|\n)*Fix:"):
        connect(sdf, sdf)


# --- state that stays small ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_state_of_an_interval_join_goes_when_its_time_is_over(how):
    sdf = frame()
    joined = side_of(sdf, "l").join_interval(
        side_of(sdf, "r"), how, pair, backward_ms=50, forward_ms=20
    )
    engine = LocalEngine(joined)
    sizes = []
    for second in range(30):
        engine.feed(
            [record("lr"[i % 2], f"k{second}-{i % 5}", second * 100 + i, i) for i in range(60)]
        )
        engine.run()
        sizes.append(sum(engine.reports[-1].keys.values()))

    assert max(sizes[5:]) <= 2 * max(sizes[:5])


def test_state_of_an_asof_join_is_the_last_right_record_of_each_key():
    sdf = frame()
    joined = side_of(sdf, "l").join_asof(side_of(sdf, "r"), "left", pair, grace_ms=1_000)
    engine = LocalEngine(joined)
    for time in range(0, 3_000, 10):
        engine.feed([record("r", "a", time, time), record("l", "a", time + 1, time)])
        engine.run()
    assert len(engine.state("a", store="join")) <= 8

    for _ in range(2):
        engine.feed([record("x", "z", 9_000, 0)])
        engine.run()
    assert engine.state("a", store="join") == {}
