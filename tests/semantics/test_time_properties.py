"""Time, as properties of the local engine: windows, sessions, totals, expiry, timers, clocks.

What is expected is worked out here in plain Python, from the definitions alone.
"""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import (
    Application,
    Collect,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Sum,
)
from millpond.runtime.keyed import run_group
from millpond.runtime.stage import Settings, StageRunner
from millpond.state.codec import Codec
from millpond.state.layout import Pages
from millpond.state.view import scan_items
from millpond.testing import CRASH, END, ListSource, LocalEngine, ManualClock, frame, run_local


def quick(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


KEYS = ["a", "b", "c", None]
FLOATS = [0.1, 0.2, 0.3, -0.7, 1e15, 3.3e-5, 1 / 3]

cuts = st.one_of(st.lists(st.integers(0, 6), max_size=12), st.sampled_from([1, 2, 3]))
groups = st.sampled_from([1, 3, 8])
crashes = st.lists(st.integers(0, 30), max_size=3)
modes = st.sampled_from(["stop", "dead-letter"])  # with "stop", records may be combined
scales = st.sampled_from([1, 700, 10**7])  # hints lie in one bucket of the agenda, or in many


class Rec(NamedTuple):
    """A record, numbered in the order of arrival."""

    number: int
    key: object
    at: int
    i: int
    f: float

    @property
    def value(self):
        return {"id": self.number, "i": self.i, "f": self.f}

    @property
    def item(self):
        return (self.key, self.value, self.at)


@st.composite
def streams(draw, times=None, keys=KEYS, scale=1, max_size=24):
    """Records in any order of their times."""
    times = st.integers(0, 60) if times is None else times
    rows = draw(
        st.lists(
            st.tuples(st.sampled_from(keys), times, st.integers(-3, 3), st.sampled_from(FLOATS)),
            max_size=max_size,
        )
    )
    return [Rec(n, key, at * scale, i, f) for n, (key, at, i, f) in enumerate(rows)]


def disordered(draw, records, lateness):
    """The same records, none of them further behind an earlier one than the lateness."""
    delays = draw(
        st.lists(st.integers(0, lateness), min_size=len(records), max_size=len(records))
    )
    pairs = sorted(zip(records, delays, strict=True), key=lambda pair: pair[0].at + pair[1])
    return [record._replace(number=n) for n, (record, _) in enumerate(pairs)]


def with_crashes(records, places):
    items = [record.item for record in records]
    for place in places:
        items.insert(min(place, len(items)), CRASH)
    return items


def watched(sdf):
    """Return a list that will hold (batch, key, timestamp, value) of all that a frame gives."""
    found = []
    sdf.sink(
        lambda records, batch: found.extend((batch, r.key, r.timestamp, r.value) for r in records)
    )
    return found


def same(found, expected):
    """Compare as multisets; values need no order of their own."""
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def check_counts(run, records):
    assert all(report.reconciles for report in run.reports)
    assert sum(report.read for report in run.reports) == len(records)


# --- what is told about records -------------------------------------------------------------


def aggregations(*, ordered=True):
    known = {
        "n": Count(),
        "ints": Sum("i"),
        "floats": Sum("f"),
        "mean": Mean("f"),
        "least": Min("f"),
        "most": Max("i"),
        "early": Earliest("i"),
        "recent": Latest("i"),
        "kinds": CountDistinct("i"),
    }
    return {**known, "all": Collect("id")} if ordered else known


def told(records, *, ordered=True):
    """The same from the definitions, of records in the order of their arrival."""
    records = sorted(records)
    exact = sum(Fraction(r.f) for r in records)
    by_time = sorted(records, key=lambda r: r.at)
    result = {
        "n": len(records),
        "ints": sum(r.i for r in records),
        "floats": float(exact),
        "mean": float(exact / len(records)),
        "least": min(r.f for r in records),
        "most": max(r.i for r in records),
        "early": by_time[0].i,
        "recent": by_time[-1].i,
        "kinds": len({r.i for r in records}),
    }
    return {**result, "all": [r.number for r in by_time]} if ordered else result


# --- the model of the clock, and of windows -------------------------------------------------


class Tick(NamedTuple):
    """A batch: the watermark in it, and its records."""

    mark: int | None
    records: list


def ticks_of(run, records, lateness):
    """Return the batches that were run, and the watermark behind the last of them."""
    ticks, place, largest = [], 0, None
    for report in run.reports:
        part = records[place : place + report.read]
        ticks.append(Tick(None if largest is None else largest - lateness, part))
        largest = max([r.at for r in part] + ([] if largest is None else [largest]), default=None)
        place += report.read
    return ticks, None if largest is None else largest - lateness


class Told(NamedTuple):
    """What windows should give."""

    finals: list  # (batch, key, start, result)
    late: list  # (key, timestamp, number, start, end)
    lost: int  # records that no window took


def batch_of(ticks, last, is_over):
    """Return the first batch in which a window is over; one more than there are if too late."""
    marks = [tick.mark for tick in ticks] + [last]
    return next((n for n, m in enumerate(marks) if m is not None and is_over(m)), None)


def closed(ticks, last, windows, is_over, *, ordered=True):
    found = []
    for (key, start, end), content in windows.items():
        batch = batch_of(ticks, last, lambda mark, end=end: is_over(end, mark))
        if batch is not None:
            result = {"start": start, "end": end, **told(content, ordered=ordered)}
            found.append((batch, key, start, result))
    return found


def starts_at(at, size, step):
    """Starts of the windows that hold a moment: multiples of the step, none before 1970."""
    least = 0 if at >= 0 else at - size
    return [s for s in range(at // step * step, at - size, -step) if s >= least]


def fixed_windows(size, step, grace, ticks, last):
    windows, late, lost = defaultdict(list), [], 0
    for mark, records in ticks:
        for r in records:
            is_taken = False
            for start in starts_at(r.at, size, step):
                if mark is not None and start + size + grace <= mark:
                    late.append((r.key, r.at, r.number, start, start + size))
                else:
                    windows[r.key, start, start + size].append(r)
                    is_taken = True
            lost += not is_taken
    return Told(closed(ticks, last, windows, lambda end, m: end + grace <= m), late, lost)


def sliding_windows(size, grace, ticks, last):
    """One window for each timestamp of an on-time record: [timestamp - size, timestamp]."""
    ends, late, lost = set(), [], 0
    for mark, records in ticks:
        for r in records:
            if mark is not None and r.at + grace < mark:
                late.append((r.key, r.at, r.number, max(0, r.at - size), r.at))
                lost += r.at + size + grace < mark
            else:
                ends.add((r.key, r.at))
    windows = {
        (key, max(0, end - size), end): [
            r
            for mark, records in ticks
            for r in records
            if r.key == key and end - size <= r.at <= end
            if mark is None or end + grace >= mark
        ]
        for key, end in ends
    }
    return Told(closed(ticks, last, windows, lambda end, m: end + grace < m), late, lost)


def session_windows(gap, grace, ticks, last, *, ordered=True):
    """Sessions grow while they are open. `gap + last` must not meet a watermark exactly here."""
    open_, finals, late = defaultdict(list), [], []
    for batch, (mark, records) in enumerate([*ticks, Tick(last, [])]):
        for key, sessions in open_.items():
            for s in list(sessions):
                if mark is not None and max(r.at for r in s) + gap + grace <= mark:
                    sessions.remove(s)
                    finals.append((batch, key, *session_result(s, ordered=ordered)))
        for r in records:
            near = [s for s in open_[r.key] if touches(s, r.at, gap)]
            if not near and mark is not None and r.at + gap + grace <= mark:
                late.append((r.key, r.at, r.number, r.at, r.at))
                continue
            rest = [s for s in open_[r.key] if s not in near]
            open_[r.key] = [*rest, [r, *(other for s in near for other in s)]]
    return Told(finals, late, len(late))


def touches(session, at, gap):
    times = [r.at for r in session]
    return min(times) - gap <= at <= max(times) + gap


def session_result(session, *, ordered=True):
    start, end = min(r.at for r in session), max(r.at for r in session)
    return start, {"start": start, "end": end, **told(session, ordered=ordered)}


def split_at_gaps(records, gap):
    """Sessions of records that are all there: sorted by time, cut where the gap is too long."""
    found = []
    for key in dict.fromkeys(r.key for r in records):
        mine = sorted((r for r in records if r.key == key), key=lambda r: r.at)
        session = []
        for r in mine:
            if session and r.at - session[-1].at > gap:
                found.append((key, *session_result(session)))
                session = []
            session.append(r)
        found.append((key, *session_result(session)))
    return found


KINDS = ["tumbling", "hopping", "sliding", "session"]


def windowed(sdf, kind, size, step, grace, **options):
    if kind == "tumbling":
        return sdf.tumbling_window(size, grace, **options)
    if kind == "hopping":
        return sdf.hopping_window(size, step, grace, **options)
    if kind == "sliding":
        return sdf.sliding_window(size, grace, **options)
    return sdf.session_window(size, grace, **options)


def expected_of(kind, size, step, grace, ticks, last):
    if kind == "tumbling":
        return fixed_windows(size, size, grace, ticks, last)
    if kind == "hopping":
        return fixed_windows(size, step, grace, ticks, last)
    if kind == "sliding":
        return sliding_windows(size, grace, ticks, last)
    return session_windows(size, grace, ticks, last)


class Case(NamedTuple):
    """A window, a stream and a way of running it."""

    records: list
    size: int
    step: int
    grace: int
    lateness: int
    run: dict

    def items(self, places):
        return with_crashes(self.records, places)


@st.composite
def cases(draw, kind):
    """Any disorder. Sessions have even times and an odd gap: see `session_windows`."""
    scale = draw(scales)
    unit = 2 if kind == "session" else 1
    size = draw(st.integers(1, 20)) * unit - (unit - 1)
    step = draw(st.integers(max(1, size // 5), size))
    times = st.integers(0, 60).map(lambda at: at * unit)
    records = draw(streams(times=times, scale=scale))
    grace, lateness = (draw(st.sampled_from([0, 0, 3, 10, 40])) * unit * scale for _ in range(2))
    run = {"batches": draw(cuts), "groups": draw(groups), "on_error": draw(modes)}
    return Case(records, size * scale, step * scale, grace, lateness, run)


# --- windows that close by the watermark ----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@quick(25)
@given(data=st.data(), places=crashes)
def test_a_final_result_is_that_of_all_on_time_records_and_the_others_are_late(kind, data, places):
    case = data.draw(cases(kind))
    sdf = frame().watermark(case.lateness)
    window = windowed(sdf, kind, case.size, case.step, case.grace).agg(**aggregations())
    finals, late = watched(window.final()), watched(window.late())

    run = run_local(sdf, case.items(places), **case.run)

    expected = expected_of(
        kind, case.size, case.step, case.grace, *ticks_of(run, case.records, case.lateness)
    )
    same(finals, expected.finals)
    facts = [(key, at, v["value"]["id"], v["start"], v["end"]) for _, key, at, v in late]
    same(facts, expected.late)
    check_counts(run, case.records)
    assert sum(report.late for report in run.reports) == expected.lost


@pytest.mark.parametrize("kind", KINDS)
@quick(25)
@given(data=st.data(), places=crashes)
def test_with_bounded_disorder_nothing_is_late_and_every_cut_gives_the_full_result(
    kind, data, places
):
    scale, size = data.draw(scales), data.draw(st.integers(1, 20))
    step = data.draw(st.integers(max(1, size // 5), size))
    lateness = data.draw(st.sampled_from([0, 0, 3, 10, 40])) * scale
    records = disordered(data.draw, data.draw(streams(scale=scale)), lateness)
    grace = data.draw(st.sampled_from([0, 0, 5])) * scale
    size, step = size * scale, step * scale
    window = windowed(frame().watermark(lateness), kind, size, step, grace)
    window = window.agg(**aggregations())
    sdf = window.final()
    finals, late = watched(sdf), watched(window.late())
    far = Rec(len(records), "far", 10**12, 0, 0.0)

    run = run_local(sdf, with_crashes([*records, far], places), batches=data.draw(cuts))

    whole = [Tick(None, records)]
    if kind == "session":
        expected = split_at_gaps(records, size)
    else:
        told_ = expected_of(kind, size, step, grace, whole, 10**12)
        expected = [(key, start, result) for _, key, start, result in told_.finals]
    same([row[1:] for row in finals], expected)
    assert late == []
    check_counts(run, [*records, far])


@pytest.mark.parametrize("kind", KINDS)
@quick(15)
@given(data=st.data(), places=crashes)
def test_nothing_is_kept_of_windows_that_have_closed(kind, data, places):
    case = data.draw(cases(kind))
    window = windowed(frame().watermark(case.lateness), kind, case.size, case.step, case.grace)
    sdf = window.agg(n=Count()).final()
    items = [*case.items(places), ("far", {}, 10**12), ("far", {}, 10**12 + 1)]

    run = run_local(sdf, items, **case.run)

    assert set(keys_in(run.engine)) <= {"far"}


def keys_in(engine):
    for blobs in engine.stores.values():
        for key, _ in Pages(blobs, Codec(), engine._groups).scan():
            yield None if key is None else Codec().decode(key)


@pytest.mark.parametrize("how", ["topic", "on"])
@quick(10)
@given(data=st.data())
def test_it_does_not_matter_how_the_time_is_told(how, data, tmp_path_factory):
    case = data.draw(cases("hopping"))
    sdf = frame().watermark(case.lateness)
    window = windowed(sdf, "hopping", case.size, case.step, case.grace)
    by_step = watched(window.agg(n=Count(), all=Collect("id")).final())
    run_local(sdf, [r.item for r in case.records], **case.run)
    if how == "topic":
        app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
        sdf = app.dataframe(app.topic("in", lateness=case.lateness, max_future=None))
        items = [(None if r.key is None else r.key.encode(), r.value, r.at) for r in case.records]
    else:
        sdf = frame().watermark(case.lateness, on="at")
        items = [(r.key, {**r.value, "at": r.at}, 7) for r in case.records]
    other = windowed(sdf, "hopping", case.size, case.step, case.grace)
    found = watched(other.agg(n=Count(), all=Collect("id")).final())

    run = run_local(sdf, items, **case.run)

    plain = [(b, k.decode() if isinstance(k, bytes) else k, t, v) for b, k, t, v in found]
    same(plain, by_step)
    check_counts(run, case.records)


@quick(25)
@given(data=st.data(), places=crashes)
def test_current_results_grow_with_each_on_time_record(data, places):
    case = data.draw(cases("tumbling"))
    window = windowed(frame().watermark(case.lateness), "tumbling", case.size, 0, case.grace)
    sdf = window.agg(**aggregations()).current()
    found = watched(sdf)

    run = run_local(sdf, case.items(places), **case.run)

    expected, contents = [], defaultdict(list)
    ticks, _ = ticks_of(run, case.records, case.lateness)
    for batch, (mark, records) in enumerate(ticks):
        for r in records:
            start = r.at // case.size * case.size
            if mark is None or start + case.size + case.grace > mark:
                contents[r.key, start].append(r)
                window_told = told(contents[r.key, start])
                result = {"start": start, "end": start + case.size, **window_told}
                expected.append((batch, r.key, start, result))
    assert found == expected
    check_counts(run, case.records)


@quick(25)
@given(data=st.data())
def test_a_hopping_window_knows_its_first_and_last_record_whether_combined_or_not(data):
    case = data.draw(cases("hopping"))
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().watermark(case.lateness)
        window = sdf.hopping_window(case.size, case.step, case.grace)
        found[mode] = watched(window.agg(first=First("id"), last=Last("id")).final())
        run_local(sdf, [r.item for r in case.records], **{**case.run, "on_error": mode})

    same(found["stop"], found["dead-letter"])


# --- windows that close by the key ----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@quick(20)
@given(data=st.data(), places=crashes)
def test_windows_that_close_by_the_key_give_the_same_for_every_cut(kind, data, places):
    case = data.draw(cases(kind))
    window = windowed(frame(), kind, case.size, case.step, case.grace).agg(**aggregations())
    sdf = window.final("key")
    finals, late = watched(sdf), watched(window.late())

    run = run_local(sdf, case.items(places), **case.run)

    expected, expected_late, lost = [], [], 0
    for key in {r.key for r in case.records}:
        mine = [r for r in case.records if r.key == key]
        clocks = [max(r.at for r in mine[: n + 1]) for n in range(len(mine))]
        ticks = [Tick(mark, [r]) for mark, r in zip(clocks, mine, strict=True)]
        model = expected_of(kind, case.size, case.step, case.grace, ticks, clocks[-1])
        expected += [row[1:] for row in model.finals]
        expected_late += model.late
        lost += model.lost
    same([row[1:] for row in finals], expected)
    facts = [(key, at, v["value"]["id"], v["start"], v["end"]) for _, key, at, v in late]
    same(facts, expected_late)
    check_counts(run, case.records)
    assert sum(report.late for report in run.reports) == lost


@pytest.mark.parametrize("kind", KINDS)
@quick(10)
@given(data=st.data())
def test_results_by_key_come_in_the_same_order_for_every_cut(kind, data):
    case = data.draw(cases(kind))
    sdf = windowed(frame(), kind, case.size, case.step, case.grace).agg(n=Count()).final("key")
    items = [r.item for r in case.records]

    whole, parts = run_local(sdf, items), run_local(sdf, items, batches=case.run["batches"])

    assert list(parts) == list(whole)


# --- sessions -------------------------------------------------------------------------------


@quick(40)
@given(records=streams(keys=["a", None]), gap=st.integers(1, 12), cut=cuts, places=crashes)
@pytest.mark.parametrize("ordered", [False, True])
def test_sessions_in_any_order_are_split_where_the_gap_is_too_long(
    ordered, records, gap, cut, places
):
    window = frame().watermark(100).session_window(gap)  # so nothing is late
    sdf = window.agg(**aggregations(ordered=ordered)).final()
    finals = watched(sdf)
    items = [*with_crashes(records, places), ("far", Rec(0, "far", 0, 0, 0.0).value, 10**6)]

    run = run_local(sdf, items, batches=cut)

    expected = [
        (key, start, {name: told_ for name, told_ in result.items() if ordered or name != "all"})
        for key, start, result in split_at_gaps(records, gap)
    ]
    same([row[1:] for row in finals], expected)
    assert all(report.reconciles for report in run.reports)


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("strategy", ["watermark", "key"])
def test_a_record_between_two_sessions_makes_them_one(strategy, cut):
    window = frame().watermark(100).session_window(10, grace_ms=100)
    sdf = window.agg(n=Count(), all=Collect()).final(strategy)
    items = [("k", "left", 0), ("k", "right", 20), ("k", "middle", 10), ("k", "", 10**6)]
    items += [("k", "", 2 * 10**6)]

    run = run_local(sdf, items, batches=cut)

    assert run[0] == {"start": 0, "end": 20, "n": 3, "all": ["left", "middle", "right"]}


@pytest.mark.parametrize("cut", [None, 1])
def test_a_session_waits_for_a_record_that_comes_exactly_its_gap_later(cut):
    sdf = frame().session_window(10).agg(n=Count()).final()
    items = [("k", 1, 0), ("other", 1, 10), ("k", 1, 10), ("far", 1, 1000)]

    run = run_local(sdf, items, batches=cut)

    assert sorted(run, key=str) == [
        {"start": 0, "end": 10, "n": 2},
        {"start": 10, "end": 10, "n": 1},
    ]


def test_a_session_by_key_waits_for_its_grace_and_no_less():
    sdf = frame().session_window(10, grace_ms=5).agg(n=Count()).final("key")

    run = run_local(sdf, [("k", 1, 0), ("k", 1, 15), ("k", 1, 10), ("k", 1, 1000)])

    assert list(run) == [{"start": 0, "end": 15, "n": 3}]


# --- windows of so many records -------------------------------------------------------------


@quick(30)
@given(
    records=streams(),
    count=st.integers(1, 5),
    step=st.integers(1, 5),
    word=st.sampled_from(["tumbling", "hopping", "sliding"]),
    cut=cuts,
    places=crashes,
)
def test_count_windows_hold_so_many_records_whatever_the_cut(
    records, count, step, word, cut, places
):
    step = {"tumbling": count, "hopping": min(step, count), "sliding": 1}[word]
    sdf = frame()
    window = (
        sdf.tumbling_count_window(count)
        if word == "tumbling"
        else sdf.hopping_count_window(count, step)
        if word == "hopping"
        else sdf.sliding_count_window(count)
    )
    sdf = window.agg(**aggregations()).final()
    finals = watched(sdf)

    run = run_local(sdf, with_crashes(records, places), batches=cut)

    expected = []
    for key in {r.key for r in records}:
        mine = [r for r in records if r.key == key]
        for first in range(0, len(mine) - count + 1, step):
            content = mine[first : first + count]
            expected.append((key, *session_result(content)))
    same([row[1:] for row in finals], expected)
    check_counts(run, records)


# --- corrections ----------------------------------------------------------------------------


@quick(30)
@given(data=st.data(), horizon=st.sampled_from([1, 5, 20, 60]), places=crashes)
def test_a_late_record_corrects_its_window_up_to_the_horizon(data, horizon, places):
    case = data.draw(cases("hopping"))
    sdf = frame().watermark(case.lateness)
    window = sdf.hopping_window(case.size, case.step, case.grace, corrections_ms=horizon)
    window = window.agg(**aggregations())
    results, late = watched(window.final()), watched(window.late())

    run = run_local(sdf, case.items(places), **case.run)

    ticks, last = ticks_of(run, case.records, case.lateness)
    expected, expected_late = corrected(case, horizon, ticks, last)
    same(results, expected)
    facts = [(key, at, v["value"]["id"], v["start"], v["end"]) for _, key, at, v in late]
    same(facts, expected_late)
    check_counts(run, case.records)


def corrected(case, horizon, ticks, last):
    """Each window once when it closes, and again for each record that is not too late."""
    contents, revisions, given_, late = defaultdict(list), {}, [], []

    def give(batch, key, start):
        revisions[key, start] = revisions.get((key, start), -1) + 1
        result = {"start": start, "end": start + case.size, **told(contents[key, start])}
        revised = {**result, "revision": revisions[key, start]}
        given_.append((batch, key, start, revised))

    for batch, (mark, records) in enumerate([*ticks, Tick(last, [])]):
        for key, start in list(contents):
            is_over = mark is not None and start + case.size + case.grace <= mark
            if is_over and (key, start) not in revisions:
                give(batch, key, start)
        for r in records:
            for start in starts_at(r.at, case.size, case.step):
                closes = start + case.size + case.grace
                if mark is not None and closes + horizon <= mark:
                    late.append((r.key, r.at, r.number, start, start + case.size))
                    continue
                contents[r.key, start].append(r)
                if mark is not None and closes <= mark:
                    give(batch, r.key, start)
    return given_, late


@quick(20)
@given(data=st.data())
def test_the_last_revision_is_the_full_result_if_the_horizon_is_long_enough(data):
    case = data.draw(cases("tumbling"))
    sdf = frame().watermark(case.lateness)
    window = sdf.tumbling_window(case.size, case.grace, corrections_ms=10**9)
    found = watched(window.agg(**aggregations()).final())

    run_local(
        sdf, [*case.items([]), ("far", Rec(0, "far", 0, 0, 0.0).value, 10**9)], **case.run
    )

    revisions, results = defaultdict(list), {}
    for _, key, start, result in found:
        revisions[key, start].append(result.pop("revision"))
        results[key, start] = result
    whole = fixed_windows(case.size, case.size, 0, [Tick(None, case.records)], 10**13)
    assert results == {(key, start): result for _, key, start, result in whole.finals}
    assert all(numbers == list(range(len(numbers))) for numbers in revisions.values())


# --- windows of windows ---------------------------------------------------------------------


@pytest.mark.parametrize("is_moved", [False, True])
@quick(25)
@given(data=st.data(), places=crashes)
def test_a_window_of_a_window_closes_and_is_not_late(is_moved, data, places):
    size = data.draw(st.integers(1, 10))
    larger = size * data.draw(st.integers(1, 4))
    lateness = data.draw(st.sampled_from([0, 5]))
    records = disordered(data.draw, data.draw(streams()), lateness)
    sdf = frame().watermark(lateness)
    inner = sdf.tumbling_window(size, name="inner").agg(n=Count(), ints=Sum("i")).final()
    if is_moved:
        inner = inner.group_by(lambda value: value["n"] % 2, name="parity")
    outer = inner.tumbling_window(larger, name="outer").agg(
        n=Sum("n"), ints=Sum("ints"), windows=Count()
    )
    finals, late = watched(outer.final()), watched(outer.late())
    far = [Rec(90 + n, "far", 10**6 * n, 0, 0.0) for n in (1, 2, 3)]

    run = run_local(sdf, with_crashes([*records, *far], places), batches=data.draw(cuts))

    totals = defaultdict(lambda: [0, 0, 0])
    inner_windows = defaultdict(list)
    for r in [*records, far[0]]:
        inner_windows[r.key, r.at // size * size].append(r)
    for (key, start), content in inner_windows.items():
        place = (len(content) % 2 if is_moved else key, start // larger * larger)
        total = totals[place]
        total[:] = [
            total[0] + len(content),
            total[1] + sum(r.i for r in content),
            total[2] + 1,
        ]
    expected = [
        (key, start, {"start": start, "end": start + larger, "n": n, "ints": i, "windows": w})
        for (key, start), (n, i, w) in totals.items()
    ]
    assert late == []
    same([row[1:] for row in finals], expected)
    assert all(report.reconciles for report in run.reports)


# --- running totals -------------------------------------------------------------------------


def running(sdf, emit, **chosen):
    return sdf.agg(emit=emit, **(chosen or {**aggregations(), "first": First("id"), "last": Last("id")}))


def folded(records):
    return {**told(records), "first": records[0].number, "last": records[-1].number}


@quick(25)
@given(records=streams(), cut=cuts, places=crashes, groups=groups, mode=modes)
def test_totals_behind_each_record_do_not_depend_on_the_cut(records, cut, places, groups, mode):
    sdf = running(frame(), "record")
    found = watched(sdf)

    run = run_local(
        sdf, with_crashes(records, places), batches=cut, groups=groups, on_error=mode
    )

    expected, so_far = [], defaultdict(list)
    for r in records:
        so_far[r.key].append(r)
        expected.append((r.key, r.at, folded(so_far[r.key])))
    assert [row[1:] for row in found] == expected
    check_counts(run, records)


@quick(25)
@given(records=streams(), cut=cuts, places=crashes, groups=groups, mode=modes)
def test_totals_of_each_batch_are_those_of_all_records_so_far(records, cut, places, groups, mode):
    sdf = running(frame(), "batch")
    found = watched(sdf)

    run = run_local(
        sdf, with_crashes(records, places), batches=cut, groups=groups, on_error=mode
    )

    expected, so_far = [], defaultdict(list)
    ticks, _ = ticks_of(run, records, 0)
    for batch, (_, part) in enumerate(ticks):
        for r in part:
            so_far[r.key].append(r)
        expected += [(batch, key, folded(so_far[key])) for key in {r.key for r in part}]
    same([(batch, key, value) for batch, key, _, value in found], expected)
    check_counts(run, records)


@quick(20)
@given(records=streams(), cut=cuts)
def test_totals_of_a_batch_have_the_same_time_whether_combined_or_not(records, cut):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().agg(emit="batch", n=Count())
        found[mode] = watched(sdf)
        run_local(sdf, [r.item for r in records], batches=cut, on_error=mode)

    same(found["stop"], found["dead-letter"])


@quick(20)
@given(records=streams(times=st.integers(0, 3)), cut=cuts, groups=groups)
def test_totals_behind_a_stateful_step_are_the_same_whether_combined_or_not(records, cut, groups):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().apply(lambda value, state: value, stateful=True)
        sdf = sdf.group_by(lambda value: value["i"] % 2, name="parity")
        found[mode] = watched(running(sdf, "batch"))
        items = [r.item for r in records]
        run_local(sdf, items, batches=cut, groups=groups, on_error=mode)

    values = {
        mode: [(batch, key, value) for batch, key, _, value in rows]
        for mode, rows in found.items()
    }
    same(values["stop"], values["dead-letter"])


@quick(20)
@given(records=streams(times=st.integers(0, 3)), cut=cuts, groups=groups)
def test_windows_behind_a_stateful_step_are_the_same_whether_combined_or_not(records, cut, groups):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().apply(lambda value, state: value, stateful=True)
        sdf = sdf.group_by(lambda value: value["i"] % 2, name="parity")
        window = sdf.tumbling_window(10).agg(
            all=Collect("id"), recent=Latest("id"), first=First("id"), last=Last("id")
        )
        found[mode] = watched(window.final())
        items = [*(r.item for r in records), ("far", Rec(99, "far", 0, 0, 0.0).value, 1000)]
        run_local(sdf, items, batches=cut, groups=groups, on_error=mode)

    same(found["stop"], found["dead-letter"])


# --- state that expires ---------------------------------------------------------------------

NAMES = ["a", "b", "ü", (1, 2)]
SIZES = [1, 32 * 1024 - 20, 32 * 1024, 40_000]

operations = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "delete", "look"]),
        st.sampled_from(NAMES),
        st.sampled_from(SIZES),
        st.sampled_from([None, 1, 5, 20, "default"]),
    ),
    max_size=3,
)


@st.composite
def expiring_streams(draw, lateness):
    rows = draw(
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.integers(0, 60), operations),
            max_size=20,
        )
    )
    delays = draw(st.lists(st.integers(0, lateness), min_size=len(rows), max_size=len(rows)))
    pairs = sorted(zip(rows, delays, strict=True), key=lambda pair: pair[0][1] + pair[1])
    return [row for row, _ in pairs]


def perform(value, key, timestamp, headers, state):
    number, steps = value
    for verb, name, size, ttl in steps:
        if verb == "set":
            content = (number, bytes([number]) * size)
            if ttl == "default":
                state.set(name, content)
            else:
                state.set(name, content, ttl=ttl)
        elif verb == "delete":
            state.delete(name)
    return {
        "seen": {name: state.get(name, "missing") for name in NAMES},
        "exist": [name for name in NAMES if name in state],
        "names": sorted(map(repr, state.keys())),
        "count": len(state),
    }


class Kept:
    """What state should show: a dict with an expiry for each value."""

    def __init__(self, default):
        self.default = default
        self.values = defaultdict(dict)

    def perform(self, number, key, at, steps):
        mine = self.values[key]
        for verb, name, size, ttl in steps:
            ttl = self.default if ttl == "default" else ttl
            if verb == "set":
                mine[name] = ((number, bytes([number]) * size), math.inf if ttl is None else at + ttl)
            elif verb == "delete":
                mine.pop(name, None)
        live = {name: value for name, (value, expires) in mine.items() if expires > at}
        return {
            "seen": {name: live.get(name, "missing") for name in NAMES},
            "exist": [name for name in NAMES if name in live],
            "names": sorted(map(repr, live)),
            "count": len(live),
        }


@quick(40)
@given(
    data=st.data(),
    lateness=st.sampled_from([0, 3, 30]),
    default=st.sampled_from([None, 4]),
    cut=cuts,
    places=crashes,
    mode=modes,
)
def test_state_shows_what_is_live_at_the_records_own_time_and_its_memory_comes_back(
    data, lateness, default, cut, places, mode, tmp_path_factory
):
    rows = data.draw(expiring_streams(lateness))
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    sdf = app.dataframe(source=ListSource([], "in"), state_ttl=default).watermark(lateness)
    sdf = sdf.apply(perform, stateful=True, metadata=True)
    items = [(key, (n, steps), at) for n, (key, at, steps) in enumerate(rows)]
    for place in places:
        items.insert(min(place, len(items)), CRASH)

    engine = LocalEngine(sdf, on_error=mode)
    engine.feed([*items, END])
    run = finished(engine, cut)

    kept = Kept(default)
    expected = [kept.perform(n, key, at, steps) for n, (key, at, steps) in enumerate(rows)]
    assert list(run) == expected
    engine.feed([("far", (0, []), 1000), ("far", (0, []), 1000)])
    run = engine.run()
    assert contents_of(engine) == {
        (key, name): value
        for key, mine in kept.values.items()
        for name, (value, expires) in mine.items()
        if expires == math.inf
    }
    assert all(report.reconciles for report in run.reports)
    if not contents_of(engine):
        assert {blob for blobs in engine.stores.values() for blob in blobs.blobs} <= {b"h"}


def finished(engine, cut):
    """Run to the END mark, beginning again at each CRASH."""
    while True:
        try:
            return engine.run(cut)
        except Exception as error:
            if type(error).__name__ != "SimulatedCrash":
                raise


def contents_of(engine):
    """Everything that lies in the stores, in the words of a user; expired values too."""
    return {
        (item.key, item.name): item.value
        for (scope, _), blobs in engine.stores.items()
        for item in scan_items(blobs, scope, engine._groups, Codec(), Codec().decode)
    }
