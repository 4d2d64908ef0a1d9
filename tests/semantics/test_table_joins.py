"""Joins with tables by their definition, in any order of arrival and any cut into batches."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import ConfigError, SimulatedCrash, StepError
from millpond.program.explain import explain
from millpond.testing import CRASH, LocalEngine, frame, run_local

MOST = 40
KEYS = st.sampled_from("ab")
TIMES = st.integers(0, MOST)
VALUES = st.sampled_from([None, 0, "", 1, 2])

asks = st.tuples(st.just("ask"), KEYS, TIMES, st.none())
changes = st.tuples(st.just("row"), KEYS, TIMES, VALUES)
cuts = st.one_of(st.none(), st.integers(1, 4))


def record(place, kind, key, time, value):
    """A record of one source that has both: changes of a table, and what asks for its rows."""
    return key, {"kind": kind, "n": place, "key": key, "to": value}, time


def records_of(arrived):
    return [record(place, *parts) for place, parts in enumerate(arrived)]


def both(name="rows", lateness=MOST, **options):
    """The frame of what asks, and the table; a change to None deletes the row."""
    sdf = frame().watermark(lateness=lateness)
    rows = sdf.filter(lambda value: value["kind"] == "row")
    rows = rows.apply(lambda value: None if value["to"] is None else value)
    return sdf.filter(lambda value: value["kind"] == "ask"), rows.as_table(name=name, **options)


def pair(left, right):
    return left["n"], None if right is None else right["n"]


class Rows:
    """What a table is: the newest change of each key, None being one."""

    def __init__(self):
        self.known = {}

    def change(self, key, time, number, value):
        if key not in self.known or time >= self.known[key][0]:
            self.known[key] = time, None if value is None else number

    def row(self, key):
        return self.known.get(key, (0, None))[1]


def met_now(arrived, how):
    rows, found = Rows(), []
    for number, (kind, key, time, value) in enumerate(arrived):
        if kind == "row":
            rows.change(key, time, number, value)
        elif how == "left" or rows.row(key) is not None:
            found.append((number, rows.row(key)))
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(asks, changes), max_size=12), st.sampled_from(["inner", "left"]), cuts)
def test_a_record_meets_the_row_that_is_there_when_it_comes(arrived, how, size):
    asking, rows = both()

    found = run_local(asking.join_table(rows, None, how, pair), records_of(arrived), batches=size)

    assert list(found) == met_now(arrived, how)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(asks, changes), max_size=12), st.sampled_from(["inner", "left"]), cuts)
@pytest.mark.parametrize("broadcast", [False, True])
def test_a_record_meets_a_row_by_a_field_and_keeps_its_key(broadcast, arrived, how, size):
    def placed(value, key, timestamp, headers):
        return value, key, timestamp

    sdf = frame().watermark(lateness=MOST)
    rows = sdf.filter(lambda value: value["kind"] == "row")
    rows = rows.group_by("key").apply(lambda value: None if value["to"] is None else value)
    asking = sdf.filter(lambda value: value["kind"] == "ask")
    table = rows.as_table(name="rows")
    joined = asking.join_table(table, "key", how, pair, broadcast=broadcast)
    records = [("own", value, time) for _, value, time in records_of(arrived)]

    found = run_local(joined.apply(placed, metadata=True), records, batches=size)

    times = [time for _, _, time, _ in arrived]
    assert list(found) == [(met, "own", times[met[0]]) for met in met_now(arrived, how)]


def met_then(arrived, how):
    """Each left record with the newest change up to its own time, the last to come counting."""
    found = Counter()
    for number, (kind, key, time, _) in enumerate(arrived):
        if kind == "row":
            continue
        before = [
            (at, place, value)
            for place, (what, of, at, value) in enumerate(arrived)
            if what == "row" and of == key and at <= time
        ]
        _, place, value = max(before, key=lambda change: change[:2], default=(0, 0, None))
        if how == "left" or value is not None:
            found[number, None if value is None else place] += 1
    return found


END = ("ask", "z", 10_000, None)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(asks, changes), max_size=12),
    st.sampled_from(["inner", "left"]),
    cuts,
    st.integers(0, 5),
)
def test_with_history_a_record_meets_the_row_of_its_own_time_in_any_order_and_cut(
    arrived, how, size, history
):
    sdf = frame().watermark(lateness=MOST)
    rows = sdf.filter(lambda value: value["kind"] == "row")
    rows = rows.apply(lambda value: None if value["to"] is None else value)
    asking = sdf.filter(lambda value: value["kind"] == "ask")
    joined = asking.join_table(rows.as_table(history=history, name="rows"), None, how, pair)

    found = run_local(joined, records_of([*arrived, END]), batches=size)

    assert Counter(found) == met_then(arrived, how)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(asks, changes), max_size=12), st.integers(0, MOST), st.integers(1, 4))
def test_a_late_record_meets_the_row_of_its_time_within_the_history_and_is_late_before(
    arrived, history, size
):
    asking, rows = both(lateness=0, history=history)
    joined = asking.join_table(rows, None, "left", pair)
    engine = LocalEngine(joined)
    closed, on_time, late = -1, [], 0
    for low in range(0, len(arrived), size):
        batch = records_of(arrived)[low : low + size]
        engine.feed(batch)
        engine.run()
        for _, value, time in batch:
            # Older than the oldest row that is known: late, if it asks for one.
            is_late = value["kind"] == "ask" and time < closed - history
            late += is_late
            on_time += [value["n"]] * (value["kind"] == "ask" and not is_late)
        closed = max(closed, *(time for _, _, time in batch))
    engine.feed(records_of([*arrived, END])[-1:])
    found = engine.run()

    assert sorted(number for number, _ in found if number < len(arrived)) == on_time
    assert sum(report.late for report in engine.reports) >= late


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_deleted_row_is_remembered_until_the_watermark_has_passed_it(broadcast):
    """An older change that comes later does not bring it back."""
    asking, rows = both(lateness=10)
    engine = LocalEngine(asking.join_table(rows, None, "left", pair, broadcast=broadcast))
    deleted, older = ("row", "a", 20, None), ("row", "a", 15, 1)
    engine.feed(records_of([deleted, older, ("ask", "a", 20, None)]))
    assert engine.run() == [(2, None)]
    engine.feed(records_of([("ask", "b", 31, None)]))
    engine.run()

    if not broadcast:
        assert engine.run().state("a", "rows") == {}
    else:
        states = [engine.run().state(number, "rows") for number in range(16)]
        assert states == [{}] * 16


def test_what_nobody_can_ask_for_any_more_is_forgotten():
    asking, rows = both(lateness=0, history=10)
    engine = LocalEngine(asking.join_table(rows, None, "left", pair))
    for time in range(0, 1000, 5):
        engine.feed(records_of([("row", "a", time, 1), ("ask", "b", time, None)]))
        engine.run()
    engine.feed(records_of([("row", "c", 995, 1), ("row", "c", 996, None), ("ask", "b", 2_000, 0)]))
    engine.run()
    engine.feed(records_of([("ask", "b", 2_001, 0)]))
    engine.run()

    assert len(engine.run().state("a", "rows")) == 2  # the last row, and its place
    assert engine.run().state("c", "rows") == {}


# --- two tables ---------------------------------------------------------------------------------

sides = st.tuples(st.sampled_from("lr"), KEYS, TIMES, VALUES)
NEEDED = {"inner": all, "left": lambda rows: rows[0], "right": lambda rows: rows[1], "outer": any}


def two_tables():
    sdf = frame().watermark(lateness=MOST)
    tables = []
    for side in "lr":
        rows = sdf.filter(lambda value, side=side: value["kind"] == side)
        rows = rows.apply(lambda value: None if value["to"] is None else value)
        tables.append(rows.as_table(name=side))
    return tables


def numbers(left, right):
    return [None if row is None else row["n"] for row in (left, right)]


@settings(max_examples=100, deadline=None)
@given(st.lists(sides, max_size=12), st.sampled_from(list(NEEDED)), cuts)
def test_each_change_of_two_tables_gives_the_row_of_both(arrived, how, size):
    left, right = two_tables()

    found = run_local(left.join(right, how, numbers), records_of(arrived), batches=size)

    expected, rows = [], {"l": Rows(), "r": Rows()}
    for number, (side, key, time, value) in enumerate(arrived):
        known = rows[side].known.get(key)
        before = [rows[one].row(key) for one in "lr"]
        rows[side].change(key, time, number, value)
        if known is not None and time < known[0]:
            continue
        after = [rows[one].row(key) for one in "lr"]
        if NEEDED[how]([row is not None for row in after]):
            expected.append(after)
        elif NEEDED[how]([row is not None for row in before]):
            expected.append(None)
    assert list(found) == expected


named = st.tuples(st.just("r"), st.sampled_from("xyz"), TIMES, st.sampled_from([None, 1, 2]))
naming = st.tuples(st.just("l"), KEYS, TIMES, st.sampled_from([None, "x", "y", "none"]))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(named, naming), max_size=14), st.sampled_from(["inner", "left"]), cuts)
def test_rows_that_name_rows_of_another_table_follow_both(arrived, how, size):
    """The changes, put into a dict, are the join of what both tables have in the end."""
    # In the order of time, but for a few that are older than the row that is there.
    # In the order of time: that a row was deleted is not remembered where it names another.
    arrived = sorted(arrived, key=lambda change: change[2])
    sdf = frame()
    lefts = sdf.filter(lambda value: value["kind"] == "l").apply(
        lambda value: (
            None
            if value["to"] is None
            else {**value, "on": None if value["to"] == "none" else value["to"]}
        )
    )
    rights = sdf.filter(lambda value: value["kind"] == "r")
    rights = rights.apply(lambda value: None if value["to"] is None else value)
    joined = lefts.as_table(name="l").join(rights.as_table(name="r"), how, numbers, on="on")
    seen = joined.apply(lambda value, key, timestamp, headers: (key, value), metadata=True)

    found = run_local(seen, records_of(arrived), batches=size)

    left, right = {}, {}
    for number, (side, key, _, value) in enumerate(arrived):
        (left if side == "l" else right)[key] = None if value is None else (number, value)
    expected = {}
    for key, row in left.items():
        other = None if row is None else right.get(row[1])
        if row is not None and (other is not None or how == "left"):
            expected[key] = [row[0], None if other is None else other[0]]
    assert {key: value for key, value in dict(found).items() if value is not None} == expected


def test_a_row_may_itself_be_made_of_two_tables_and_of_totals():
    app = mp.Application(loglevel=None)
    names = app.table(app.topic("names", key_deserializer="str"))
    towns = app.table(app.topic("towns", key_deserializer="str"))
    paid = app.dataframe(app.topic("paid")).group_by("user").agg(paid=mp.Sum("sum"))
    people = names.join(towns, "left").join(paid.as_table(name="totals"))
    asked = app.dataframe(app.topic("asked")).join_table(people, on="who")
    engine = LocalEngine(asked)
    engine.feed({"names": [("ann", {"name": "Ann"})], "towns": [("ann", {"town": "Ulm"})]})
    engine.feed({"paid": [(None, {"user": "ann", "sum": 2}), (None, {"user": "ann", "sum": 3})]})
    engine.feed({"asked": [("q", {"who": "ann"}), ("q", {"who": "bob"})]})

    assert engine.run() == [{"who": "ann", "name": "Ann", "town": "Ulm", "paid": 5}]


# --- crashes, waiting, time ---------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(asks, changes), min_size=1, max_size=10),
    st.integers(0, 9),
    st.sampled_from([None, 5]),
    st.booleans(),
)
def test_a_crash_changes_nothing(arrived, place, history, broadcast):
    def run(records):
        asking, rows = both(history=None if broadcast else history)
        joined = asking.join_table(rows, None, "left", pair, broadcast=broadcast)
        engine = LocalEngine(joined)
        engine.feed(records)
        while True:
            try:
                return list(engine.run(2))
            except SimulatedCrash:
                continue

    records = [*records_of(arrived), *records_of([END])]
    assert run([*records[:place], CRASH, *records[place:]]) == run(records)


def shop(**options):
    app = mp.Application(loglevel=None)
    customers = app.table(app.topic("customers", key_deserializer="str"))
    orders = app.dataframe(app.topic("orders"))
    return orders.join_table(customers, on="customer", how="left", **options)


ANN, ORDER = ("c1", {"name": "Ann"}, 5), ("o1", {"customer": "c1"}, 7)


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize("waits", [True, False])
def test_records_wait_until_the_table_has_been_read(waits, broadcast):
    engine = LocalEngine(shop(wait_for_table=waits, broadcast=broadcast))
    engine.feed({"orders": [ORDER] * 2, "customers": [("c2", {"name": "Bob"}, 1)] * 9 + [ANN]})

    found = engine.run(2)

    assert found == [{"customer": "c1", "name": "Ann"} if waits else {"customer": "c1"}] * 2


def test_explain_says_who_waits_for_which_table():
    shown = explain(LocalEngine(shop()).plan, "stop")

    assert "read       topic 'orders'" in shown
    assert "waits at the start until 'customers' has been read" in shown


def test_a_table_that_waits_for_a_table_and_two_that_would_wait_for_each_other():
    sdf = shop()
    graph = sdf._graph
    assert LocalEngine(sdf).plan.waits == {"orders": ("customers",)}

    app = mp.Application(loglevel=None)
    a, b = (app.dataframe(app.topic(name)) for name in "ab")
    a.join_table(b.as_table(), on_merge="keep-left")
    last = b.join_table(a.as_table(), on_merge="keep-left")
    assert LocalEngine(last).plan.waits == {"a": (), "b": ()}
    assert graph.tables == {"customers"}


def test_a_quiet_table_does_not_hold_back_what_comes_after_the_join():
    counted = shop().tumbling_window(10).count().final()
    engine = LocalEngine(counted)
    engine.feed({"customers": [ANN], "orders": [ORDER, ("o2", {"customer": "c1"}, 25)]})

    assert [window["value"] for window in engine.run()] == [1]


def test_with_history_records_wait_for_the_table_until_it_is_idle():
    now = [1_000_000]
    app = mp.Application(loglevel=None)
    customers = app.table(app.topic("customers", key_deserializer="str"), history=60_000)
    orders = app.dataframe(app.topic("orders"))
    engine = LocalEngine(orders.join_table(customers, on="customer"), clock=lambda: now[0])
    engine.feed({"customers": [("c1", {"name": "Ann"}, 999_000)]})
    engine.feed(
        {"orders": [("o1", {"customer": "c1"}, 999_500), ("o2", {"customer": "c1"}, now[0])]}
    )

    assert engine.run() == []
    now[0] += 6_000
    assert engine.run() == [{"customer": "c1", "name": "Ann"}]


def test_late_records_have_the_value_that_the_user_knows():
    app = mp.Application(loglevel=None)
    customers = app.table(app.topic("customers", key_deserializer="str"), history=10)
    orders = app.dataframe(app.topic("orders"))
    late = orders.join_table(customers, on="customer").late()
    engine = LocalEngine(late)
    for time in (100, 5):
        engine.feed({"customers": [("c1", {"name": "Ann"}, 100)]})
        engine.feed({"orders": [("o1", {"customer": "c1", "at": time}, time)]})
        engine.run()

    (report,) = (value for value in engine.values if "late_by_ms" in value)
    assert report["value"] == {"customer": "c1", "at": 5}
    assert (report["side"], report["late_by_ms"]) == ("left", 95)


# --- what makes no sense ------------------------------------------------------------------------


def test_a_record_of_a_table_needs_a_key():
    for broadcast in (False, True):
        engine = LocalEngine(shop(broadcast=broadcast))
        engine.feed({"customers": [(None, {"name": "Ann"})]})
        with pytest.raises(StepError, match=r"no key(.|\n)*Fix: .*group_by"):
            engine.run()


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_field_that_is_not_there_and_a_key_of_another_type_are_errors_of_the_record(broadcast):
    for value, error in (({"cust": "c1"}, "KeyError: 'customer'"), ({"customer": 7}, "7 is int")):
        engine = LocalEngine(shop(broadcast=broadcast))
        engine.feed({"customers": [ANN], "orders": [("o1", value)]})
        with pytest.raises(StepError, match=error):
            engine.run()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a, b: a.join_table(a), r"takes a table, got(.|\n)*Fix: .*as_table"),
        (lambda a, b: b.join_table(b), r"joined with a table by join\(\)"),
        (lambda a, b: b.join(a), r"takes a table, got(.|\n)*Fix: "),
        (lambda a, b: a.join_table(b, how="outer"), "how is 'inner' or 'left'"),
        (lambda a, b: b.join(a.as_table(), how="outer", on="x"), "how is 'inner' or 'left'"),
        (lambda a, b: a.join_table(b, on=lambda: 1), "on"),
        (lambda a, b: a.join_table(a.as_table(history=5), broadcast=True), "has no history"),
        (lambda a, b: a.as_table(history=-5), "history"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(call, text):
    sdf = frame()

    with pytest.raises(ConfigError, match=text):
        call(sdf, sdf.as_table())


def test_an_older_change_of_a_row_that_names_another_does_not_replace_it():
    app = mp.Application(loglevel=None)
    people = app.table(app.topic("people", key_deserializer="str"))
    towns = app.table(app.topic("towns", key_deserializer="str"))
    engine = LocalEngine(people.join(towns, on="town", on_merge="keep-left"))
    engine.feed({"towns": [(town, {"name": town}, 0) for town in ("ulm", "bonn")]})
    engine.run()
    engine.feed({"people": [("ann", {"town": "ulm"}, 9), ("ann", {"town": "bonn"}, 5)]})
    engine.feed({"people": [("ann", None, 7)]})

    assert engine.run() == [{"town": "ulm", "name": "ulm"}]
    engine.feed({"people": [("ann", None, 10)]})
    assert engine.run()[1:] == [None]
