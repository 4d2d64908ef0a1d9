"""Time, as properties of the local engine: windows, sessions, totals, expiry, timers, clocks.

What is expected is worked out here in plain Python, from the definitions alone.
"""

import json
import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
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
    Reduce,
    Sum,
)
from millpond.driver.timekeeper import Timekeeper
from millpond.errors import StepError
from millpond.state.codec import Codec
from millpond.state.layout import Pages
from millpond.state.rows import group_rows
from millpond.testing import CRASH, END, ListSource, LocalEngine, ManualClock, frame, run_local
from millpond.wire.packed_rows import EDGE, family_of
from millpond.worker.key_group import run_group
from millpond.worker.stage import StageRunner


def quick(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


KEYS = ["a", "b", "c", None]
FLOATS = [0.1, 0.2, 0.3, -0.7, 1e15, 3.3e-5, 1 / 3]

cuts = st.one_of(
    st.lists(st.integers(0, 5), min_size=3, max_size=14), st.sampled_from([[], 1, 1, 2, 3])
)
groups = st.sampled_from([1, 3, 8])
crashes = st.lists(st.integers(0, 30), max_size=3)
modes = st.sampled_from(["stop", "dead-letter"])  # with "stop", records may be combined
sizes = st.sampled_from([5, 8, 3, 13, 2, 20, 1])
scales = st.sampled_from([1, 700, 10**7])  # hints lie in one bucket of the timer_index, or in many


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


def recs(*rows):
    """Records of (key, time) or (key, time, i)."""
    return [Rec(n, key, at, *(*more, 0)[:1], 0.1) for n, (key, at, *more) in enumerate(rows)]


@st.composite
def streams(draw, times=None, keys=KEYS, scale=1, max_size=24):
    """Records in any order of their times."""
    times = st.integers(0, draw(st.sampled_from([12, 30, 60]))) if times is None else times
    count = draw(st.integers(0, max_size))  # a list by itself is most often a short one
    row = st.tuples(st.sampled_from(keys), times, st.integers(-3, 3), st.sampled_from(FLOATS))
    rows = draw(st.lists(row, min_size=count, max_size=count))
    return [Rec(n, key, at * scale, i, f) for n, (key, at, i, f) in enumerate(rows)]


def disordered(draw, records, lateness):
    """The same records, none of them further behind an earlier one than the lateness."""
    delays = draw(st.lists(st.integers(0, lateness), min_size=len(records), max_size=len(records)))
    pairs = sorted(zip(records, delays, strict=True), key=lambda pair: pair[0].at + pair[1])
    return [record._replace(number=n) for n, (record, _) in enumerate(pairs)]


@st.composite
def bounded(draw):
    """A lateness, and records that are not further behind than that."""
    lateness = draw(st.sampled_from([0, 5, 30]))
    return lateness, disordered(draw, draw(streams()), lateness)


def with_crashes(records, places):
    items = [record.item for record in records]
    for place in places:
        items.insert(min(place, len(items)), CRASH)
    return items


def watched(sdf):
    """Return a list that will hold (batch, key, timestamp, value) of all that a frame gives."""
    found = []

    def keep(records, delivery_id):
        batch = int(delivery_id.split("-")[-2])
        found.extend((batch, r.key, r.timestamp, r.value) for r in records)

    sdf.sink(keep, name=f"watched-{len(sdf._graph.sinks)}")
    return found


def same(found, expected):
    """Compare as multisets; values need no order of their own, nor have fields one."""
    assert sorted(map(as_text, found)) == sorted(map(as_text, expected))


def as_text(item):
    if isinstance(item, dict):
        return repr([(name, item[name]) for name in sorted(item)])
    return "; ".join(map(as_text, item)) if isinstance(item, tuple) else repr(item)


def check_counts(run, records):
    assert all(report.reconciles for report in run.reports)
    assert sum(report.read for report in run.reports) == len(records)


# --- the totals of records ------------------------------------------------------------------


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
    by_arrival = {"all": Collect("id"), "first": First("id"), "last": Last("id")}
    return {**known, **by_arrival} if ordered else known


def totals(records, *, ordered=True):
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
    numbers = [r.number for r in records]
    by_arrival = {"all": [r.number for r in by_time], "first": numbers[0], "last": numbers[-1]}
    return {**result, **by_arrival} if ordered else result


# --- the model of the clock, and of windows -------------------------------------------------


class Tick(NamedTuple):
    """A batch: the watermark in it, and its records."""

    mark: int | None
    records: list


def ticks_of(run, records, lateness):
    """Return the batches that were run, and the watermark after the last of them."""
    ticks, place, largest = [], 0, None
    for report in run.reports:
        part = records[place : place + report.read]
        ticks.append(Tick(None if largest is None else largest - lateness, part))
        largest = max([r.at for r in part] + ([] if largest is None else [largest]), default=None)
        place += report.read
    return ticks, None if largest is None else largest - lateness


class Told(NamedTuple):
    """What windows should give."""

    finals: list  # (batch, key, timestamp, result)
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
            result = {"start": start, "end": end, **totals(content, ordered=ordered)}
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
    """Sessions grow while they are open: until the watermark is beyond their last record + gap."""
    open_, finals, late = defaultdict(list), [], []
    for batch, (mark, records) in enumerate([*ticks, Tick(last, [])]):
        for key, sessions in open_.items():
            for s in list(sessions):
                if mark is not None and max(r.at for r in s) + gap + grace < mark:
                    sessions.remove(s)
                    finals.append((batch, key, *session_result(s, ordered=ordered)))
        for r in records:
            near = [s for s in open_[r.key] if touches(s, r.at, gap)]
            if not near and mark is not None and r.at + gap + grace < mark:
                late.append((r.key, r.at, r.number, r.at, r.at + 1))
                continue
            rest = [s for s in open_[r.key] if s not in near]
            open_[r.key] = [*rest, [r, *(other for s in near for other in s)]]
    return Told(finals, late, len(late))


def touches(session, at, gap):
    times = [r.at for r in session]
    return min(times) - gap <= at <= max(times) + gap


def session_result(session, *, ordered=True):
    """A session may have begun long ago, so the time of its result is that of its last record."""
    start, last = min(r.at for r in session), max(r.at for r in session)
    return last, {"start": start, "end": last + 1, **totals(session, ordered=ordered)}


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
    scale: int
    run: dict

    def items(self, places):
        return with_crashes(self.records, places)


@st.composite
def cases(draw):
    """Any disorder."""
    scale = draw(scales)
    size = draw(sizes)
    step = max(1, size // draw(st.sampled_from([2, 3, 5, 1])))
    records = draw(streams(scale=scale))
    grace, lateness = (draw(st.sampled_from([0, 0, 0, 2, 5, 20])) * scale for _ in range(2))
    run = {"batches": draw(cuts), "groups": draw(groups), "on_error": draw(modes)}
    return Case(records, size * scale, step * scale, grace, lateness, scale, run)


def ordered_case(times, size, grace=0):
    """Records of one key, one a batch."""
    records = recs(*(("a", at) for at in times))
    return Case(records, size, size, grace, 0, 1, {"batches": 1, "groups": 1})


# --- windows that close by the watermark ----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@quick(30)
@given(case=cases(), places=crashes)
def test_a_final_result_is_that_of_all_on_time_records_and_the_others_are_late(kind, case, places):
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
    scale, size = data.draw(scales), data.draw(sizes)
    step = max(1, size // data.draw(st.sampled_from([2, 3, 5, 1])))
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
        expected_windows = expected_of(kind, size, step, grace, whole, 10**12)
        expected = [(key, start, result) for _, key, start, result in expected_windows.finals]
    same([row[1:] for row in finals], expected)
    assert late == []
    check_counts(run, [*records, far])


@pytest.mark.parametrize("kind", KINDS)
@quick(15)
@given(case=cases(), places=crashes)
def test_nothing_is_kept_of_windows_that_have_closed(kind, case, places):
    window = windowed(frame().watermark(case.lateness), kind, case.size, case.step, case.grace)
    sdf = window.agg(n=Count()).final()
    items = [*case.items(places), ("far", {}, 10**12), ("far", {}, 10**12 + 1)]

    run = run_local(sdf, items, **case.run)

    assert set(keys_in(run.engine)) <= {"far"}


def test_a_record_that_only_later_sliding_windows_could_need_is_not_kept_for_ever():
    sdf = frame().sliding_window(100).agg(n=Count()).final()
    items = [("other", 1, 50), ("k", 1, 20), ("other", 1, 1000), ("other", 1, 2000)]

    run = run_local(sdf, items, batches=1)

    assert set(keys_in(run.engine)) == {"other"}


def keys_in(engine):
    for blobs in engine.stores.values():
        for key, _ in Pages(blobs, Codec(), engine._groups).scan():
            yield None if key is None else Codec().decode(key)


@pytest.mark.parametrize("how", ["topic", "on"])
@quick(10)
@given(case=cases())
def test_it_does_not_matter_where_the_time_is_read(how, case, tmp_path_factory):
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


@pytest.mark.parametrize("cut", [[], 1])
def test_windows_of_the_key_none_and_of_the_empty_key_close_together(cut, tmp_path):
    app = Application(topics_dir=tmp_path, loglevel=None)
    sdf = app.dataframe(app.topic("in")).tumbling_window(10).agg(n=Count()).final()
    found = watched(sdf)
    items = [(None, 1, 0), (b"", 1, 0), (None, 1, 10), (b"", 1, 20), (b"far", 1, 100)]

    run_local(sdf, items, batches=cut)

    same([(key, start) for _, key, start, _ in found], [(None, 0), (b"", 0), (None, 10), (b"", 20)])


@pytest.mark.parametrize("kind", KINDS)
@quick(15)
@given(case=cases(), places=crashes)
def test_current_results_grow_with_each_on_time_record(kind, case, places):
    window = windowed(frame().watermark(case.lateness), kind, case.size, case.step, case.grace)
    sdf = window.agg(**aggregations()).current()
    found = watched(sdf)

    run = run_local(sdf, case.items(places), **case.run)

    expected = []
    ticks, _ = ticks_of(run, case.records, case.lateness)
    for batch, (mark, records) in enumerate(ticks):
        for n, r in enumerate(records):
            # What is open now, and what it holds, is what would close if no more came.
            part = [*ticks[:batch], Tick(mark, records[: n + 1])]
            before = [*ticks[:batch], Tick(mark, records[:n])]
            now, then = (
                finals_by_window(expected_of(kind, case.size, case.step, case.grace, t, 10**15))
                for t in (part, before)
            )
            grown = [place for place in now if now[place] != then.get(place)]
            expected += [(batch, *place[:2], now[place]) for place in grown if place[0] == r.key]
    same(found, expected)
    check_counts(run, case.records)


def finals_by_window(model):
    return {(key, at, result["end"]): result for _, key, at, result in model.finals}


@quick(25)
@given(case=cases())
def test_a_hopping_window_knows_its_first_and_last_record_whether_combined_or_not(case):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().watermark(case.lateness)
        window = sdf.hopping_window(case.size, case.step, case.grace)
        found[mode] = watched(window.agg(first=First("id"), last=Last("id")).final())
        run_local(sdf, [r.item for r in case.records], **{**case.run, "on_error": mode})

    same(found["stop"], found["dead-letter"])


def test_the_last_record_of_a_hopping_window_is_the_last_though_another_was_partly_late():
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().hopping_window(20, 10).agg(first=First(), last=Last()).final()
        items = [("k", 0, 31), ("k", 1, 35), ("k", 2, 26), ("k", 3, 36), ("far", 9, 1000)]
        found[mode] = list(run_local(sdf, items, batches=[1], on_error=mode))

    assert found["dead-letter"][0] == {"start": 20, "end": 40, "first": 0, "last": 3}
    assert found["stop"] == found["dead-letter"]


# --- windows that close by the key ----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@quick(20)
@given(case=cases(), places=crashes)
def test_windows_that_close_by_the_key_give_the_same_for_every_cut(kind, case, places):
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


@quick(25)
@given(case=cases(), places=crashes)
def test_current_results_by_key_grow_with_each_on_time_record(case, places):
    window = windowed(frame(), "hopping", case.size, case.step, case.grace)
    sdf = window.agg(**aggregations()).current("key")
    found = watched(sdf)

    run_local(sdf, case.items(places), **case.run)

    expected, contents, latest = [], defaultdict(list), {}
    for r in case.records:
        latest[r.key] = max(r.at, latest.get(r.key, r.at))
        for start in sorted(starts_at(r.at, case.size, case.step)):
            if start + case.size + case.grace > latest[r.key]:
                contents[r.key, start].append(r)
                result = {"start": start, "end": start + case.size}
                expected.append((r.key, start, {**result, **totals(contents[r.key, start])}))
    assert [row[1:] for row in found] == expected


@quick(40)
@example(case=ordered_case((1117, 1128, 1125), size=15))
@given(case=cases())
def test_a_sliding_window_by_key_is_that_of_its_record_unless_the_record_is_late_for_it(case):
    sdf = frame().sliding_window(case.size, case.grace).agg(**aggregations()).current("key")
    found = watched(sdf)

    run_local(sdf, [r.item for r in case.records], **case.run)

    expected, mine, latest = [], defaultdict(list), {}
    for r in case.records:
        latest[r.key] = max(r.at, latest.get(r.key, r.at))
        mine[r.key].append(r)
        open_from = latest[r.key] - case.grace
        ends = {o.at for o in on_time(mine[r.key], case.grace)}
        for end in sorted(end for end in ends if r.at <= end <= r.at + case.size):
            if end >= open_from:
                content = [o for o in mine[r.key] if end - case.size <= o.at <= end]
                result = {"start": max(0, end - case.size), "end": end, **totals(content)}
                expected.append((r.key, result["start"], result))
    assert [row[1:] for row in found] == expected


def on_time(records, grace):
    """Return the records of a key that were not late for their own windows as they came."""
    latest = [max(r.at for r in records[: n + 1]) for n in range(len(records))]
    return [r for r, now in zip(records, latest, strict=True) if r.at + grace >= now]


@pytest.mark.parametrize("kind", KINDS)
@quick(10)
@given(case=cases())
def test_results_by_key_come_in_the_same_order_for_every_cut(kind, case):
    sdf = windowed(frame(), kind, case.size, case.step, case.grace).agg(n=Count()).final("key")
    items = [r.item for r in case.records]

    whole, parts = run_local(sdf, items), run_local(sdf, items, batches=case.run["batches"])

    assert list(parts) == list(whole)


# --- sessions -------------------------------------------------------------------------------


@quick(30)
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
        (
            key,
            end,
            {name: result[name] for name in ["start", "end", *aggregations(ordered=ordered)]},
        )
        for key, end, result in split_at_gaps(records, gap)
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

    assert run[0] == {"start": 0, "end": 21, "n": 3, "all": ["left", "middle", "right"]}


@pytest.mark.parametrize("cut", [None, 1])
def test_a_session_waits_for_a_record_that_comes_exactly_its_gap_later(cut):
    sdf = frame().session_window(10).agg(n=Count()).final()
    items = [("k", 1, 0), ("other", 1, 10), ("k", 1, 10), ("far", 1, 1000)]

    run = run_local(sdf, items, batches=cut)

    assert sorted(run, key=lambda result: result["start"]) == [
        {"start": 0, "end": 11, "n": 2},
        {"start": 10, "end": 11, "n": 1},
    ]


def test_a_session_by_key_waits_for_its_grace_and_no_less():
    sdf = frame().session_window(10, grace_ms=5).agg(n=Count()).final("key")

    run = run_local(sdf, [("k", 1, 0), ("k", 1, 15), ("k", 1, 10), ("k", 1, 1000)])

    assert list(run) == [{"start": 0, "end": 16, "n": 3}]


# --- windows of so many records -------------------------------------------------------------


@quick(30)
@given(
    records=streams(keys=["a", None]),
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
            last, result = session_result(content)
            by_arrival = {**result, "end": last, "all": [r.number for r in content]}
            expected.append((key, result["start"], by_arrival))
    same([row[1:] for row in finals], expected)
    check_counts(run, records)


# --- corrections ----------------------------------------------------------------------------


@quick(30)
@given(case=cases(), horizon=st.sampled_from([1, 2, 3, 5, 20]), places=crashes)
def test_a_late_record_corrects_its_window_up_to_the_horizon(case, horizon, places):
    horizon *= case.scale
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
        result = {"start": start, "end": start + case.size, **totals(contents[key, start])}
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


@pytest.mark.parametrize(("mark", "is_late"), [(24, False), (25, True)])
def test_the_horizon_of_corrections_ends_after_the_grace(mark, is_late):
    sdf = frame()
    window = sdf.tumbling_window(10, grace_ms=5, corrections_ms=10).agg(n=Count())
    finals, late = watched(window.final()), watched(window.late())

    run_local(sdf, [("k", 1, 0), ("other", 1, mark), ("k", 1, 9)], batches=1)

    results = [(value["revision"], value["n"]) for _, key, _, value in finals if key == "k"]
    assert results == ([(0, 1)] if is_late else [(0, 1), (1, 2)])
    assert [key for _, key, _, _ in late] == ["k"] * is_late


@quick(20)
@given(case=cases())
def test_the_last_revision_is_the_full_result_if_the_horizon_is_long_enough(case):
    sdf = frame().watermark(case.lateness)
    window = sdf.tumbling_window(case.size, case.grace, corrections_ms=10**10)
    found = watched(window.agg(**aggregations()).final())

    run_local(sdf, [*case.items([]), ("far", Rec(0, "far", 0, 0, 0.0).value, 10**10)], **case.run)

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
    size = data.draw(st.sampled_from([1, 2, 3, 5, 8]))
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
    for r in [*records, *far[:2]]:  # the last of them closes the others
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


pairs_of_sizes = st.tuples(*[st.sampled_from([2, 5, 9, 20])] * 2)
pairs_of_graces = st.tuples(*[st.sampled_from([0, 0, 4])] * 2)


@pytest.mark.parametrize("inner", KINDS)
@quick(12)
@example(
    stream=(0, recs(("a", 1), ("a", 3), ("a", 5))),
    sizes=(2, 2),
    graces=(0, 0),
    outer="tumbling",
    is_moved=False,
    cut=[],
)
@given(
    stream=bounded(),
    sizes=pairs_of_sizes,
    graces=pairs_of_graces,
    outer=st.sampled_from(KINDS),
    is_moved=st.booleans(),
    cut=cuts,
)
def test_any_window_after_any_other_gives_the_same_for_every_cut(
    inner, stream, sizes, graces, outer, is_moved, cut
):
    lateness, records = stream
    items = [r.item for r in records]
    items += [("far", {"i": 0, "id": 90 + n, "f": 0.0}, 10**6 * n) for n in (1, 2, 3)]
    found = []
    for batches in ([], 1, cut):
        sdf = frame().watermark(lateness)
        first = windowed(sdf, inner, sizes[0], 1 + sizes[0] // 2, graces[0], name="inner")
        results = first.agg(n=Count(), ids=Collect("id")).final()
        if is_moved:
            results = results.group_by(lambda value: value["n"] % 2, name="parity")
        second = windowed(results, outer, sizes[1], 1 + sizes[1] // 2, graces[1], name="outer")
        second = second.agg(n=Sum("n"), ids=Collect("ids"))
        finals, late = watched(second.final()), watched(second.late())
        run = run_local(sdf, items, batches=batches)
        assert late == []
        assert all(report.reconciles for report in run.reports)
        found.append([(key, at, without_order(value)) for _, key, at, value in finals])

    same(found[1], found[0])
    same(found[2], found[0])


def without_order(value):
    """Results of one time come from several keys, in no order that would be promised."""
    return {**value, "ids": sorted(map(repr, value["ids"]))}


@quick(20)
@given(stream=bounded(), cut=cuts, is_moved=st.booleans())
def test_nothing_is_late_for_the_third_of_three_windows(stream, cut, is_moved):
    lateness, records = stream
    sdf = frame().watermark(lateness)
    last = sdf
    for name, size in (("one", 5), ("two", 7), ("three", 2)):
        counted = Count() if name == "one" else Sum("n")
        window = last.tumbling_window(size, name=name).agg(n=counted)
        last, late = window.final(), window.late()
        if is_moved and name == "two":
            last = last.group_by(lambda value: value["n"] % 2, name="parity")
    found, lates = watched(last), watched(late)
    items = [r.item for r in records] + [("far", {"i": 0}, 10**6 * n) for n in (1, 2, 3, 4)]

    run_local(sdf, items, batches=cut)

    assert lates == []
    expected = Counter(r.at // 5 * 5 // 7 * 7 // 2 * 2 for r in records)
    given_ = Counter()
    for _, _, start, value in found:
        given_[start] += value["n"] if start < 10**5 else 0
    assert +given_ == expected


@pytest.mark.parametrize("cut", [[], 1])
def test_a_long_session_is_not_late_for_a_window_after_it(cut):
    sdf = frame()
    sessions = sdf.session_window(10, name="inner").agg(n=Count()).final()
    window = sessions.tumbling_window(20, name="outer").agg(n=Sum("n"))
    finals, late = watched(window.final()), watched(window.late())
    items = [("k", 1, at) for at in range(0, 200, 5)] + [("far", 1, 1000), ("far", 1, 2000)]

    run_local(sdf, items, batches=cut)

    assert late == []
    assert [value["n"] for _, key, _, value in finals if key == "k"] == [40]


# --- running totals -------------------------------------------------------------------------


@quick(25)
@given(records=streams(), cut=cuts, places=crashes, groups=groups, mode=modes)
def test_totals_after_each_record_do_not_depend_on_the_cut(records, cut, places, groups, mode):
    sdf = frame().agg(emit="record", **aggregations())
    found = watched(sdf)

    run = run_local(sdf, with_crashes(records, places), batches=cut, groups=groups, on_error=mode)

    expected, so_far = [], defaultdict(list)
    for r in records:
        so_far[r.key].append(r)
        expected.append((r.key, r.at, totals(so_far[r.key])))
    assert [row[1:] for row in found] == expected
    check_counts(run, records)


@quick(25)
@given(records=streams(), cut=cuts, places=crashes, groups=groups, mode=modes)
def test_totals_of_each_batch_are_those_of_all_records_so_far(records, cut, places, groups, mode):
    sdf = frame().agg(emit="batch", **aggregations())
    found = watched(sdf)

    run = run_local(sdf, with_crashes(records, places), batches=cut, groups=groups, on_error=mode)

    expected, so_far = [], defaultdict(list)
    ticks, _ = ticks_of(run, records, 0)
    for batch, (_, part) in enumerate(ticks):
        for r in part:
            so_far[r.key].append(r)
        expected += [(batch, key, totals(so_far[key])) for key in {r.key for r in part}]
    same([(batch, key, value) for batch, key, _, value in found], expected)
    check_counts(run, records)


@quick(20)
@example(records=recs(("a", 1), ("a", 0)), cut=[])
@given(records=streams(), cut=cuts)
def test_totals_of_a_batch_have_the_same_time_whether_combined_or_not(records, cut):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().agg(emit="batch", n=Count())
        found[mode] = watched(sdf)
        run_local(sdf, [r.item for r in records], batches=cut, on_error=mode)

    same(found["stop"], found["dead-letter"])


@quick(20)
@example(records=recs(("a", 0), ("b", 0), ("a", 0)), cut=[], groups=3)
@given(records=streams(times=st.integers(0, 3)), cut=cuts, groups=groups)
def test_totals_after_a_stateful_step_are_the_same_whether_combined_or_not(records, cut, groups):
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame().apply(lambda value, state: value, stateful=True)
        sdf = sdf.group_by(lambda value: value["i"] % 2, name="parity")
        found[mode] = watched(sdf.agg(emit="batch", **aggregations()))
        items = [r.item for r in records]
        run_local(sdf, items, batches=cut, groups=groups, on_error=mode)

    values = {
        mode: [(batch, key, value) for batch, key, _, value in rows] for mode, rows in found.items()
    }
    same(values["stop"], values["dead-letter"])


CHOICES = {
    "n": Count(),
    "with_i": Count("i"),
    "sum_i": Sum("i"),
    "sum_f": Sum("f"),
    "mean_i": Mean("i"),
    "least": Min("f"),
    "most": Max("i"),
    "first": First("i"),
    "last": Last(),
    "early": Earliest("f"),
    "recent": Latest("i"),
    "all": Collect(),
    "all_i": Collect("i"),
    "kinds": CountDistinct("i"),
    "whole": CountDistinct(),
}


def same_either_way(build, word, chosen, items, **options):
    """Check that aggregates are the same, whether records are combined or taken one by one."""
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = build()
        if word == "agg":
            results, late = watched(sdf.agg(emit="batch", **chosen)), []
        else:
            window = windowed(sdf, word, 10, 4, 0).agg(**chosen)
            results, late = watched(window.final()), watched(window.late())
        run = run_local(sdf, items, on_error=mode, **options)
        assert all(report.reconciles for report in run.reports)
        found[mode] = (results, late)

    for one, other in zip(found["stop"], found["dead-letter"], strict=True):
        same(one, other)


@pytest.mark.parametrize("word", ["agg", "tumbling", "hopping"])
@quick(25)
@given(
    records=streams(),
    holes=st.sets(st.integers(0, 24)),
    names=st.lists(st.sampled_from(list(CHOICES)), min_size=1, max_size=4, unique=True),
    cut=cuts,
    groups=groups,
)
def test_every_choice_of_aggregations_is_the_same_whether_combined_or_not(
    word, records, holes, names, cut, groups
):
    chosen = {name: CHOICES[name] for name in names}
    nothing = {"i": None, "f": None} if any(a.column for a in chosen.values()) else None
    items = [(r.key, nothing if r.number in holes else r.value, r.at) for r in records]

    same_either_way(frame, word, chosen, items, batches=cut, groups=groups)


@pytest.mark.parametrize("word", ["agg", "tumbling", "hopping"])
@pytest.mark.parametrize("by", ["own key", "field", "function"])
@quick(15)
@given(
    records=streams(),
    odd=st.dictionaries(st.integers(0, 24), st.sampled_from(["number", "none"]), max_size=2),
    names=st.lists(st.sampled_from(list(CHOICES)), min_size=1, max_size=3, unique=True),
    cut=cuts,
    groups=groups,
)
def test_records_of_a_topic_taken_at_once_are_the_same_as_one_by_one(
    by, word, records, odd, names, cut, groups, tmp_path_factory
):
    chosen = {name: CHOICES[name] for name in names}
    who = {"number": 7, "none": None}
    items = [
        (r.key, {**r.value, "who": who[odd[r.number]] if r.number in odd else r.key or "-"}, r.at)
        for r in records
    ]

    def build():
        app = Application(state_dir=tmp_path_factory.getbasetemp())
        sdf = app.dataframe(app.topic("clicks"))
        if by == "own key":
            return sdf
        return sdf.group_by("who" if by == "field" else lambda value: value["who"], name="who")

    same_either_way(build, word, chosen, items, batches=cut, groups=groups)


@quick(20)
@example(records=recs(("a", 0), ("b", 0), ("a", 0)), cut=[], groups=3)
@given(records=streams(times=st.integers(0, 3)), cut=cuts, groups=groups)
def test_windows_after_a_stateful_step_are_the_same_whether_combined_or_not(records, cut, groups):
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


def test_a_reducer_that_works_in_place_is_the_same_whether_combined_or_not():
    def add(total, value):
        total["n"] += value["n"]
        return total

    def merge(one, other):
        return {"n": one["n"] + other["n"]}

    items = [("a", {"n": n}, at) for n, at in [(1, 1), (10, 6), (100, 7), (0, 50)]]
    found = {}
    for mode in ("stop", "dead-letter"):
        sdf = frame()
        total = Reduce(add, lambda value: value, merge)
        window = sdf.hopping_window(10, 5).agg(total=total, n=Sum("n"))
        found[mode] = watched(window.final())
        run_local(sdf, items, batches=[], on_error=mode)

    same(found["stop"], found["dead-letter"])
    assert all(value["total"] == {"n": value["n"]} for *_, value in found["stop"])


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
                mine[name] = (
                    (number, bytes([number]) * size),
                    math.inf if ttl is None else at + ttl,
                )
            elif verb == "delete":
                mine.pop(name, None)
        live = {name: value for name, (value, expires) in mine.items() if expires > at}
        return {
            "seen": {name: live.get(name, "missing") for name in NAMES},
            "exist": [name for name in NAMES if name in live],
            "names": sorted(map(repr, live)),
            "count": len(live),
        }


@quick(30)
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

    def read(data):
        return None if data is None else Codec().decode(data)

    return {
        (read(row.key), read(row.name)): read(row.value)
        for blobs in engine.stores.values()
        for row in group_rows(blobs, engine._groups)
    }


@quick(30)
@given(rows=expiring_streams(60), cut=cuts, places=crashes)
def test_an_expired_value_is_never_seen_and_a_live_one_is_missed_only_after_the_watermark(
    rows, cut, places
):
    sdf = frame().apply(perform, stateful=True, metadata=True)
    items = [(key, (n, steps), at) for n, (key, at, steps) in enumerate(rows)]
    for place in places:
        items.insert(min(place, len(items)), CRASH)

    run = run_local(sdf, items, batches=cut)

    # What was swept is known only if a record saw it, so the model forgets what it sees missing.
    kept = Kept(None)
    records = [Rec(n, key, at, 0, 0.0) for n, (key, at, _) in enumerate(rows)]
    marks = [tick.mark for tick in ticks_of(run, records, 0)[0] for _ in tick.records]
    for n, (key, at, steps) in enumerate(rows):
        expected, seen = kept.perform(n, key, at, steps)["seen"], run[n]["seen"]
        mine = kept.values[key]
        for name in NAMES:
            if seen[name] != expected[name]:
                assert seen[name] == "missing"
                assert marks[n] is not None
                assert mine[name][1] <= marks[n]
                del mine[name]
    check_counts(run, rows)


@pytest.mark.parametrize("ttl", [{"ttl": 5}, {"ttl": None}, {}])
def test_names_are_in_the_order_they_were_set_whether_or_not_an_old_value_was_swept(ttl):
    def touch(value, state):
        if state.timestamp < 50:
            state.set(value, 1, ttl=5 if value == "a" else None)
        else:
            state.set(value, 1, **ttl)
        return list(state.keys())

    items = [("k", "a", 0), ("k", "b", 1), ("other", "x", 50), ("k", "a", 50)]
    whole, parts = (
        run_local(frame().apply(touch, stateful=True), items, batches=size) for size in (None, 1)
    )

    assert list(whole) == list(parts) == [["a"], ["a", "b"], ["x"], ["b", "a"]]


@quick(20)
@given(records=streams(), cut=cuts, ttl=st.integers(1, 20), places=crashes)
def test_expiry_can_be_turned_on_for_a_store_that_has_data(records, cut, ttl, places):
    def touch(value, state):
        before = state.get("n")
        state.set("n", (before or 0) + 1)
        return before

    records = sorted(records, key=lambda r: r.at)
    half = len(records) // 2
    old = LocalEngine(frame().apply(touch, stateful=True))
    old.feed([r.item for r in records[:half]])
    old.run(cut)
    app = Application(loglevel=None)
    source = ListSource([], "list")
    new = LocalEngine(app.dataframe(source=source, state_ttl=ttl).apply(touch, stateful=True))
    new.stores = old.stores
    new.feed([*with_crashes(records[half:], places), END, ("far", {}, 10**6), ("far", {}, 10**6)])

    run = finished(new, cut)

    model = {}
    for r in records[:half]:
        model[r.key] = (model.get(r.key, (0,))[0] + 1, math.inf)
    expected = []
    for r in records[half:]:
        n, expires = model.get(r.key, (None, math.inf))
        before = n if expires > r.at else None
        expected.append(before)
        model[r.key] = ((before or 0) + 1, r.at + ttl)
    assert list(run) == expected
    new.run(1)
    for_ever = {(key, "n"): n for key, (n, expires) in model.items() if expires == math.inf}
    assert contents_of(new) == {**for_ever, ("far", "n"): 2}


@pytest.mark.parametrize("how", ["stateful_map", "agg", "agg of a batch"])
@quick(25)
@given(data=st.data(), ttl=st.integers(1, 30), cut=cuts, groups=groups, mode=modes)
def test_totals_with_a_time_to_live_begin_again_when_they_have_expired(
    how, data, ttl, cut, groups, mode
):
    lateness = data.draw(st.sampled_from([0, 10]))
    records = disordered(data.draw, data.draw(streams()), lateness)
    app = Application(loglevel=None)
    sdf = app.dataframe(source=ListSource([], "in"), state_ttl=ttl).watermark(lateness)
    if how == "stateful_map":
        sdf = sdf.stateful_map("t", lambda key, value, n: ({"n": n + 1}, n + 1), initial=0)
    else:
        sdf = sdf.agg(emit="record" if how == "agg" else "batch", n=Count())
    found = watched(sdf)
    options = {"batches": cut, "groups": groups, "on_error": mode}

    run = run_local(sdf, [r.item for r in records], **options)

    model, counts = {}, []
    for r in records:
        n, expires = model.get(r.key, (0, math.inf))
        is_alive = r.key in model and expires > r.at
        # The total of agg lives as long as its latest record says; a late one takes nothing away.
        longest = expires if is_alive and how != "stateful_map" else r.at + ttl
        model[r.key] = ((n if is_alive else 0) + 1, max(longest, r.at + ttl))
        counts.append(model[r.key][0])
    expected = [(r.key, {"n": n}) for r, n in zip(records, counts, strict=True)]
    if how == "agg of a batch":
        numbered = zip(batches_of(run), expected, strict=True)
        last = {(batch, key): (batch, key, value) for batch, (key, value) in numbered}
        same([(batch, key, value) for batch, key, _, value in found], last.values())
    else:
        assert [(key, value) for _, key, _, value in found] == expected
    check_counts(run, records)


@pytest.mark.parametrize("mode", ["stop", "dead-letter"])
@pytest.mark.parametrize("cut", [[], 1])
def test_the_total_of_a_key_is_given_though_another_key_is_further_in_time(cut, mode):
    app = Application(loglevel=None)
    sdf = app.dataframe(source=ListSource([], "in"), state_ttl=50).agg(emit="batch", n=Count())
    items = [("a", {}, 0), ("a", {}, 100), ("b", {}, 500)]

    run = run_local(sdf, items, batches=cut, groups=1, on_error=mode)

    assert list(run)[-2:] == [{"n": 1}, {"n": 1}]


def batches_of(run):
    """The batch of each record."""
    return [batch for batch, report in enumerate(run.reports) for _ in range(report.read)]


# --- timers ---------------------------------------------------------------------------------

# Names make the times of timers different, so that no two of a key fall together.
TIMERS = {"a": 0, "b": 1, "stop": 2}

timer_operations = st.lists(
    st.tuples(
        st.sampled_from(["at", "at", "after", "cancel"]),
        st.sampled_from(list(TIMERS)),
        st.integers(0, 20),
    ),
    max_size=3,
)


def noted(state, fact):
    state.set("n", state.get("n", 0) + 1)
    return [state.get("n"), *fact]


def on_timer(key, state, timer):
    assert state.timestamp == timer.at
    if timer.name == "again" and state.get("left", 0):
        state.set("left", state.get("left") - 1)
        state.set_timer("again", after=3)
    if timer.name == "stop":
        state.cancel_timer("a")
        for other in state.timers():
            if other.name == "b":
                state.set_timer("b", at=other.at + 8)
    return noted(state, [key, timer.name, timer.at])


def set_timers(value, key, timestamp, headers, state):
    for verb, name, number in value:
        if verb == "at":
            state.set_timer(name, at=number * 4 + TIMERS[name])
        elif verb == "after":
            state.set_timer(name, after=number * 4 + TIMERS[name])
        elif verb == "again":
            state.set("left", number)
            state.set_timer("again", after=2)
        else:
            state.cancel_timer(name)
    waiting = [[timer.name, timer.at] for timer in state.timers()]
    return noted(state, [key, timestamp, waiting])


class Timers:
    """What a stream in order of time should give: a key's timers fire before its next record."""

    def __init__(self):
        self.waiting = defaultdict(dict)
        self.count, self.left, self.given = Counter(), Counter(), []

    def note(self, key, *facts):
        self.count[key] += 1
        self.given.append([self.count[key], key, *facts])

    def fire(self, key, up_to):
        mine = self.waiting[key]
        while due := sorted((at, name) for name, at in mine.items() if at <= up_to):
            at, name = due[0]
            del mine[name]
            if name == "again" and self.left[key]:
                self.left[key] -= 1
                mine["again"] = at + 3
            if name == "stop":
                mine.pop("a", None)
                mine.update({"b": mine["b"] + 8} if "b" in mine else {})
            self.note(key, name, at)

    def take(self, key, at, steps):
        self.fire(key, at)
        mine = self.waiting[key]
        for verb, name, number in steps:
            if verb == "cancel":
                mine.pop(name, None)
            elif verb == "again":
                self.left[key], mine["again"] = number, at + 2
            else:
                mine[name] = number * 4 + TIMERS[name] + (at if verb == "after" else 0)
        waiting = sorted(([name, due] for name, due in mine.items()), key=lambda t: t[1])
        self.note(key, at, waiting)


def with_timers(rows):
    timers = Timers()
    for key, at, steps in rows:
        timers.take(key, at, steps)
    for key in list(timers.waiting):
        timers.fire(key, max(at for _, at, _ in rows))
    return timers.given


def timer_rows(steps=timer_operations, **sizes):
    rows = st.lists(
        st.tuples(st.sampled_from(KEYS), st.integers(0, 20).map(lambda at: 4 * at), steps),
        **{"max_size": 20, **sizes},
    )
    return rows.map(lambda found: sorted(found, key=lambda row: row[1]))


@quick(50)
@given(rows=timer_rows(), cut=cuts, places=crashes, groups=groups, mode=modes)
def test_timers_fire_once_at_their_time_and_in_order_whatever_the_cut(
    rows, cut, places, groups, mode
):
    sdf = frame().apply(set_timers, stateful=True, metadata=True, on_timer=on_timer)
    items = [(key, steps, at) for key, at, steps in rows]
    for place in places:
        items.insert(min(place, len(items)), CRASH)

    run = run_local(sdf, items, batches=cut, groups=groups, on_error=mode)

    same(run, with_timers(rows))
    check_counts(run, rows)


past_operations = st.lists(
    st.tuples(st.sampled_from(["keep", "timer"]), st.sampled_from("xyz"), st.integers(0, 40)),
    min_size=1,
    max_size=3,
)


def look_back(key, state, timer):
    names = sorted(state.keys())
    state.set(timer.name, timer.at, ttl=5)
    return [key, timer.name, timer.at, names]


def set_back(value, key, timestamp, headers, state):
    for verb, name, number in value:
        if verb == "keep":
            state.set(name, number, ttl=number + 1)
        else:
            state.set_timer(name, at=timestamp - number)
    return [key, timestamp, sorted(state.keys())]


@quick(100)
@example(
    rows=[("a", 8, [("keep", "x", 10)]), ("b", 40, []), ("a", 44, [("timer", "y", 40)])],
    cut=[1, 1, 1], groups=1, mode="stop",
)  # fmt: skip
@given(rows=timer_rows(past_operations), cut=cuts, groups=groups, mode=modes)
def test_a_timer_set_in_the_past_sees_the_same_state_whatever_the_cut(rows, cut, groups, mode):
    sdf = frame().apply(set_back, stateful=True, metadata=True, on_timer=look_back)
    items = [(key, steps, at) for key, at, steps in rows]

    whole = run_local(sdf, items, groups=groups)

    same(run_local(sdf, items, batches=cut, groups=groups, on_error=mode), list(whole))


again = st.lists(st.tuples(st.just("again"), st.just(""), st.integers(0, 4)), max_size=1)


@quick(40)
@example(rows=[("a", 0, [("again", "", 1)]), ("a", 8, [])], cut=[], places=[], groups=1)
@given(rows=timer_rows(again), cut=cuts, places=crashes, groups=groups)
def test_a_timer_that_a_timer_set_fires_in_its_turn_whatever_the_cut(rows, cut, places, groups):
    sdf = frame().apply(set_timers, stateful=True, metadata=True, on_timer=on_timer)
    items = [(key, steps, at) for key, at, steps in rows]
    for place in places:
        items.insert(min(place, len(items)), CRASH)

    run = run_local(sdf, items, batches=cut, groups=groups)

    same(run, with_timers(rows))


def test_a_timer_that_a_timer_set_goes_before_a_later_one():
    def on_time(key, state, timer):
        if timer.name == "first":
            state.set_timer("second", at=20)
        return timer.name

    def start(value, state):
        if value == "start":
            state.set_timer("first", at=10)
            state.set_timer("third", at=30)
        return value

    sdf = frame().apply(start, stateful=True, on_timer=on_time)

    run = run_local(sdf, [("k", "start", 0), ("other", "x", 100)])

    assert list(run) == ["start", "x", "first", "second", "third"]


@quick(30)
@given(data=st.data(), cut=cuts, places=crashes, groups=groups)
def test_with_any_disorder_a_timer_fires_once_and_neither_too_early_nor_too_late(
    data, cut, places, groups
):
    scale = data.draw(scales)
    lateness = data.draw(st.sampled_from([0, 5, 30])) * scale
    records = data.draw(streams(scale=scale))
    waits = data.draw(st.lists(st.integers(0, 40), min_size=len(records), max_size=len(records)))

    def start(value, key, timestamp, headers, state):
        state.set_timer(str(value["id"]), after=waits[value["id"]] * scale)

    def fired(key, state, timer):
        return {"timer": int(timer.name)}

    sdf = frame().watermark(lateness)
    sdf = sdf.update(start, stateful=True, metadata=True, on_timer=fired)
    sdf = sdf.filter(lambda value: "timer" in value)
    found = watched(sdf)

    run = run_local(sdf, with_crashes(records, places), batches=cut, groups=groups)

    ticks, last = ticks_of(run, records, lateness)
    due = {r.number: r.at + waits[r.number] * scale for r in records}
    expected = [
        (r.key, due[r.number], {"timer": r.number})
        for r in records
        if last is not None and due[r.number] <= last
    ]
    same([row[1:] for row in found], expected)
    batch_of_record = batches_of(run)
    for batch, key, at, value in found:
        born = batch_of_record[value["timer"]]
        at_the_latest = batch_of(ticks[born:], last, lambda mark, at=at: at <= mark) + born
        own = [
            n
            for n in range(born, batch + 1)
            for r in ticks[n].records
            if r.key == key and r.number > value["timer"] and r.at - lateness >= at
        ]
        assert batch == min([at_the_latest, *own])
    check_counts(run, records)


@quick(30)
@given(
    waits=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 50)), min_size=1, max_size=8),
    moves=st.lists(st.integers(0, 20), max_size=8),
    with_records=st.booleans(),
)
def test_timers_of_the_wall_clock_fire_when_it_has_passed_them_and_not_before(
    waits, moves, with_records
):
    def start(value, key, timestamp, headers, state):
        if value is not None:
            state.set_timer(str(value[0]), after=value[1], clock="processing")

    def fired(key, state, timer):
        return [int(timer.name), timer.at, timer.clock]

    clock = ManualClock(1_000)
    sdf = frame().update(start, stateful=True, metadata=True, on_timer=fired)
    sdf = sdf.filter(lambda value: value is not None and len(value) == 3)
    engine = LocalEngine(sdf, clock=clock)
    engine.feed([(key, (n, wait), 7) for n, (key, wait) in enumerate(waits)])
    engine.run()
    due = [1_000 + wait for _, wait in waits]
    for move in moves:
        clock.advance(move)
        if with_records:
            engine.feed([("a", None, 10**9)])  # the time of the records does not matter
        run = engine.run()

        expected = [[n, at, "processing"] for n, at in enumerate(due) if at <= clock()]
        same(run, expected)
    assert [timer[1] for timer in engine.values] == sorted(timer[1] for timer in engine.values)
    assert all(report.reconciles for report in engine.reports)


def test_a_timer_that_was_moved_fires_at_the_new_time_only():
    def start(value, state):
        if value:
            state.set_timer("t", after=value, clock="processing")

    clock = ManualClock(0)
    sdf = frame().update(start, stateful=True, on_timer=lambda key, state, timer: timer.at)
    engine = LocalEngine(sdf.filter(lambda value: value > 50), clock=clock)
    engine.feed([("k", 10)])
    engine.run()
    clock.advance(5)
    engine.feed([("k", 50)])
    engine.run()
    clock.advance(49)
    assert list(engine.run()) == []
    clock.advance(1)

    assert list(engine.run()) == [55]
    clock.advance(1000)
    assert list(engine.run()) == [55]


@pytest.mark.parametrize("by", ["record", "watermark"])
def test_a_timer_that_sets_itself_again_for_ever_is_an_error(by):
    calls = []

    def fired(key, state, timer):
        calls.append(timer)
        if len(calls) > 250_000:
            pytest.fail("it would not have ended")
        state.set_timer("t", after=0)

    def start(value, state):
        state.set_timer("t", after=5)

    sdf = frame().update(start, stateful=True, on_timer=fired)

    with pytest.raises(StepError, match="must choose a later moment"):
        run_local(sdf, [("k", 1, 0), ("k" if by == "record" else "other", 1, 100)])


@pytest.mark.parametrize("cut", [[], 1, 2])
def test_a_timer_that_fails_takes_no_record_of_its_key_along(cut):
    def fired(key, state, timer):
        raise ValueError("on time")

    def start(value, state):
        if value == "start":
            state.set_timer("t", at=10)
        return value

    sdf = frame().apply(start, stateful=True, on_timer=fired)
    items = [("k", "start", 0), ("k", "one", 20), ("k", "two", 30), ("other", "x", 40)]

    run = run_local(sdf, items, batches=cut, on_error="dead-letter")

    assert sorted(run) == ["one", "start", "two", "x"]
    assert len(run.dead_letters) == 1
    assert all(report.reconciles for report in run.reports)


# --- quiet streams --------------------------------------------------------------------------


@quick(20)
@given(
    records=streams(),
    lateness=st.sampled_from([0, 10]),
    idle=st.integers(20, 200),
    size=st.integers(1, 20),
    cut=cuts,
)
def test_the_last_windows_of_a_quiet_stream_close_when_it_has_been_idle(
    records, lateness, idle, size, cut
):
    clock = ManualClock(60)  # no record is ahead of it
    sdf = frame().watermark(lateness, idle_after=idle)
    found = watched(sdf.tumbling_window(size).agg(**aggregations()).final())
    engine = LocalEngine(sdf, clock=clock)
    engine.feed([*(r.item for r in records), END])
    run = engine.run(cut)
    expected = fixed_windows(size, size, 0, *ticks_of(run, records, lateness))
    same(found, expected.finals)

    clock.advance(idle - 1)
    engine.run()

    same(found, expected.finals)

    clock.advance(1)
    engine.run()

    ticks, _ = ticks_of(run, records, lateness)
    whole = fixed_windows(size, size, 0, ticks, 60 + idle - lateness)
    in_time = {
        (key, start): result
        for _, key, start, result in whole.finals
        if start + size <= 60 + idle - lateness
    }
    assert {(key, start): result for _, key, start, result in found} == in_time
    assert len(found) == len(in_time)
    assert all(report.reconciles for report in engine.reports)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_quiet_stream_does_not_hold_back_the_one_it_is_joined_with(has_begun):
    clock = ManualClock(1_000)
    app = Application(loglevel=None)
    one = app.dataframe(source=ListSource([], "one")).watermark(idle_after=100)
    two = app.dataframe(source=ListSource([], "two")).watermark(idle_after=100)
    sdf = one.concat(two).tumbling_window(10).agg(n=Count()).final()
    engine = LocalEngine(sdf, clock=clock)
    engine.feed([("k", 1, 1_000)], "one")
    if has_begun:
        engine.feed([("k", 1, 1_000)], "two")
    engine.run()
    clock.advance(99)
    engine.feed([("k", 1, 1_050)], "one")
    assert list(engine.run()) == []  # the other may still send something for the first window

    clock.advance(1)
    engine.feed([("k", 1, 1_060)], "one")
    engine.run()

    n = 1 + has_begun
    assert engine.values[:1] == [{"start": 1000, "end": 1010, "n": n}]


def test_a_stream_without_idle_after_waits_for_its_next_record():
    clock = ManualClock(1_000)
    engine = LocalEngine(frame().tumbling_window(10).agg(n=Count()).final(), clock=clock)
    engine.feed([("k", 1, 1_000)])
    engine.run()
    clock.advance(10**9)

    assert list(engine.run()) == []


# --- records from the future ----------------------------------------------------------------

IN_2099 = 4_070_908_800_000


@pytest.mark.parametrize("how", ["topic", "watermark", "on", "extractor", "set_timestamp"])
@quick(15)
@given(data=st.data(), places=st.lists(st.integers(0, 24), min_size=1, max_size=3), mode=modes)
def test_a_record_from_the_future_goes_to_the_dead_letters_and_moves_no_clock(
    how, data, places, mode, tmp_path_factory
):
    records, cut = data.draw(streams()), data.draw(cuts)
    app = Application(topics_dir=tmp_path_factory.getbasetemp() / "t", loglevel=None)
    find = lambda value, *rest: value["at"]  # noqa: E731
    if how in ("topic", "extractor", "set_timestamp"):
        extract = find if how == "extractor" else None
        sdf = app.dataframe(app.topic("in", timestamp_extractor=extract))
        sdf = sdf.set_timestamp(find) if how == "set_timestamp" else sdf
    else:
        sdf = app.dataframe(source=ListSource([], "in"))
        sdf = sdf.watermark(max_future=1000, on="at" if how == "on" else None)
    found = watched(sdf.tumbling_window(5).agg(n=Count(), all=Collect("id")).final())
    is_stamped = how in ("topic", "watermark")
    items = [
        (
            None if r.key is None else r.key.encode(),
            {**r.value, "at": r.at},
            r.at if is_stamped else 1,
        )
        for r in records
    ]
    absurd = (b"a", {"id": -1, "at": IN_2099}, IN_2099 if is_stamped else 1)
    with_future = list(items)
    for place in places:
        with_future.insert(min(place, len(items)), absurd)
    is_absurd = [item is absurd for item in with_future]

    run = run_local(sdf, with_future, batches=cut, clock=ManualClock(60), on_error=mode)

    assert len(run.dead_letters) == len(places)
    offsets = [int(dict(letter.headers)["millpond.offset"]) for letter in run.dead_letters]
    assert offsets == [n for n, absurd_ in enumerate(is_absurd) if absurd_]
    ticks, place, rest, largest = [], 0, iter(records), None
    for report in run.reports:
        part = [next(rest) for a in is_absurd[place : place + report.read] if not a]
        ticks.append(Tick(largest, part))
        largest = max([r.at for r in part] + ([] if largest is None else [largest]), default=None)
        place += report.read
    expected = fixed_windows(5, 5, 0, ticks, largest)
    plain = [(b, key and key.decode(), at, value["all"]) for b, key, at, value in found]
    same(plain, [(b, key, at, value["all"]) for b, key, at, value in expected.finals])
    check_counts(run, with_future)
    assert sum(report.dead for report in run.reports) == len(places)


@pytest.mark.parametrize("how", ["topic", "extractor", "set_timestamp"])
def test_a_record_from_the_future_makes_nothing_expire_where_it_is_not_put_aside(how, tmp_path):
    def touch(value, state):
        if value["do"] == "set":
            state.set("v", 1, ttl=50)
        return state.get("v")

    find = lambda value, *rest: value["at"]  # noqa: E731
    app = Application(topics_dir=tmp_path, loglevel=None)
    extract = find if how == "extractor" else None
    sdf = app.dataframe(app.topic("in", timestamp_extractor=extract))
    sdf = sdf.set_timestamp(find) if how == "set_timestamp" else sdf
    facts = [(b"k", "set", 0), (b"other", "look", IN_2099), (b"k", "look", 10), (b"k", "look", 50)]
    items = [(key, {"do": do, "at": at}, at if how == "topic" else 1) for key, do, at in facts]

    run = run_local(sdf.apply(touch, stateful=True), items, batches=1, clock=ManualClock(60))

    assert list(run) == [1, None, 1, None]


def test_a_record_from_the_future_leaves_nothing_but_a_dead_letter():
    def count(value, state):
        state.set("n", state.get("n", 0) + 1)
        return state.get("n")

    sdf = frame().apply(count, stateful=True)
    sdf.print()
    window = sdf.watermark(max_future=1000).tumbling_window(10).agg(n=Count()).final()

    run = run_local(
        window, [("k", 1, 0), ("k", 1, IN_2099), ("k", 1, 5)], clock=ManualClock(60),
        on_error="dead-letter",
    )  # fmt: skip

    assert len(run.dead_letters) == 1
    assert run.printed == [1, 2]
    assert run.state("k") == {"n": 2}


@pytest.mark.parametrize("mode", ["stop", "dead-letter"])
@pytest.mark.parametrize("cut", [1, None])
def test_what_a_timer_gives_from_the_future_takes_no_record_along(mode, cut):
    def watch(value, state):
        state.set_timer("soon", after=100)
        return value

    sdf = frame().apply(watch, stateful=True, on_timer=lambda key, state, timer: "rang")
    sdf = sdf.set_timestamp(lambda value, key, at, headers: IN_2099 if value == "rang" else at)
    sdf = sdf.watermark(max_future=1000).tumbling_window(1000).agg(n=Count()).final()
    records = [("k", "record", at) for at in (0, 1000, 2000, 3000)]

    run = run_local(sdf, records, batches=cut, on_error=mode, clock=ManualClock(5000))

    assert [(result["start"], result["n"]) for result in run] == [(0, 1), (1000, 1), (2000, 1)]
    assert [letter.value for letter in run.dead_letters] == [None] * 3
    offsets = [dict(letter.headers)["millpond.offset"] for letter in run.dead_letters]
    assert offsets == [b"100", b"1100", b"2100"]
    assert all(report.reconciles for report in run.reports)


# --- duplicates and tables ------------------------------------------------------------------


@pytest.mark.parametrize("per_key", [False, True])
@quick(25)
@given(data=st.data(), within=st.sampled_from([None, 1, 10, 30]), cut=cuts, places=crashes)
def test_of_records_that_are_the_same_the_first_goes_on(per_key, data, within, cut, places):
    lateness = data.draw(st.sampled_from([0, 5, 30]))
    records = disordered(data.draw, data.draw(streams()), lateness)
    on = data.draw(st.sampled_from(["i", ["i", "f"], lambda value: value["i"] % 3]))
    sdf = frame().watermark(lateness).drop_duplicates(on, within=within, per_key=per_key)
    found = watched(sdf)

    run = run_local(sdf, with_crashes(records, places), batches=cut)

    expected, seen = [], {}
    for r in records:
        marks = {"i": r.i} if on == "i" else (r.i, r.f) if type(on) is list else r.i % 3
        place = (r.key if per_key else "", repr(marks))
        if seen.get(place, -math.inf) <= r.at:
            seen[place] = math.inf if within is None else r.at + within
            expected.append((r.key, r.at, r.value))
    assert [row[1:] for row in found] == expected
    check_counts(run, records)


@quick(25)
@given(records=streams(), cut=cuts, places=crashes, groups=groups, emit=st.booleans())
def test_a_table_of_counts_is_the_same_for_every_cut(records, cut, places, groups, emit):
    def add(batch, state):
        whole = Counter()
        for table in (batch, state):
            for row in table.to_pylist():
                whole[row["_key"]] += row.get("n", 1)
        return pa.table({"_key": list(whole), "n": list(whole.values())})

    sdf = frame().update_state(add, emit="changes" if emit else "all")
    found = watched(sdf)
    records = [r._replace(key=r.key or "") for r in records]

    run = run_local(sdf, with_crashes(records, places), batches=cut, groups=groups)

    assert {key: value["n"] for _, key, _, value in found} == Counter(r.key for r in records)
    counts = Counter()
    for blobs in run.engine.stores.values():
        table = pa.ipc.open_stream(Pages(blobs, Codec(), groups).table("table")).read_all()
        counts.update({row["_key"]: row["n"] for row in table.to_pylist()})
    assert counts == Counter(r.key for r in records)
    if emit:
        changed = [(batch, key) for batch, key, _, _ in found]
        touched = zip(batches_of(run), (r.key for r in records), strict=True)
        same(changed, set(touched))
    check_counts(run, records)


# --- one runner for many groups, as on Spark ------------------------------------------------


class OneRunner(LocalEngine):
    """An engine that uses a stage's runner for all groups and batches, as a task of Spark does."""

    def _layer(self, layer, rows):
        self.runners = getattr(self, "runners", {})
        stages = {stage.scope: stage for stage in self.plan.stages if stage.layer == layer}
        members = defaultdict(list)
        for row in rows:
            if row.scope in stages and family_of(row.kind)[0] == EDGE:
                members[row.scope, row.grp].append(row)
            else:
                yield row
        for (scope, group), found in sorted(members.items()):
            if scope not in self.runners:
                self.runners[scope] = StageRunner(self.plan, stages[scope], self._settings)
            yield from run_group(self.runners[scope], found, self.stores[scope, group], group)


def all_rows(batch, state):
    columns = ["_key", "id", "i"]
    tables = [state.select(columns), batch.select(columns)]
    return pa.concat_tables(tables, promote_options="permissive")


TABLE = pa.schema([("_key", pa.string()), ("id", pa.int64()), ("i", pa.int64())])

PROGRAMS = {
    "agg": lambda sdf: sdf.agg(emit="batch", **aggregations()),
    "tumbling": lambda sdf: sdf.tumbling_window(10).agg(**aggregations()).final(),
    "current": lambda sdf: sdf.hopping_window(10, 4, 3).agg(**aggregations()).current(),
    "session": lambda sdf: sdf.session_window(5).agg(**aggregations()).final(),
    "sliding": lambda sdf: sdf.sliding_window(5).agg(**aggregations()).final(),
    "table": lambda sdf: sdf.update_state(all_rows, schema=TABLE),
    "timers": lambda sdf: sdf.apply(
        lambda value, key, timestamp, headers, state: (
            state.set_timer("t", after=value["i"] + 5),
            noted(state, [key, timestamp]),
        )[1],
        stateful=True,
        metadata=True,
        on_timer=on_timer,
    ),
    "duplicates": lambda sdf: sdf.drop_duplicates("i", within=5, per_key=True),
}


@pytest.mark.parametrize("program", PROGRAMS)
@quick(10)
@example(records=recs(("a", 50), ("b", 0), ("c", 20)), cut=1, mode="stop")
@given(records=streams(), cut=cuts, mode=modes)
def test_one_runner_for_all_groups_and_batches_gives_what_fresh_ones_give(
    program, records, cut, mode
):
    found = {}
    for engine_class in (LocalEngine, OneRunner):
        sdf = frame()
        found[engine_class] = watched(PROGRAMS[program](sdf))
        engine = engine_class(sdf, on_error=mode)
        engine.feed([r.item for r in records])
        engine.run(cut)

    assert found[OneRunner] == found[LocalEngine]


# --- what is kept over a restart ------------------------------------------------------------


class Restarted(LocalEngine):
    """An engine whose clock is created again after each batch, from what is written down of it."""

    forgets = ()
    """Batches after which nothing but the offsets was written down."""

    def _process(self, batch, *, crash):
        super()._process(batch, crash=crash)
        known = None if self._batch_id in self.forgets else self._keeper.to_json()
        self._last = json.loads(json.dumps(self._last))
        self._keeper = Timekeeper(self._keeper.work)
        self._keeper.load(json.loads(json.dumps(known)), self._last["seq"])


@pytest.mark.parametrize("forgets", [(), (2, 4, 7)])
@quick(20)
@given(stream=bounded(), kind=st.sampled_from(KINDS), size=sizes, cut=cuts)
def test_a_restart_after_every_batch_changes_no_result(forgets, stream, kind, size, cut):
    lateness, records = stream
    items = [*(r.item for r in records), END]
    for n in range(1, 6):
        items += [("far", {"id": 99}, 10**6 * n), END]
    found = []
    for engine_class in (LocalEngine, Restarted):
        sdf = frame().watermark(lateness)
        window = windowed(sdf, kind, size, max(1, size // 2), 0).agg(n=Count(), all=Collect("id"))
        finals, late = watched(window.final()), watched(window.late())
        engine = engine_class(sdf)
        engine.forgets = forgets
        engine.feed(items)
        for _ in range(7):
            engine.run(cut)
        assert late == []
        found.append([(key, at, value) for _, key, at, value in finals if key != "far"])

    same(found[1], found[0])


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@quick(10)
@example(records=recs(("a", 0), ("a", 0, 3)), cut=1)
@given(records=streams(), cut=cuts)
def test_a_record_that_fails_after_a_branch_leaves_nothing_in_the_other(program, records, cut):
    def fail(value, state):
        if value["i"] == 3:
            raise ValueError("three")
        return value

    good = [r for r in records if r.i != 3]
    sdf = frame().watermark(100)
    found = watched(PROGRAMS[program](sdf))
    sdf.apply(fail, stateful=True)
    clean = frame().watermark(100)
    expected = watched(PROGRAMS[program](clean))
    sizes = [len([r for r in part if r.i != 3]) for part in parts_of(records, cut)]

    run = run_local(sdf, [r.item for r in records], batches=cut, on_error="dead-letter")
    run_local(clean, [r.item for r in good], batches=sizes, on_error="dead-letter")

    same([row[1:] for row in found], [row[1:] for row in expected])
    assert len(run.dead_letters) == len(records) - len(good)
    assert all(report.reconciles for report in run.reports)


def parts_of(records, cut):
    sizes = [cut] * len(records) if isinstance(cut, int) else cut
    place = 0
    for size in sizes:
        yield records[place : place + size]
        place += size
