"""Programs whose aggregations change between runs: what was kept stays, what is new starts empty.

What is expected is worked out in plain Python: a field is computed from the records since it was
added, where it kept its name and its aggregation in every program since.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import (
    Aggregation,
    Collect,
    Count,
    Earliest,
    Last,
    Latest,
    Max,
    Mean,
    Reduce,
    Sum,
    Variance,
)
from millpond.errors import StateError
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.rows import group_rows
from millpond.state.view import State
from millpond.testing import LocalEngine, frame

FAR = 10**9


def quick(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Rec(NamedTuple):
    key: str
    v: int
    w: int
    at: int
    run: int
    """The run in which it came."""

    @property
    def item(self):
        return (self.key, {"v": self.v, "w": self.w}, self.at)


# For each field what it may be: an aggregation, and what it gives over records.
FIELDS = {
    "n": [(Count(), len)],
    "s": [
        (Sum("v"), lambda records: sum(r.v for r in records)),
        (Sum("w"), lambda records: sum(r.w for r in records)),
    ],
    "m": [(Max("v"), lambda records: max((r.v for r in records), default=None))],
    "last": [(Last("w"), lambda records: records[-1].w if records else None)],
    "all": [(Collect("v"), lambda records: [r.v for r in sorted(records, key=lambda r: r.at)])],
}
IN_ANY_ORDER = ("n", "s", "m")


def programs(names):
    """A program: for some fields, in some order, which aggregation each is."""
    fields = {name: st.integers(0, len(FIELDS[name]) - 1) for name in names}
    some = st.fixed_dictionaries({}, optional=fields).filter(bool)
    return some.flatmap(lambda chosen: st.permutations(list(chosen.items())).map(dict))


@st.composite
def histories(draw, names=tuple(FIELDS), in_order=True):
    """Runs: the program of each, and its records."""
    made = draw(st.lists(programs(names), min_size=2, max_size=5))
    found, at = [], 0
    for number, program in enumerate(made):
        records = []
        for _ in range(draw(st.integers(0, 6))):
            at = at + draw(st.integers(0, 8)) if in_order else draw(st.integers(0, 60))
            key = draw(st.sampled_from("ab"))
            numbers = draw(st.integers(-5, 5)), draw(st.integers(-5, 5))
            records.append(Rec(key, *numbers, at, number))
        found.append((program, records))
    last = [Rec(key, 0, 0, FAR, len(made) - 1) for key in "ab"]
    return [*found[:-1], (found[-1][0], [*found[-1][1], *last])]


def aggregations(program):
    return {name: FIELDS[name][which][0] for name, which in program.items()}


def expected(history, number, records):
    """What the program of a run gives over records of this run and of earlier ones."""
    program = history[number][0]
    result = {}
    for name, which in program.items():
        since = number
        while since and history[since - 1][0].get(name) == which:
            since -= 1
        result[name] = FIELDS[name][which][1]([r for r in records if r.run >= since])
    return result


def with_key(value, key, timestamp, headers):
    return {"key": key, **value}


def outputs(history, make, cut, **options):
    """What comes out of each run, one engine after the other."""
    engine, found = None, []
    for program, records in history:
        sdf = make(frame(), aggregations(program)).apply(with_key, metadata=True)
        engine = LocalEngine(sdf, after=engine, on_state_change="accept", **options)
        engine.feed([r.item for r in records])
        found.append(list(engine.run(cut)))
    return found


def sorted_runs(runs):
    return [sorted(results, key=lambda r: (r["key"], r["start"], r["end"])) for results in runs]


def before(history, record, number):
    """The records of a key up to one, which is the record of a number in its run."""
    run = record.run
    earlier = [r for _, records in history[:run] for r in records]
    mine = history[run][1][: number + 1]
    return [r for r in [*earlier, *mine] if r.key == record.key]


cuts = st.sampled_from([None, 1, 2])
modes = st.sampled_from(["stop", "dead-letter"])  # with "stop", records may be combined


@quick(25)
@given(history=histories(), cut=cuts, mode=modes)
def test_totals_of_each_record_have_each_field_since_it_was_added(history, cut, mode):
    found = outputs(history, lambda sdf, fields: sdf.agg(**fields), cut, on_error=mode)

    assert found == [
        [
            {"key": r.key, **expected(history, run, before(history, r, number))}
            for number, r in enumerate(records)
        ]
        for run, (_, records) in enumerate(history)
    ]
    fields = [[list(result)[1:] for result in results] for results in found]
    assert fields == [[list(program)] * len(records) for program, records in history]


@quick(25)
@given(history=histories(), mode=modes)
def test_totals_of_each_batch_have_each_field_since_it_was_added(history, mode):
    found = outputs(
        history, lambda sdf, fields: sdf.agg(emit="batch", **fields), None, on_error=mode
    )

    for run, (_, records) in enumerate(history):
        last = {r.key: before(history, r, number) for number, r in enumerate(records)}
        wanted = [{"key": key, **expected(history, run, mine)} for key, mine in last.items()]
        assert sorted(found[run], key=lambda r: r["key"]) == sorted(wanted, key=lambda r: r["key"])


SIZE, STEP = 10, 5


def starts(at, step):
    return [s for s in range(max(0, at - SIZE + 1), at + 1) if s % step == 0]


def closes(history, key, end, closing):
    """The run in which a window closes: the first with a record that is past it."""
    return next(
        run
        for run, (_, records) in enumerate(history)
        for r in records
        if r.at >= end and (closing == "watermark" or r.key == key)
    )


@pytest.mark.parametrize("closing", ["watermark", "key"])
@pytest.mark.parametrize("step", [SIZE, STEP], ids=["tumbling", "hopping"])
@quick(20)
@given(history=histories(), cut=cuts, mode=modes)
def test_windows_have_each_field_since_it_was_added(closing, step, history, cut, mode):
    def make(sdf, fields, emit):
        window = sdf.hopping_window(SIZE, step) if step != SIZE else sdf.tumbling_window(SIZE)
        return getattr(window.agg(**fields), emit)(closing)

    final = outputs(history, lambda s, f: make(s, f, "final"), cut, on_error=mode)
    current = outputs(history, lambda s, f: make(s, f, "current"), cut, on_error=mode)

    windows = {}
    wanted = [[] for _ in history]
    for run, (_, records) in enumerate(history):
        for r in records:
            for start in starts(r.at, step):
                inside = windows.setdefault((r.key, start), [])
                inside.append(r)
                result = {"key": r.key, "start": start, "end": start + SIZE}
                wanted[run].append({**result, **expected(history, run, inside)})
    assert sorted_runs(current) == sorted_runs(wanted)
    closed = [[] for _ in history]
    for (key, start), inside in windows.items():
        if start + SIZE <= FAR:
            run = closes(history, key, start + SIZE, closing)
            result = {"key": key, "start": start, "end": start + SIZE}
            closed[run].append({**result, **expected(history, run, inside)})
    assert sorted_runs(final) == sorted_runs(closed)


def session_of(record, records, gap):
    """The records of the session that a record is in."""
    inside = [record]
    while more := [
        r
        for r in records
        if not any(r is known for known in inside)
        and any(abs(r.at - known.at) <= gap for known in inside)
    ]:
        inside += more
    return inside


@quick(25)
@given(history=histories(IN_ANY_ORDER, in_order=False), cut=cuts, mode=modes)
def test_sessions_have_each_field_since_it_was_added(history, cut, mode):
    def make(sdf, fields, emit="current"):
        return getattr(sdf.session_window(4, grace_ms=1_000).agg(**fields), emit)()

    current = outputs(history, make, cut, on_error=mode)
    final = outputs(history, lambda s, f: make(s, f, "final"), cut, on_error=mode)

    every = [r for _, records in history for r in records if r.at < FAR]
    for run, (_, records) in enumerate(history):
        wanted = []
        for number, r in enumerate(records):
            inside = session_of(r, before(history, r, number), 4)
            times = [one.at for one in inside]
            result = {"key": r.key, "start": min(times), "end": max(times) + 1}
            wanted.append({**result, **expected(history, run, inside)})
        assert current[run] == wanted
    sessions = {}
    for r in every:
        inside = session_of(r, [other for other in every if other.key == r.key], 4)
        times = [one.at for one in inside]
        result = {"key": r.key, "start": min(times), "end": max(times) + 1}
        sessions[r.key, min(times)] = {**result, **expected(history, len(history) - 1, inside)}
    assert sorted_runs(final) == sorted_runs([*[[]] * (len(history) - 1), sessions.values()])


@quick(20)
@given(history=histories(), cut=cuts)
def test_sliding_windows_have_each_field_over_all_records_that_they_still_have(history, cut):
    found = outputs(
        history, lambda sdf, fields: sdf.sliding_window(SIZE).agg(**fields).final(), cut
    )

    every = [r for _, records in history for r in records if r.at < FAR]
    wanted = [[] for _ in history]
    for key, end in {(r.key, r.at) for r in every}:
        inside = [r for r in every if r.key == key and end - SIZE <= r.at <= end]
        run = closes(history, key, end + 1, "watermark")
        program = history[run][0]
        results = {name: FIELDS[name][which][1](inside) for name, which in program.items()}
        wanted[run].append({"key": key, "start": max(0, end - SIZE), "end": end, **results})
    assert sorted_runs(found) == sorted_runs(wanted)


@pytest.mark.parametrize("step", [None, 2], ids=["tumbling", "hopping"])
@quick(20)
@given(history=histories(), cut=cuts)
def test_count_windows_have_each_field_since_it_was_added(step, history, cut):
    def make(sdf, fields, emit):
        window = sdf.hopping_count_window(3, 2) if step else sdf.tumbling_count_window(3)
        return getattr(window.agg(**fields), emit)()

    final = outputs(history, lambda s, f: make(s, f, "final"), cut)
    current = outputs(history, lambda s, f: make(s, f, "current"), cut)

    wanted, closed = [[] for _ in history], [[] for _ in history]
    for run, (_, records) in enumerate(history):
        for number, r in enumerate(records):
            known = before(history, r, number)
            for first in range(0, len(known), step or 3):
                inside = known[first : first + 3]
                if not any(one is r for one in inside):
                    continue
                times = [one.at for one in inside]
                result = {"key": r.key, "start": min(times), "end": max(times)}
                result |= expected(history, run, inside)
                wanted[run].append(result)
                closed[run] += [result] * (len(inside) == 3)
    assert sorted_runs(current) == sorted_runs(wanted)
    assert sorted_runs(final) == sorted_runs(closed)


# --- one by one -----------------------------------------------------------------------------


def run(sdf, records, after=None, batches=None, **options):
    """Run a program on the state of another one; return the engine, with what came out."""
    engine = LocalEngine(sdf, after=after, **options)
    engine.feed(records)
    engine.run(batches)
    return engine


def rows(engine):
    """What is kept: (key, name) to its bytes."""
    codec = engine._settings.codec
    return {
        (codec.decode(row.key), codec.decode(row.name)): row.value
        for store in engine.stores.values()
        for row in group_rows(store, 8)
    }


ORDERS = [("ann", {"amount": 3}, 10), ("ann", {"amount": 4}, 20), ("bob", {"amount": 9}, 30)]


def test_keys_that_nobody_touches_stay_as_they_are():
    old = run(frame().agg(n=Count(), spent=Sum("amount")), ORDERS)

    new = run(
        frame().agg(n=Count(), spent=Sum("amount"), most=Max("amount")),
        [("ann", {"amount": 1}, 40)],
        after=old,
    )

    assert new.values == [{"n": 3, "spent": 8, "most": 1}]
    before, after = rows(old), rows(new)
    assert after["bob", ""] == before["bob", ""]
    assert after["ann", ""] != before["ann", ""]


def test_another_order_of_the_fields_changes_nothing_that_is_kept():
    old = run(frame().agg(n=Count(), spent=Sum("amount")), ORDERS[:2])

    new = run(frame().agg(spent=Sum("amount"), n=Count()), [ORDERS[2]], after=old)

    assert new.values == [{"spent": 9, "n": 1}]
    assert new.layouts == old.layouts
    whole = run(frame().agg(n=Count(), spent=Sum("amount")), ORDERS)
    assert rows(new) == rows(whole)


def test_a_program_whose_aggregations_never_changed_keeps_no_mark():
    engine = run(frame().agg(n=Count(), spent=Sum("amount")), ORDERS)

    codec = engine._settings.codec
    assert {key: codec.decode(value) for (key, _), value in rows(engine).items()} == {
        "ann": [2, 7],
        "bob": [1, 9],
    }


@pytest.mark.parametrize("emit", ["record", "batch"])
@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"n": Count()}, "spent was Sum(amount) and is no longer there"),
        ({"n": Count(), "spent": Sum("price")}, "spent was Sum(amount) and is now Sum(price)"),
        ({"n": Count(), "paid": Sum("amount")}, "spent was Sum(amount) and is no longer there"),
    ],
    ids=["removed", "another column", "renamed"],
)
def test_what_would_lose_an_aggregation_is_refused_and_can_be_accepted(emit, fields, lost):
    old = run(frame().agg(emit=emit, n=Count(), spent=Sum("amount")), ORDERS)
    records = [("ann", {"amount": 1, "price": 5}, 40)]

    with pytest.raises(StateError) as error:
        run(frame().agg(emit=emit, **fields), records, after=old)
    assert f"list/agg of group 'local' would lose what it has aggregated in spent:\n  {lost}" in (
        str(error.value)
    )
    assert 'Fix: change the program back, or LocalEngine(on_state_change="accept").' in str(
        error.value
    )

    accepted = run(frame().agg(emit=emit, **fields), records, after=old, on_state_change="accept")
    added = {"spent": 5} if "spent" in fields else {"paid": 1} if "paid" in fields else {}
    assert accepted.values == [{"n": 3, **added}]


def test_a_field_that_was_gone_for_a_while_starts_again_from_nothing():
    one = run(frame().agg(n=Count(), spent=Sum("amount")), ORDERS)
    two = run(frame().agg(n=Count()), [], after=one, on_state_change="accept")

    three = run(
        frame().agg(n=Count(), spent=Sum("amount")), [("bob", {"amount": 1}, 40)], after=two
    )

    assert three.values == [{"n": 2, "spent": 1}]


class Longest(Aggregation):
    """Neither merge nor result have to know a run without records."""

    def add(self, state, value, timestamp):
        return max(state or "", value["name"], key=len)

    def merge(self, earlier, later):
        return max(earlier, later, key=len)

    def result(self, state):
        return state


@pytest.mark.parametrize(
    "make",
    [
        lambda sdf, **fields: sdf.agg(emit="batch", **fields),
        lambda sdf, **fields: sdf.tumbling_window(100).agg(**fields).final(),
    ],
    ids=["totals", "window"],
)
def test_the_merge_of_a_new_aggregation_is_never_given_a_state_without_records(make):
    old = run(make(frame(), n=Count()), [("a", {"name": "pond"}, 0)])

    records = [("a", {"name": "mill"}, 1), ("a", {"name": "a mill"}, 2), ("b", {"name": ""}, 500)]
    new = run(make(frame(), long=Longest(), n=Count()), records, after=old)

    assert {"long": "a mill", "n": 3}.items() <= new.values[0].items()


@pytest.mark.parametrize("change", ["before it closes", "after it has closed"])
def test_a_window_that_may_still_be_corrected_takes_a_new_aggregation(change):
    def make(**fields):
        return frame().tumbling_window(10, corrections_ms=1_000).agg(**fields).final()

    closing = [("b", {"v": 0}, 50)]
    first = [("a", {"v": 5}, 1), *(closing if change == "after it has closed" else [])]
    old = run(make(n=Count()), first)

    late = [("a", {"v": 3}, 2)] if change == "before it closes" else []
    new = run(make(n=Count(), most=Max("v")), [*late, *closing, ("a", {"v": 1}, 3)], old, 1)

    window = {"start": 0, "end": 10}
    if change == "before it closes":
        assert {**window, "n": 2, "most": 3, "revision": 0} in new.values
        assert {**window, "n": 3, "most": 3, "revision": 1} in new.values
    else:
        assert {**window, "n": 1, "revision": 0} in old.values
        assert {**window, "n": 2, "most": 1, "revision": 1} in new.values


def test_callbacks_of_a_window_see_the_new_fields():
    seen = []

    def note(aggregated, value, key, timestamp, headers):
        seen.append(dict(aggregated))
        return False

    def make(**fields):
        return frame().tumbling_window(100, before_update=note).agg(**fields).final()

    old = run(make(n=Count()), [("a", {"v": 5}, 1)], copy_functions=False)
    run(
        make(n=Count(), most=Max("v")),
        [("a", {"v": 3}, 2), ("a", {"v": 1}, 3)],
        after=old,
        copy_functions=False,
    )

    assert seen == [{"n": 0}, {"n": 1, "most": None}, {"n": 2, "most": 3}]


# --- sessions that keep records, and those that keep states ---------------------------------

ALL = Reduce(lambda so_far, value: [*so_far, value["v"]], lambda value: [value["v"]])


def session(**fields):
    return frame().session_window(10, grace_ms=100).agg(**fields).current()


def records(*pairs):
    return [("a", {"v": v}, at) for v, at in pairs]


def test_a_session_goes_on_where_a_new_aggregation_needs_the_records():
    old = run(session(n=Count()), records((1, 0), (2, 18)))

    new = run(session(n=Count(), all=ALL), records((3, 9), (4, 12)), after=old)

    assert new.values == [
        {"start": 0, "end": 19, "n": 3, "all": [3]},
        {"start": 0, "end": 19, "n": 4, "all": [3, 4]},
    ]
    third = run(
        session(n=Count(), s=Sum("v")), records((5, 13)), after=new, on_state_change="accept"
    )
    assert third.values == [{"start": 0, "end": 19, "n": 5, "s": 12}]  # of the records it had


def test_a_session_that_has_its_records_gives_new_fields_over_all_of_them():
    old = run(session(all=ALL), records((1, 0), (2, 5)))

    new = run(session(all=ALL, n=Count()), records((3, 9)), after=old)

    assert new.values == [{"start": 0, "end": 10, "all": [1, 2, 3], "n": 3}]


def test_two_sessions_with_states_before_their_records_become_one():
    old = run(session(n=Count(), mean=Mean("v")), records((1, 0), (2, 1), (5, 30)))
    new = run(session(n=Count(), mean=Mean("v"), all=ALL), records((3, 2), (6, 31)), after=old)

    after = run(
        session(all=ALL, n=Count(), mean=Mean("v"), last=Last("v")),
        records((7, 12), (8, 21)),
        after=new,
    )

    assert after.values == [
        {"start": 0, "end": 13, "all": [3, 7], "n": 4, "mean": 13 / 4, "last": 7},
        {"start": 0, "end": 32, "all": [3, 6, 7, 8], "n": 7, "mean": 32 / 7, "last": 8},
    ]


def as_in_0_1_0(engine):
    """Write the sessions of an engine as version 0.1.0 did: nothing stands after the records."""
    codec = engine._settings.codec
    for store in engine.stores.values():
        scope = KeyContext(codec, undo=False)
        scope.open(Pages(store, codec, 8))
        for row in list(group_rows(store, 8)):
            scope.bind(row.key)
            state = State(scope, row.store)
            latest, count, sessions = state.get("")
            state.set("", (latest, count, [session[:3] for session in sessions]))
        scope.pages.flush({})
    return engine


@pytest.mark.parametrize(
    ("fields", "new"),
    [
        ({"all": ALL}, {"all": [1, 2, 3], "n": 3}),
        ({"at": Latest("v"), "first": Earliest("v")}, {"at": 3, "first": 1, "n": 1, "all": [3]}),
        ({"spread": Variance("v")}, {"spread": 2 / 3, "n": 1, "all": [3]}),
    ],
    ids=["records", "states", "a state that looks like a record"],
)
def test_sessions_of_version_0_1_0_are_told_apart(fields, new):
    old = as_in_0_1_0(run(session(**fields), records((1, 0), (2, 5))))

    changed = session(**fields, n=Count(), **({} if "all" in fields else {"all": ALL}))

    assert run(changed, records((3, 9)), after=old).values == [{"start": 0, "end": 10, **new}]
