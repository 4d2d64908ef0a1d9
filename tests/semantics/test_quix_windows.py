"""Windows give what Quix Streams gives for the same records.

The facts (records, results, what is late and by how much) are those of the tests and the
documentation of Quix Streams 3.28.1; each table names where they are from. Its default is the
closing strategy "key", so that is used here unless a test says otherwise. What differs on purpose
belongs in docs/quix-differences.md and is here only where a table says so.
"""

import logging
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple

import pytest

from millpond import (
    Collect,
    Count,
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
from millpond.arguments.windows import Session
from millpond.errors import ConfigError
from millpond.testing import LocalEngine, frame, run_local

CUTS = (None, 1, 2, 3)
"""How the input is cut into batches: all at once, or so many records each."""


# --- how a table is read --------------------------------------------------------------------


class At(NamedTuple):
    """A record, and what it makes a window give at once.

    A result is (start, end, value), or with a value for each of the case's `fields`.
    """

    timestamp: int
    value: Any
    current: Any = ()
    """What `current()` gives."""
    final: Any = ()
    """What `final()` gives."""
    key: str = "k"

    @property
    def record(self):
        return self.key, self.value, self.timestamp


class Case(NamedTuple):
    window: Any
    """Takes a frame and returns a window with its aggregates."""
    steps: tuple[At, ...]
    fields: tuple[str, ...]
    modes: tuple[str, ...]


def case(window, *steps, fields=("value",), modes=("current", "final")):
    return Case(window, steps, fields, modes)


def cases(mode, *tables):
    """Return the cases of some tables that say what a mode gives."""
    return [
        pytest.param(facts, id=name)
        for table in tables
        for name, facts in table.items()
        if mode in facts.modes
    ]


def with_metadata(result, key, timestamp, headers):
    return result, key, timestamp, headers


def one_by_one(program, records):
    """Return what each record gives when it is the only one of its batch and none has followed."""
    engine = LocalEngine(program)
    given = []
    for record in records:
        before = len(engine.values)
        engine.feed([record])
        engine.run()
        given.append(engine.values[before:])
    return given


def check(facts, mode):
    """Compare with a table: each record by itself, then all of them, however they are cut."""
    window = getattr(facts.window(frame()), mode)("key")
    is_session = isinstance(window._head.kind, Session)
    program = window.apply(with_metadata, metadata=True)
    records = [step.record for step in facts.steps]
    expected = []
    for step in facts.steps:
        results = [
            {"start": start, "end": end, **dict(zip(facts.fields, values, strict=True))}
            for start, end, *values in getattr(step, mode)
        ]
        # A result has the key of its record, the start of its window as timestamp, no headers.
        # That of a session is its last record: what follows tells the time by it.
        moment = (lambda r: r["end"] - 1) if is_session else (lambda r: r["start"])
        expected.append([(result, step.key, moment(result), None) for result in results])

    assert one_by_one(program, records) == expected
    for cut in CUTS:
        given = run_local(program, records, batches=cut)
        assert given == list(chain(*expected)), f"cut: {cut}"


def listed(so_far, value):
    return [*so_far, value]


def alone(value):
    return [value]


def single(definition, word):
    """Return `definition.sum()` and the like."""
    return definition.reduce(listed, alone) if word == "reduce" else getattr(definition, word)()


NUMBERS = {"count": Count(), "sum": Sum(), "mean": Mean(), "max": Max(), "min": Min()}
EVERYTHING = {**NUMBERS, "collect": Collect()}


# --- tumbling: test_windows/test_tumbling.py, test_dataframe.py -----------------------------

TUMBLING = {
    "current-gives-each-update": case(
        lambda sdf: sdf.tumbling_window(timedelta(seconds=10), timedelta(seconds=1)).sum(),
        At(1_000, 1, [(0, 10_000, 1)]),
        At(9_000, 2, [(0, 10_000, 3)]),
        At(20_010, 3, [(20_000, 30_000, 3)], [(0, 10_000, 3)]),
    ),
    "final-gives-each-window-once": case(
        lambda sdf: sdf.tumbling_window(10).sum(),
        At(1, 1, [(0, 10, 1)]),
        At(2, 1, [(0, 10, 2)]),
        At(20, 2, [(20, 30, 2)], [(0, 10, 2)]),
        At(39, 3, [(30, 40, 3)], [(20, 30, 2)]),
        At(38, 4, [(30, 40, 7)]),
    ),
    "the-end-is-exclusive": case(
        lambda sdf: sdf.tumbling_window(10).sum(),
        At(100, 1, [(100, 110, 1)]),
        At(109, 1, [(100, 110, 2)]),
        At(110, 2, [(110, 120, 2)], [(100, 110, 2)]),
    ),
    "a-late-record-gives-nothing": case(
        lambda sdf: sdf.tumbling_window(10).sum(),
        At(1, 1, [(0, 10, 1)]),
        At(20, 2, [(20, 30, 2)], [(0, 10, 1)]),
        At(19, 3),
        At(30, 4, [(30, 40, 4)], [(20, 30, 2)]),
    ),
    "a-window-is-open-until-its-grace-has-passed": case(
        lambda sdf: sdf.tumbling_window(10, grace_ms=2).sum(),
        At(100, 1, [(100, 110, 1)]),
        At(111, 2, [(110, 120, 2)]),
        At(109, 4, [(100, 110, 5)]),
        At(112, 8, [(110, 120, 10)], [(100, 110, 5)]),
        At(109, 16),
        At(121, 32, [(120, 130, 32)]),
        At(122, 64, [(120, 130, 96)], [(110, 120, 10)]),
    ),
    "a-record-may-close-several-windows-in-order-of-start": case(
        lambda sdf: sdf.tumbling_window(10, grace_ms=30).sum(),
        At(120, 1, [(120, 130, 1)]),
        At(100, 2, [(100, 110, 2)]),
        At(110, 4, [(110, 120, 4)]),
        At(200, 8, [(200, 210, 8)], [(100, 110, 2), (110, 120, 4), (120, 130, 1)]),
    ),
    "a-record-closes-windows-of-its-own-key-only": case(
        lambda sdf: sdf.tumbling_window(10).sum(),
        At(100, 1, [(100, 110, 1)], key="key1"),
        At(102, 1, [(100, 110, 1)], key="key2"),
        At(105, 1, [(100, 110, 2)], key="key2"),
        At(106, 1, [(100, 110, 2)], key="key1"),
        At(107, 1, [(100, 110, 3)], key="key1"),
        At(108, 1, [(100, 110, 3)], key="key2"),
        At(115, 1, [(110, 120, 1)], key="key3"),
        At(116, 1, [(110, 120, 1)], [(100, 110, 3)], key="key1"),
    ),
    "a-key-is-not-late-because-of-another": case(  # docs/windowing.md, "Closing strategies"
        lambda sdf: sdf.tumbling_window(timedelta(seconds=10)).agg(value=Sum()),
        At(100, 1, [(0, 10_000, 1)], key="A"),
        At(101, 2, [(0, 10_000, 2)], key="B"),
        At(105, 3, [(0, 10_000, 3)], key="C"),
        At(10_100, 2, [(10_000, 20_000, 2)], [(0, 10_000, 2)], key="B"),
        At(8_000, 1, [(0, 10_000, 2)], key="A"),
        At(10_001, 1, [(10_000, 20_000, 1)], [(0, 10_000, 2)], key="A"),
    ),
    "several-aggregates": case(
        lambda sdf: sdf.tumbling_window(10).agg(**NUMBERS),
        At(2, 1, [(0, 10, 1, 1, 1.0, 1, 1)]),
        At(4, 4, [(0, 10, 2, 5, 2.5, 4, 1)]),
        At(12, 2, [(10, 20, 1, 2, 2.0, 2, 2)], [(0, 10, 2, 5, 2.5, 4, 1)]),
        fields=tuple(NUMBERS),
    ),
    "several-aggregates-and-collect": case(
        lambda sdf: sdf.tumbling_window(10).agg(**EVERYTHING),
        At(2, 1),
        At(4, 4),
        At(12, 2, final=[(0, 10, 2, 5, 2.5, 4, 1, [1, 4])]),
        At(13, 1),
        At(22, 2, final=[(10, 20, 2, 3, 1.5, 2, 1, [2, 1])]),
        fields=tuple(EVERYTHING),
        modes=("final",),
    ),
    "collect": case(
        lambda sdf: sdf.tumbling_window(10, grace_ms=5).collect(),
        At(100, 1),
        At(100, 2),
        At(101, 3),
        At(200, 4, final=[(100, 110, [1, 2, 3])]),
        modes=("final",),
    ),
    "collect-is-in-order-of-time-then-of-arrival": case(
        lambda sdf: sdf.tumbling_window(10).collect(),
        At(105, "a"),
        At(101, "b"),
        At(105, "c"),
        At(101, "d"),
        At(103, "e"),
        At(110, "f", final=[(100, 110, ["b", "d", "e", "a", "c"])]),
        modes=("final",),
    ),
    "reduce-is-in-order-of-arrival": case(
        lambda sdf: sdf.tumbling_window(10).reduce(listed, alone),
        At(105, "a", [(100, 110, ["a"])]),
        At(101, "b", [(100, 110, ["a", "b"])]),
        At(110, "c", [(110, 120, ["c"])], [(100, 110, ["a", "b"])]),
    ),
    "mean-of-a-field": case(  # docs/windowing.md, "Time-based Tumbling Windows"
        lambda sdf: sdf.tumbling_window(timedelta(hours=1)).agg(mean=Mean("temperature")),
        At(100, {"temperature": 30}, [(0, 3_600_000, 30)]),
        At(200, {"temperature": 29}, [(0, 3_600_000, 29.5)]),
        At(300, {"temperature": 28}, [(0, 3_600_000, 29)]),
        fields=("mean",),
    ),
}

# --- hopping: test_windows/test_hopping.py, test_dataframe.py -------------------------------

HOPPING = {
    "a-record-is-in-each-window-that-holds-it": case(
        lambda sdf: sdf.hopping_window(10, 5).sum(),
        At(1, 1, [(0, 10, 1)]),
        At(7, 2, [(0, 10, 3), (5, 15, 2)]),
        At(10, 3, [(5, 15, 5), (10, 20, 3)], [(0, 10, 3)]),
        At(35, 4, [(30, 40, 4), (35, 45, 4)], [(5, 15, 5), (10, 20, 3)]),
        At(35, 5, [(30, 40, 9), (35, 45, 9)]),
    ),
    "a-late-record-gives-nothing": case(
        lambda sdf: sdf.hopping_window(10, 5).sum(),
        At(1, 1, [(0, 10, 1)]),
        At(7, 2, [(0, 10, 3), (5, 15, 2)]),
        At(35, 4, [(30, 40, 4), (35, 45, 4)], [(0, 10, 3), (5, 15, 2)]),
        At(26, 3),
    ),
    "a-record-may-be-late-for-some-of-its-windows": case(
        lambda sdf: sdf.hopping_window(10, 5).sum(),
        At(117, 1, [(110, 120, 1), (115, 125, 1)]),
        At(113, 2, [(110, 120, 3)]),
        At(125, 4, [(120, 130, 4), (125, 135, 4)], [(110, 120, 3), (115, 125, 1)]),
    ),
    "the-end-is-exclusive": case(
        lambda sdf: sdf.hopping_window(10, 5).sum(),
        At(100, 1, [(95, 105, 1), (100, 110, 1)]),
        At(110, 2, [(105, 115, 2), (110, 120, 2)], [(95, 105, 1), (100, 110, 1)]),
    ),
    "a-window-is-open-until-its-grace-has-passed": case(
        lambda sdf: sdf.hopping_window(10, 5, grace_ms=2).sum(),
        At(100, 1, [(95, 105, 1), (100, 110, 1)]),
        At(106, 3, [(100, 110, 4), (105, 115, 3)]),
        At(107, 1, [(100, 110, 5), (105, 115, 4)], [(95, 105, 1)]),
        At(111, 1, [(105, 115, 5), (110, 120, 1)]),
        At(109, 1, [(100, 110, 6), (105, 115, 6)]),
        At(112, 1, [(105, 115, 7), (110, 120, 2)], [(100, 110, 6)]),
    ),
    "a-record-closes-windows-of-its-own-key-only": case(
        lambda sdf: sdf.hopping_window(10, 5).sum(),
        At(100, 1, [(95, 105, 1), (100, 110, 1)], key="key1"),
        At(102, 1, [(95, 105, 1), (100, 110, 1)], key="key2"),
        At(105, 1, [(100, 110, 2), (105, 115, 1)], [(95, 105, 1)], key="key2"),
        At(106, 1, [(100, 110, 2), (105, 115, 1)], [(95, 105, 1)], key="key1"),
        At(107, 1, [(100, 110, 3), (105, 115, 2)], key="key1"),
        At(108, 1, [(100, 110, 3), (105, 115, 2)], key="key2"),
        At(114, 1, [(105, 115, 1), (110, 120, 1)], key="key3"),
        At(116, 1, [(110, 120, 1), (115, 125, 1)], [(100, 110, 3), (105, 115, 2)], key="key1"),
    ),
    "several-aggregates": case(
        lambda sdf: sdf.hopping_window(10, 5).agg(**NUMBERS),
        At(2, 1, [(0, 10, 1, 1, 1.0, 1, 1)]),
        At(6, 4, [(0, 10, 2, 5, 2.5, 4, 1), (5, 15, 1, 4, 4, 4, 4)]),
        At(12, 2, [(5, 15, 2, 6, 3.0, 4, 2), (10, 20, 1, 2, 2, 2, 2)], [(0, 10, 2, 5, 2.5, 4, 1)]),
        fields=tuple(NUMBERS),
    ),
    "several-aggregates-and-collect": case(
        lambda sdf: sdf.hopping_window(10, 5).agg(**EVERYTHING),
        At(2, 1),
        At(6, 4),
        At(12, 2, final=[(0, 10, 2, 5, 2.5, 4, 1, [1, 4])]),
        At(16, 1, final=[(5, 15, 2, 6, 3.0, 4, 2, [4, 2])]),
        fields=tuple(EVERYTHING),
        modes=("final",),
    ),
    "collect": case(
        lambda sdf: sdf.hopping_window(10, 5).collect(),
        At(100, 1),
        At(100, 2),
        At(101, 3),
        At(110, 4, final=[(95, 105, [1, 2, 3]), (100, 110, [1, 2, 3])]),
        modes=("final",),
    ),
    "mean-of-a-field": case(
        # docs/windowing.md, "Time-based Hopping Windows": the results shown there are those of a
        # step of one minute, not of the ten in its code.
        lambda sdf: sdf.hopping_window(timedelta(hours=1), timedelta(minutes=1)).agg(
            mean=Mean("temperature")
        ),
        At(50_000, {"temperature": 30}, [(0, 3_600_000, 30)]),
        At(60_000, {"temperature": 29}, [(0, 3_600_000, 29.5), (60_000, 3_660_000, 29)]),
        At(62_000, {"temperature": 28}, [(0, 3_600_000, 29), (60_000, 3_660_000, 28.5)]),
        fields=("mean",),
    ),
}

# --- sliding: test_windows/test_sliding.py, test_dataframe.py -------------------------------

A, B, C, D = "ABCD"


def sliding(grace_ms):
    return lambda sdf: sdf.sliding_window(10, grace_ms=grace_ms).reduce(listed, alone)


SLIDING = {
    "an-earlier-record-outside-of-the-window": case(
        sliding(grace_ms=15),
        At(23, A, [(13, 23, [A])]),
        At(12, B, [(2, 12, [B])]),
    ),
    "an-earlier-record-inside-of-the-window": case(
        sliding(grace_ms=15),
        At(23, A, [(13, 23, [A])]),
        At(20, B, [(10, 20, [B]), (13, 23, [A, B])]),
    ),
    "a-record-older-than-an-earlier-one": case(
        sliding(grace_ms=15),
        At(23, A, [(13, 23, [A])]),
        At(20, B, [(10, 20, [B]), (13, 23, [A, B])]),
        At(27, C, [(17, 27, [A, B, C])]),
    ),
    "two-records-of-one-timestamp": case(
        sliding(grace_ms=15),
        At(17, A, [(7, 17, [A])]),
        At(17, B, [(7, 17, [A, B])]),
    ),
    "the-start-is-inclusive-and-no-further": case(
        sliding(grace_ms=15),
        At(23, A, [(13, 23, [A])]),
        At(20, B, [(10, 20, [B]), (13, 23, [A, B])]),
        At(31, C, [(21, 31, [A, C])]),
        At(31, D, [(21, 31, [A, C, D])]),
    ),
    "two-records-in-order": case(
        sliding(grace_ms=15),
        At(11, A, [(1, 11, [A])]),
        At(19, B, [(9, 19, [A, B])]),
    ),
    "without-grace-a-window-closes-after-its-end": case(
        sliding(grace_ms=0),
        At(16, A, [(6, 16, [A])]),
        At(24, B, [(14, 24, [A, B])], [(6, 16, [A])]),
        At(25, C, [(15, 25, [A, B, C])], [(14, 24, [A, B])]),
    ),
    "with-grace-a-window-stays-open": case(
        sliding(grace_ms=2),
        At(16, A, [(6, 16, [A])]),
        At(24, B, [(14, 24, [A, B])], [(6, 16, [A])]),
        At(25, C, [(15, 25, [A, B, C])]),
    ),
    "both-ends-are-inclusive": case(
        sliding(grace_ms=15),
        At(11, A, [(1, 11, [A])]),
        At(21, B, [(11, 21, [A, B])]),
    ),
    "one-millisecond-too-far-apart": case(
        sliding(grace_ms=15),
        At(11, A, [(1, 11, [A])]),
        At(22, B, [(12, 22, [B])]),
    ),
    "no-window-starts-before-1970": case(sliding(grace_ms=15), At(3, A, [(0, 3, [A])])),
    "a-record-much-older-than-the-others": case(
        sliding(grace_ms=15),
        At(29, A, [(19, 29, [A])]),
        At(26, B, [(16, 26, [B]), (19, 29, [A, B])]),
        At(41, C, [(31, 41, [C])]),
    ),
    "a-closed-window-takes-no-record-an-open-one-does": case(
        sliding(grace_ms=0),
        At(22, A, [(12, 22, [A])]),
        At(23, B, [(13, 23, [A, B])], [(12, 22, [A])]),
        At(22, C, [(13, 23, [A, B, C])]),
    ),
    "a-record-too-late-for-a-window-of-its-own": case(
        sliding(grace_ms=3),
        At(22, A, [(12, 22, [A])]),
        At(23, B, [(13, 23, [A, B])]),
        At(17, C, [(12, 22, [A, C]), (13, 23, [A, B, C])]),
        At(26, D, [(16, 26, [A, B, C, D])], [(12, 22, [A, C])]),
    ),
    "a-late-record-gives-nothing": case(
        sliding(grace_ms=0),
        At(1, A, [(0, 1, [A])]),
        At(20, B, [(10, 20, [B])], [(0, 1, [A])]),
        At(5, C),
    ),
    "late-by-one-millisecond": case(
        sliding(grace_ms=0),
        At(1, A, [(0, 1, [A])]),
        At(20, B, [(10, 20, [B])], [(0, 1, [A])]),
        At(9, C),
    ),
    "just-in-time": case(
        sliding(grace_ms=0),
        At(20, B, [(10, 20, [B])]),
        At(10, C, [(10, 20, [B, C])]),
    ),
    "collect": case(
        lambda sdf: sdf.sliding_window(10, grace_ms=5).collect(),
        At(11, A),
        At(12, B),
        At(21, C, final=[(1, 11, [A]), (2, 12, [A, B])]),
        At(60, D, final=[(11, 21, [A, B, C])]),
        modes=("final",),
    ),
    "collect-is-in-order-of-time": case(
        lambda sdf: sdf.sliding_window(10, grace_ms=5).collect(),
        At(25, A),
        At(22, B),
        At(24, C),
        At(60, D, final=[(12, 22, [B]), (14, 24, [B, C]), (15, 25, [B, C, A])]),
        modes=("final",),
    ),
    "several-aggregates": case(
        lambda sdf: sdf.sliding_window(10).agg(**NUMBERS),
        At(102, 1, [(92, 102, 1, 1, 1.0, 1, 1)]),
        At(103, 3, [(93, 103, 2, 4, 2.0, 3, 1)], [(92, 102, 1, 1, 1.0, 1, 1)]),
        At(111, 5, [(101, 111, 3, 9, 3.0, 5, 1)], [(93, 103, 2, 4, 2.0, 3, 1)]),
        At(114, 1, [(104, 114, 2, 6, 3.0, 5, 1)], [(101, 111, 3, 9, 3.0, 5, 1)]),
        At(118, 2, [(108, 118, 3, 8, 8 / 3, 5, 1)], [(104, 114, 2, 6, 3.0, 5, 1)]),
        fields=tuple(NUMBERS),
    ),
    "each-key-has-its-own-windows": case(
        lambda sdf: sdf.sliding_window(10).sum(),
        At(100, 1, [(90, 100, 1)], key="a"),
        At(200, 2, [(190, 200, 2)], key="b"),
        At(105, 4, [(95, 105, 5)], [(90, 100, 1)], key="a"),
    ),
    "current-gives-each-update": case(
        lambda sdf: sdf.sliding_window(timedelta(seconds=10), timedelta(seconds=1)).sum(),
        At(1_000, 1, [(0, 1_000, 1)]),
        At(9_000, 2, [(0, 9_000, 3)]),
        At(20_010, 3, [(10_010, 20_010, 3)]),
        modes=("current",),
    ),
    "mean-of-a-field": case(  # docs/windowing.md, "Time-based Sliding Windows"
        lambda sdf: sdf.sliding_window(timedelta(hours=1)).agg(mean=Mean("temperature")),
        At(3_600_000, {"temperature": 30}, [(0, 3_600_000, 30)]),
        At(4_800_000, {"temperature": 29}, [(1_200_000, 4_800_000, 29.5)]),
        At(4_800_001, {"temperature": 28}, [(1_200_001, 4_800_001, 29)]),
        At(7_200_000, {"temperature": 27}, [(3_600_000, 7_200_000, 28.5)]),
        At(7_200_001, {"temperature": 26}, [(3_600_001, 7_200_001, 27.5)]),
        fields=("mean",),
        modes=("current",),
    ),
}

# --- sessions: test_windows/test_session.py -------------------------------------------------

SESSIONS = {
    "a-record-within-the-gap-extends-a-session": case(
        lambda sdf: sdf.session_window(10_000, grace_ms=1_000).agg(**NUMBERS),
        At(1_000, 1, [(1_000, 1_001, 1, 1, 1.0, 1, 1)]),
        At(5_000, 4, [(1_000, 5_001, 2, 5, 2.5, 4, 1)]),
        At(26_001, 2, [(26_001, 26_002, 1, 2, 2.0, 2, 2)], [(1_000, 5_001, 2, 5, 2.5, 4, 1)]),
        fields=tuple(NUMBERS),
    ),
    "a-longer-pause-begins-another": case(
        lambda sdf: sdf.session_window(5_000).sum(),
        At(1_000, 1, [(1_000, 1_001, 1)]),
        At(4_000, 2, [(1_000, 4_001, 3)]),
        At(15_000, 5, [(15_000, 15_001, 5)], [(1_000, 4_001, 3)]),
    ),
    "grace-does-not-make-the-gap-longer": case(
        lambda sdf: sdf.session_window(5_000, grace_ms=2_000).sum(),
        At(1_000, 1, [(1_000, 1_001, 1)]),
        At(8_000, 2, [(8_000, 8_001, 2)]),
        At(20_001, 3, [(20_001, 20_002, 3)], [(1_000, 1_001, 1), (8_000, 8_001, 2)]),
    ),
    "each-key-has-its-own-sessions": case(
        lambda sdf: sdf.session_window(5_000).sum(),
        At(1_000, 1, [(1_000, 1_001, 1)], key="key1"),
        At(2_000, 10, [(2_000, 2_001, 10)], key="key2"),
        At(3_000, 2, [(1_000, 3_001, 3)], key="key1"),
        At(4_000, 20, [(2_000, 4_001, 30)], key="key2"),
    ),
    "a-late-record-gives-nothing": case(
        lambda sdf: sdf.session_window(5_000, grace_ms=1_000).sum(),
        At(1_000, 1, [(1_000, 1_001, 1)]),
        At(3_000, 2, [(1_000, 3_001, 3)]),
        At(15_000, 5, [(15_000, 15_001, 5)], [(1_000, 3_001, 3)]),
        At(2_500, 10),
    ),
    "a-record-between-two-sessions-joins-them": case(
        lambda sdf: sdf.session_window(10_000, grace_ms=5_000).count(),
        At(1_000, 1, [(1_000, 1_001, 1)]),
        At(15_000, 1, [(15_000, 15_001, 1)]),
        At(8_000, 1, [(1_000, 15_001, 3)]),
        At(20_000, 1, [(1_000, 20_001, 4)]),
        At(100_000, 1, [(100_000, 100_001, 1)], [(1_000, 20_001, 4)]),
    ),
    "a-record-exactly-a-gap-from-both-joins-them": case(
        lambda sdf: sdf.session_window(10_000, grace_ms=20_000).sum(),
        At(1_000, 5, [(1_000, 1_001, 5)]),
        At(10_000, 10, [(1_000, 10_001, 15)]),
        At(25_000, 10, [(25_000, 25_001, 10)]),
        At(15_000, 20, [(1_000, 25_001, 45)]),
        At(99_000, 1, [(99_000, 99_001, 1)], [(1_000, 25_001, 45)]),
    ),
    "a-record-before-a-session-extends-it": case(
        lambda sdf: sdf.session_window(10, grace_ms=10).sum(),
        At(100, 1, [(100, 101, 1)]),
        At(90, 2, [(90, 101, 3)]),
        At(200, 4, [(200, 201, 4)], [(90, 101, 3)]),
    ),
    "reduce-with-a-merger": case(
        lambda sdf: sdf.session_window(10, grace_ms=100).reduce(
            listed, alone, merger=lambda a, b: a + b
        ),
        At(2, 2, [(2, 3, [2])]),
        At(8, 3, [(2, 9, [2, 3])]),
        At(500, 4, [(500, 501, [4])], [(2, 9, [2, 3])]),
    ),
    "collect": case(
        lambda sdf: sdf.session_window(10).collect(),
        At(0, 1),
        At(5, 2),
        At(27, 4, final=[(0, 6, [1, 2])]),
        At(100, 1, final=[(27, 28, [4])]),
        modes=("final",),
    ),
}

# Another than in Quix Streams: a session closes when its gap and grace have passed, not one more
# gap later; and a record that joins an open session is not late.
SESSIONS_OF_OURS = {
    "a-session-closes-after-its-gap-and-grace": case(
        lambda sdf: sdf.session_window(10, grace_ms=5).sum(),
        At(0, 1, [(0, 1, 1)]),
        At(15, 2, [(15, 16, 2)]),
        At(16, 4, [(15, 17, 6)], [(0, 1, 1)]),
    ),
    "a-record-that-joins-an-open-session-is-on-time": case(
        lambda sdf: sdf.session_window(10).sum(),
        At(30, 1, [(30, 31, 1)]),
        At(40, 2, [(30, 41, 3)]),
        At(50, 4, [(30, 51, 7)]),
        At(33, 8, [(30, 51, 15)]),
    ),
}

# Another than in Quix Streams (test_sliding_window_multiaggregation): a window that 1970 cuts short
# closes after its end like any other. There it waits until its uncut length has passed.
CUT_SHORT = {
    "sliding-window-cut-short-by-1970": case(
        lambda sdf: sdf.sliding_window(10).agg(**EVERYTHING),
        At(2, 1),
        At(3, 3, final=[(0, 2, 1, 1, 1.0, 1, 1, [1])]),
        At(11, 5, final=[(0, 3, 2, 4, 2.0, 3, 1, [1, 3])]),
        At(14, 1, final=[(1, 11, 3, 9, 3.0, 5, 1, [1, 3, 5])]),
        At(18, 2, final=[(4, 14, 2, 6, 3.0, 5, 1, [5, 1])]),
        fields=tuple(EVERYTHING),
        modes=("final",),
    ),
}

# --- so many records: test_windows/test_tumbling.py, test_hopping.py ------------------------


def records_of_two_keys(*results):
    """Return ten records of `test_multiple_keys_sum`, with what they give."""
    facts = [
        (100, 1, "key1"),
        (100, 5, "key2"),
        (110, 2, "key1"),
        (110, 4, "key2"),
        (120, 3, "key1"),
        (130, 4, "key1"),
        (120, 3, "key2"),
        (130, 2, "key2"),
        (140, 5, "key1"),
        (140, 1, "key2"),
    ]
    return [
        At(timestamp, value, current, final, key)
        for (timestamp, value, key), (current, final) in zip(facts, results, strict=True)
    ]


COUNTED = {
    "tumbling-window-closes-with-its-last-record": case(
        lambda sdf: sdf.tumbling_count_window(2).sum(),
        At(100, 1, [(100, 100, 1)]),
        At(110, 2, [(100, 110, 3)], [(100, 110, 3)]),
        At(120, 4, [(120, 120, 4)]),
    ),
    "start-and-end-are-the-least-and-the-largest-timestamp": case(
        lambda sdf: sdf.tumbling_count_window(3).sum(),
        At(110, 1, [(110, 110, 1)]),
        At(100, 2, [(100, 110, 3)]),
        At(105, 4, [(100, 110, 7)], [(100, 110, 7)]),
    ),
    "tumbling-several-aggregates": case(
        lambda sdf: sdf.tumbling_count_window(2).agg(**NUMBERS),
        At(2, 1, [(2, 2, 1, 1, 1.0, 1, 1)]),
        At(4, 4, [(2, 4, 2, 5, 2.5, 4, 1)], [(2, 4, 2, 5, 2.5, 4, 1)]),
        At(12, 2, [(12, 12, 1, 2, 2.0, 2, 2)]),
        At(13, 1, [(12, 13, 2, 3, 1.5, 2, 1)], [(12, 13, 2, 3, 1.5, 2, 1)]),
        At(15, 5, [(15, 15, 1, 5, 5.0, 5, 5)]),
        fields=tuple(NUMBERS),
    ),
    "tumbling-several-aggregates-and-collect": case(
        lambda sdf: sdf.tumbling_count_window(2).agg(**EVERYTHING),
        At(2, 1),
        At(4, 4, final=[(2, 4, 2, 5, 2.5, 4, 1, [1, 4])]),
        At(12, 2),
        At(13, 1, final=[(12, 13, 2, 3, 1.5, 2, 1, [2, 1])]),
        fields=tuple(EVERYTHING),
        modes=("final",),
    ),
    "tumbling-collect": case(
        lambda sdf: sdf.tumbling_count_window(3).collect(),
        At(100, 1),
        At(100, 2),
        At(101, 3, final=[(100, 101, [1, 2, 3])]),
        modes=("final",),
    ),
    "tumbling-of-two-keys": case(
        lambda sdf: sdf.tumbling_count_window(3).sum(),
        *records_of_two_keys(
            ([(100, 100, 1)], []),
            ([(100, 100, 5)], []),
            ([(100, 110, 3)], []),
            ([(100, 110, 9)], []),
            ([(100, 120, 6)], [(100, 120, 6)]),
            ([(130, 130, 4)], []),
            ([(100, 120, 12)], [(100, 120, 12)]),
            ([(130, 130, 2)], []),
            ([(130, 140, 9)], []),
            ([(130, 140, 3)], []),
        ),
    ),
    "hopping-several-aggregates": case(
        lambda sdf: sdf.hopping_count_window(3, 2).agg(**NUMBERS),
        At(2, 1, [(2, 2, 1, 1, 1.0, 1, 1)]),
        At(6, 5, [(2, 6, 2, 6, 3.0, 5, 1)]),
        At(
            12, 3, [(2, 12, 3, 9, 3.0, 5, 1), (12, 12, 1, 3, 3.0, 3, 3)], [(2, 12, 3, 9, 3.0, 5, 1)]
        ),
        At(16, 1, [(12, 16, 2, 4, 2.0, 3, 1)]),
        At(
            22,
            4,
            [(12, 22, 3, 8, 8 / 3, 4, 1), (22, 22, 1, 4, 4.0, 4, 4)],
            [(12, 22, 3, 8, 8 / 3, 4, 1)],
        ),
        fields=tuple(NUMBERS),
    ),
    "hopping-several-aggregates-and-collect": case(
        lambda sdf: sdf.hopping_count_window(3, 2).agg(**EVERYTHING),
        At(2, 1),
        At(6, 5),
        At(12, 3, final=[(2, 12, 3, 9, 3.0, 5, 1, [1, 5, 3])]),
        At(16, 1),
        At(22, 4, final=[(12, 22, 3, 8, 8 / 3, 4, 1, [3, 1, 4])]),
        fields=tuple(EVERYTHING),
        modes=("final",),
    ),
    "hopping-where-the-step-does-not-divide-the-count": case(
        lambda sdf: sdf.hopping_count_window(5, 2).collect(),
        *(At(100, value) for value in (1, 2, 3, 4)),
        At(100, 5, final=[(100, 100, [1, 2, 3, 4, 5])]),
        At(100, 6),
        At(100, 7, final=[(100, 100, [3, 4, 5, 6, 7])]),
        At(100, 8),
        At(100, 9, final=[(100, 100, [5, 6, 7, 8, 9])]),
        At(100, 10),
        At(100, 11, final=[(100, 100, [7, 8, 9, 10, 11])]),
        modes=("final",),
    ),
    "hopping-by-one-of-two-keys": case(
        lambda sdf: sdf.hopping_count_window(3, 1).sum(),
        *records_of_two_keys(
            ([(100, 100, 1)], []),
            ([(100, 100, 5)], []),
            ([(100, 110, 3), (110, 110, 2)], []),
            ([(100, 110, 9), (110, 110, 4)], []),
            ([(100, 120, 6), (110, 120, 5), (120, 120, 3)], [(100, 120, 6)]),
            ([(110, 130, 9), (120, 130, 7), (130, 130, 4)], [(110, 130, 9)]),
            ([(100, 120, 12), (110, 120, 7), (120, 120, 3)], [(100, 120, 12)]),
            ([(110, 130, 9), (120, 130, 5), (130, 130, 2)], [(110, 130, 9)]),
            ([(120, 140, 12), (130, 140, 9), (140, 140, 5)], [(120, 140, 12)]),
            ([(120, 140, 6), (130, 140, 3), (140, 140, 1)], [(120, 140, 6)]),
        ),
    ),
    "tumbling-by-the-documentation": case(  # docs/windowing.md, "Count-based Tumbling Windows"
        lambda sdf: sdf.tumbling_count_window(3).agg(data=Collect("data")),
        At(121, {"data": 100}),
        At(165, {"data": 50}),
        At(583, {"data": 200}, final=[(121, 583, [100, 50, 200])]),
        fields=("data",),
        modes=("final",),
    ),
    "sliding-by-the-documentation": case(  # docs/windowing.md, "Count-based Sliding Windows"
        lambda sdf: sdf.sliding_count_window(3).agg(average=Mean("amount")),
        At(121, {"amount": 100}),
        At(165, {"amount": 60}),
        At(583, {"amount": 200}, final=[(121, 583, 120)]),
        At(723, {"amount": 40}, final=[(165, 723, 100)]),
        At(1009, {"amount": 120}, final=[(583, 1009, 120)]),
        At(1242, {"amount": 80}, final=[(723, 1242, 80)]),
        fields=("average",),
        modes=("final",),
    ),
}

# test_multiple_keys_collect, both of them: what came first is first, whatever its timestamp.
OUT_OF_ORDER_OF_TIME = {
    "tumbling-count-window-collects-in-order-of-arrival": case(
        lambda sdf: sdf.tumbling_count_window(3).collect(),
        At(100, 5),
        At(110, 4),
        At(120, 3, final=[(100, 120, [5, 4, 3])]),
        At(130, 2),
        At(140, 1),
        At(130, 0, final=[(130, 140, [2, 1, 0])]),
        modes=("final",),
    ),
    "hopping-count-window-collects-in-order-of-arrival": case(
        lambda sdf: sdf.hopping_count_window(3, 1).collect(),
        At(100, 5),
        At(110, 4),
        At(120, 3, final=[(100, 120, [5, 4, 3])]),
        At(130, 2, final=[(110, 130, [4, 3, 2])]),
        At(140, 1, final=[(120, 140, [3, 2, 1])]),
        At(130, 0, final=[(130, 140, [2, 1, 0])]),
        modes=("final",),
    ),
    "sliding-count-window-collects-in-order-of-arrival": case(
        lambda sdf: sdf.sliding_count_window(2).agg(all=Collect(), last=Last()),
        At(110, "a"),
        At(100, "b", final=[(100, 110, "b", ["a", "b"])]),
        At(105, "c", final=[(100, 105, "c", ["b", "c"])]),
        fields=("last", "all"),
        modes=("final",),
    ),
}

TABLES = (
    TUMBLING,
    HOPPING,
    SLIDING,
    SESSIONS,
    SESSIONS_OF_OURS,
    CUT_SHORT,
    COUNTED,
    OUT_OF_ORDER_OF_TIME,
)


@pytest.mark.parametrize("facts", cases("current", *TABLES))
def test_current_gives_what_quix_gives(facts):
    check(facts, "current")


@pytest.mark.parametrize("facts", cases("final", *TABLES))
def test_final_gives_what_quix_gives(facts):
    check(facts, "final")


# --- the shortcuts: test_tumbling.py, test_hopping.py ---------------------------------------


@pytest.mark.parametrize(
    ("word", "first", "both"),
    [
        ("count", 1, 2),
        ("sum", 2, 3),
        ("mean", 2.0, 1.5),
        ("reduce", [2], [2, 1]),
        ("max", 2, 2),
        ("min", 2, 1),
    ],
)
@pytest.mark.parametrize(
    ("window", "spans"),
    [
        (lambda sdf: sdf.tumbling_window(10, grace_ms=5), [(100, 110)]),
        (lambda sdf: sdf.hopping_window(10, 5), [(95, 105), (100, 110)]),
        (lambda sdf: sdf.sliding_window(10, grace_ms=5), [(90, 100)]),
        (lambda sdf: sdf.tumbling_count_window(10), [(100, 100)]),
    ],
    ids=["tumbling", "hopping", "sliding", "count"],
)
def test_each_shortcut_gives_its_value(window, spans, word, first, both):
    facts = case(
        lambda sdf: single(window(sdf), word),
        At(100, 2, [(*span, first) for span in spans]),
        At(100, 1, [(*span, both) for span in spans]),
    )

    check(facts, "current")
    check(facts, "final")


RUNS = {  # test_hopping.py, TestCountHoppingWindow: what each of six records gives
    "count": ([1, 2, 3, 4, 5, 6], [[1], [2], [3, 1], [4, 2], [3, 1], [4, 2]], 4, 4),
    "sum": ([1, 2, 3, 4, 5, 6], [[1], [3], [6, 3], [10, 7], [12, 5], [18, 11]], 10, 18),
    "mean": ([1, 2, 3, 4, 5, 6], [[1], [1.5], [2, 3], [2.5, 3.5], [4, 5], [4.5, 5.5]], 2.5, 4.5),
    "max": ([1, 2, 4, 3, 5, 6], [[1], [2], [4, 4], [4, 4], [5, 5], [6, 6]], 4, 6),
    "min": ([4, 2, 3, 5, 6, 5], [[4], [2], [2, 3], [2, 3], [3, 6], [3, 5]], 2, 3),
    "reduce": (
        [1, 2, 3, 4, 5, 6],
        [[[1]], [[1, 2]], [[1, 2, 3], [3]], [[1, 2, 3, 4], [3, 4]], [[3, 4, 5], [5]]]
        + [[[3, 4, 5, 6], [5, 6]]],
        [1, 2, 3, 4],
        [3, 4, 5, 6],
    ),
    "collect": ([1, 2, 3, 4, 5, 6], [[]] * 6, [1, 2, 3, 4], [3, 4, 5, 6]),
}


@pytest.mark.parametrize("word", RUNS)
def test_hopping_count_window_gives_four_records_every_two(word):
    values, current, fourth, sixth = RUNS[word]
    final = [[], [], [], [fourth], [], [sixth]]
    steps = (
        At(100, value, [(100, 100, v) for v in now], [(100, 100, v) for v in closed])
        for value, now, closed in zip(values, current, final, strict=True)
    )
    facts = case(lambda sdf: single(sdf.hopping_count_window(4, 2), word), *steps)

    check(facts, "final")
    if word != "collect":
        check(facts, "current")


def test_count_windows_need_no_closing_strategy():
    records = [("k", 1, 100), ("k", 2, 110)]

    final = frame().tumbling_count_window(2).sum().final()
    current = frame().tumbling_count_window(2).sum().current()

    assert run_local(final, records) == [{"start": 100, "end": 110, "value": 3}]
    assert [result["value"] for result in run_local(current, records)] == [1, 3]


# --- which windows hold a timestamp: test_windows/test_base.py ------------------------------


@pytest.mark.parametrize(
    ("timestamp", "duration", "step", "windows"),
    [
        pytest.param(100, 30, 10, [(80, 110), (90, 120), (100, 130)], id="on-a-step"),
        pytest.param(50, 30, 10, [(30, 60), (40, 70), (50, 80)], id="on-another-step"),
        pytest.param(109, 30, 10, [(80, 110), (90, 120), (100, 130)], id="before-a-step"),
        pytest.param(75, 20, None, [(60, 80)], id="inside"),
        pytest.param(85, 15, None, [(75, 90)], id="odd-length"),
        pytest.param(100, 20, None, [(100, 120)], id="at-the-start"),
        pytest.param(1, 20, None, [(0, 20)], id="first-window"),
        pytest.param(1, 30, 10, [(0, 30)], id="none-starts-before-1970"),
        pytest.param(11, 30, 10, [(0, 30), (10, 40)], id="one-before-1970-left-out"),
        pytest.param(100, 10, None, [(100, 110)], id="length-divides-timestamp"),
        pytest.param(100, 60, None, [(60, 120)], id="length-does-not-divide-timestamp"),
        pytest.param(11, 10, 4, [(4, 14), (8, 18)], id="step-does-not-divide-length"),
    ],
)
def test_windows_are_aligned_to_1970(timestamp, duration, step, windows):
    sdf = frame()
    window = sdf.hopping_window(duration, step) if step else sdf.tumbling_window(duration)

    results = run_local(window.count().current("key"), [("k", 0, timestamp)])

    assert [(result["start"], result["end"]) for result in results] == windows


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        (timedelta(seconds=10), 10_000),
        (timedelta(milliseconds=10.1), 10),
        (timedelta(milliseconds=10.9), 11),
        (11, 11),
    ],
    ids=str,
)
def test_a_duration_is_milliseconds_or_a_timedelta_that_is_rounded(given, milliseconds):
    window = frame().tumbling_window(given).count().current("key")

    assert run_local(window, [("k", 0, 0)]) == [{"start": 0, "end": milliseconds, "value": 1}]


@pytest.mark.parametrize(
    ("given", "milliseconds"), [(1.1, 1), (1.9, 2)], ids=["rounded-down", "rounded-up"]
)
def test_grace_and_step_are_rounded_as_well(given, milliseconds):
    delta = timedelta(milliseconds=given)
    closing = [("k", 1, 0), ("k", 2, 10 + milliseconds - 1), ("k", 4, 10 + milliseconds)]

    grace = frame().tumbling_window(10, grace_ms=delta).sum().final("key")
    step = frame().hopping_window(10, delta).count().current("key")

    assert [len(given) for given in one_by_one(grace, closing)] == [0, 0, 1]
    assert [result["start"] for result in run_local(step, [("k", 0, 2)])] == [
        start for start in range(3) if start % milliseconds == 0
    ]


# --- late records: test_dataframe.py, windows/time_based.py, windows/sliding.py -------------


class Late(NamedTuple):
    window: Any
    records: list[tuple[int, int]]
    """(timestamp, value)"""
    late: list[tuple[int, ...]]
    """(value, timestamp, late by, start, end, offset)"""


LATE = {
    "tumbling": Late(
        lambda sdf, **on: sdf.tumbling_window(10, **on).sum(),
        [(1, 1), (20, 2), (19, 3)],
        [(3, 19, 1, 10, 20, 2)],
    ),
    "tumbling-by-more": Late(
        lambda sdf, **on: sdf.tumbling_window(10, **on).sum(),
        [(1, 1), (25, 2), (19, 3), (0, 4)],
        [(3, 19, 6, 10, 20, 2), (4, 0, 25, 0, 10, 3)],
    ),
    "tumbling-with-grace-counts-from-the-end-of-the-grace": Late(
        lambda sdf, **on: sdf.tumbling_window(10, grace_ms=2, **on).sum(),
        [(100, 1), (111, 2), (109, 3), (112, 4), (109, 5), (101, 6)],
        [(5, 109, 1, 100, 110, 4), (6, 101, 9, 100, 110, 5)],
    ),
    "hopping-for-each-window": Late(
        lambda sdf, **on: sdf.hopping_window(10, 5, **on).sum(),
        [(1, 1), (7, 2), (35, 4), (26, 3)],
        [(3, 26, 9, 20, 30, 3), (3, 26, 9, 25, 35, 3)],
    ),
    "hopping-for-one-window-of-two": Late(
        lambda sdf, **on: sdf.hopping_window(10, 5, **on).sum(),
        [(117, 1), (113, 2)],
        [(2, 113, 4, 105, 115, 1)],
    ),
    "sliding": Late(
        lambda sdf, **on: sdf.sliding_window(10, **on).sum(),
        [(1, 1), (20, 2), (5, 3)],
        [(3, 5, 15, 0, 5, 2)],
    ),
    "sliding-by-one-millisecond": Late(
        lambda sdf, **on: sdf.sliding_window(10, grace_ms=3, **on).sum(),
        [(100, 1), (123, 2), (109, 3)],
        [(3, 109, 11, 99, 109, 2)],
    ),
    "session": Late(
        lambda sdf, **on: sdf.session_window(10, **on).sum(),
        [(0, 1), (50, 2), (39, 8), (0, 3)],
        [(8, 39, 1, 39, 40, 2), (3, 0, 40, 0, 1, 3)],
    ),
    "sliding-for-its-own-window-only": Late(
        lambda sdf, **on: sdf.sliding_window(10, **on).sum(),
        [(22, 1), (23, 2), (22, 3)],
        [(3, 22, 1, 12, 22, 2)],
    ),
}


@pytest.mark.parametrize("mode", ["current", "final"])
@pytest.mark.parametrize("facts", LATE.values(), ids=LATE)
def test_on_late_gets_what_was_late_and_by_how_much(facts, mode):
    records = [("k", value, timestamp) for timestamp, value in facts.records]
    expected = [
        (value, "k", timestamp, late_by, start, end, "list", 0, offset)
        for value, timestamp, late_by, start, end, offset in facts.late
    ]

    for cut in CUTS:
        calls = []
        window = facts.window(frame(), on_late=lambda *call: calls.append(call))
        run_local(getattr(window, mode)("key"), records, batches=cut, copy_functions=False)

        assert [(*call[:6], *call[7:]) for call in calls] == expected, f"cut: {cut}"


@pytest.mark.parametrize("kind", ["tumbling_window", "hopping_window", "session_window"])
def test_a_result_has_its_fields_in_the_order_of_quix(kind):
    lengths = (10, 10) if kind == "hopping_window" else (10,)
    several = getattr(frame(), kind)(*lengths).agg(all=Collect(), n=Count(), total=Sum())
    single = getattr(frame(), kind)(*lengths).sum()
    records = [("k", 1, 0), ("k", 2, 100)]

    names = [list(run_local(window.final(), records)[0]) for window in (several, single)]

    assert names == [["n", "total", "all", "start", "end"], ["start", "end", "value"]]


@pytest.mark.parametrize(("grace", "start"), [(2, []), (3, [1110])])
def test_a_sliding_window_of_a_late_record_is_given_where_the_grace_allows_it(grace, start):
    records = [("k", 8, 1117), ("k", 7, 1128), ("k", 1, 1125)]
    window = frame().sliding_window(15, grace_ms=grace).sum()

    given = one_by_one(window.current("key"), records)

    assert [result["start"] for result in given[2]] == [*start, 1113]


LATE_RECORDS = [("k", 1, 1), ("k", 2, 20), ("k", 3, 5)]


NAMED = {
    "tumbling_window_10_sum": lambda sdf, **on: sdf.tumbling_window(10, **on).sum(),
    "tumbling_window_15_count": lambda sdf, **on: sdf.tumbling_window(15, **on).count(),
    "tumbling_window_10": lambda sdf, **on: sdf.tumbling_window(10, **on).agg(n=Count()),
    "hopping_window_10_3_sum": lambda sdf, **on: sdf.hopping_window(10, 3, **on).sum(),
    "hopping_window_10_5": lambda sdf, **on: sdf.hopping_window(10, 5, **on).agg(n=Count()),
    "sliding_window_10_max": lambda sdf, **on: sdf.sliding_window(10, **on).max(),
    "sliding_window_10": lambda sdf, **on: sdf.sliding_window(10, **on).agg(n=Count()),
    "session_window_10_sum": lambda sdf, **on: sdf.session_window(10, **on).sum(),
    # test_tumbling_window_definition_get_name, test_hopping_window_definition_get_name
    "own_tumbling_window_10_sum": lambda sdf, **on: sdf.tumbling_window(10, name="own", **on).sum(),
    "own_hopping_window_10_3_sum": lambda sdf, **on: sdf.hopping_window(
        10, 3, name="own", **on
    ).sum(),
}


@pytest.mark.parametrize("name", NAMED)
def test_on_late_gets_the_name_of_the_window(name):
    names = set()
    window = NAMED[name](frame(), on_late=lambda *call: names.add(call[6]))

    run_local(window.final("key"), LATE_RECORDS, copy_functions=False)

    assert names == {name}


@pytest.mark.parametrize(
    ("on_late", "is_logged"),
    [
        pytest.param({"on_late": lambda *call: True}, True, id="on_late-returns-True"),
        pytest.param({"on_late": lambda *call: False}, False, id="on_late-returns-False"),
        pytest.param({}, True, id="no-on_late"),  # docs/windowing.md, "Reacting on late events"
    ],
)
@pytest.mark.parametrize("kind", ["tumbling_window", "sliding_window"])
def test_a_late_record_is_logged_unless_on_late_says_no(kind, on_late, is_logged, caplog):
    window = getattr(frame(), kind)(10, **on_late).sum().current("key")

    with caplog.at_level(logging.WARNING, logger="millpond"):
        results = run_local(window, LATE_RECORDS)

    assert len(results) == 2
    assert bool(caplog.records) is is_logged


# --- before_update and after_update: test_tumbling.py, test_hopping.py, docs/windowing.md ---
#
# Only final(): a window that was triggered is in Quix's current() never seen.


def reaches(most):
    return lambda so_far, value, key, timestamp, headers: so_far >= most


def would_exceed(most):
    return lambda so_far, value, key, timestamp, headers: so_far + value > most


def holds(most):
    return lambda so_far, value, key, timestamp, headers: len(so_far) >= most


def would_hold(most):
    return lambda so_far, value, key, timestamp, headers: len(so_far) + 1 >= most


def would_count(most):
    return lambda so_far, value, key, timestamp, headers: so_far["count"] + 1 >= most


COUNT_SUM_COLLECT = {"count": Count(), "sum": Sum(), "collect": Collect()}


def triggered(window, *steps, fields=("value",)):
    steps = (At(timestamp, value, final=given) for timestamp, value, given in steps)
    return case(window, *steps, fields=fields, modes=("final",))


TRIGGERED = {
    "tumbling-after-update": triggered(
        lambda sdf: sdf.tumbling_window(100, after_update=reaches(9)).sum(),
        (50, 2, []),
        (60, 2, []),
        (70, 5, [(0, 100, 9)]),
        (80, 3, []),
        (200, 1, [(0, 100, 3)]),
    ),
    "tumbling-before-update": triggered(
        lambda sdf: sdf.tumbling_window(100, before_update=would_exceed(10)).sum(),
        (50, 3, []),
        (60, 5, []),
        (70, 3, [(0, 100, 8)]),
        (80, 2, []),
        (200, 1, [(0, 100, 2)]),
    ),
    "tumbling-before-the-first-value": triggered(
        lambda sdf: sdf.tumbling_window(100, before_update=would_exceed(10)).sum(),
        (50, 11, [(0, 100, 0)]),
        (60, 4, []),
        (200, 1, [(0, 100, 4)]),
    ),
    "hopping-after-update-for-one-window-of-two": triggered(
        lambda sdf: sdf.hopping_window(100, 50, 100, after_update=reaches(100)).sum(),
        (50, 90, []),
        (110, 5, []),
        (90, 5, [(50, 150, 100)]),
        (200, 1, [(0, 100, 95)]),
    ),
    "hopping-before-update-for-both-windows": triggered(
        lambda sdf: sdf.hopping_window(100, 50, 100, before_update=would_exceed(50)).sum(),
        (50, 10, []),
        (60, 20, []),
        (70, 25, [(0, 100, 30), (50, 150, 30)]),
        (100, 5, []),
        (300, 1, [(50, 150, 5), (100, 200, 5)]),
    ),
    "windows-that-closed-by-time-come-before-those-that-were-triggered": triggered(
        lambda sdf: sdf.tumbling_window(10, after_update=reaches(9)).sum(),
        (100, 5, []),
        (111, 9, [(100, 110, 5), (110, 120, 9)]),
    ),
    "each-key-is-triggered-by-itself": case(
        lambda sdf: sdf.tumbling_window(100, after_update=reaches(9)).sum(),
        At(50, 8, key="a"),
        At(51, 8, key="b"),
        At(52, 1, final=[(0, 100, 9)], key="b"),
        At(100, 1, final=[(0, 100, 8)], key="a"),
        modes=("final",),
    ),
}

# Another than in Quix Streams: what was given by a trigger is not given a second time. There, what
# was collected stays until the window closes by time: docs/windowing.md, "Early window expiration".
COLLECTED = {
    "tumbling-after-update": triggered(
        lambda sdf: sdf.tumbling_window(100, after_update=holds(3)).collect(),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, [1, 2, 3])]),
        (80, 4, []),
        (110, 5, [(0, 100, [4])]),
    ),
    "tumbling-before-update": triggered(
        lambda sdf: sdf.tumbling_window(100, before_update=would_hold(3)).collect(),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, [1, 2])]),
        (80, 4, []),
        (110, 5, [(0, 100, [4])]),
    ),
    "tumbling-aggregates-and-collect": triggered(
        lambda sdf: sdf.tumbling_window(100, before_update=would_count(3)).agg(**COUNT_SUM_COLLECT),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, 2, 3, [1, 2])]),
        (80, 4, []),
        (110, 5, [(0, 100, 1, 4, [4])]),
        fields=tuple(COUNT_SUM_COLLECT),
    ),
    "hopping-after-update": triggered(
        lambda sdf: sdf.hopping_window(100, 50, 100, after_update=holds(3)).collect(),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, [1, 2, 3]), (50, 150, [1, 2, 3])]),
        (110, 4, []),
    ),
    "hopping-before-update": triggered(
        lambda sdf: sdf.hopping_window(100, 50, 100, before_update=would_hold(3)).collect(),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, [1, 2]), (50, 150, [1, 2])]),
        (110, 4, []),
    ),
    "hopping-aggregates-and-collect": triggered(
        lambda sdf: sdf.hopping_window(100, 50, 100, before_update=would_count(3)).agg(
            **COUNT_SUM_COLLECT
        ),
        (50, 1, []),
        (60, 2, []),
        (70, 3, [(0, 100, 2, 3, [1, 2]), (50, 150, 2, 3, [1, 2])]),
        (100, 4, []),
        (120, 5, []),
        (260, 6, [(50, 150, 2, 9, [4, 5])]),
        fields=tuple(COUNT_SUM_COLLECT),
    ),
}


@pytest.mark.parametrize("facts", cases("final", TRIGGERED))
def test_a_trigger_closes_a_window_at_once_and_it_begins_again(facts):
    check(facts, "final")


@pytest.mark.parametrize("facts", cases("final", COLLECTED))
def test_a_trigger_gives_what_was_collected_once(facts):
    check(facts, "final")


def test_triggers_are_called_with_the_aggregate_and_the_record():
    calls = []
    headers = [("h", b"1")]
    window = (
        frame()
        .set_headers(lambda *record: headers)
        .tumbling_window(
            10,
            before_update=lambda *call: calls.append(("before", *call)),
            after_update=lambda *call: calls.append(("after", *call)),
        )
    )

    run_local(window.sum().final("key"), [("k", 2, 102), ("k", 5, 104)], copy_functions=False)

    assert calls == [
        ("before", 0, 2, "k", 102, headers),
        ("after", 2, 2, "k", 102, headers),
        ("before", 2, 5, "k", 104, headers),
        ("after", 7, 5, "k", 104, headers),
    ]


def test_triggers_are_called_for_each_window_of_a_record():
    calls = []
    window = frame().hopping_window(10, 5, after_update=lambda *call: calls.append(call[:4]))

    run_local(window.sum().final("key"), [("k", 2, 101), ("k", 5, 107)], copy_functions=False)

    assert calls == [(2, 2, "k", 101), (2, 2, "k", 101), (7, 5, "k", 107), (5, 5, "k", 107)]


def test_after_update_is_not_asked_where_before_update_has_closed_the_window():
    calls = []
    window = frame().tumbling_window(
        10,
        before_update=lambda *call: calls.append("before") or True,
        after_update=lambda *call: calls.append("after"),
    )

    run_local(window.sum().final("key"), [("k", 1, 100)], copy_functions=False)

    assert calls == ["before"]


def test_triggers_are_not_asked_about_a_late_record():
    values = []

    def seen(so_far, value, key, timestamp, headers):
        values.append(value)
        return False

    window = frame().tumbling_window(10, before_update=seen, after_update=seen)
    run_local(window.sum().final("key"), LATE_RECORDS, copy_functions=False)

    assert values == [1, 1, 2, 2]


# --- what aggregates make of values: test_windows/test_aggregations.py ----------------------


@pytest.mark.parametrize(
    ("aggregation", "values", "result"),
    [
        (Sum(), [1, 2], 3),
        (Sum(), [0], 0),
        (Sum(), [1, None, 2], 3),
        (Sum(), [None], 0),
        (Sum("foo"), [{"foo": 1}, {"foo": 2}], 3),
        (Sum("foo"), [{"foo": 1}, {"foo": None}], 1),
        (Count(), [1, "2", None], 2),
        (Count("foo"), [{"foo": 1}, {"foo": None}, {"foo": 3}], 2),
        (Mean(), [1, 2], 1.5),
        (Mean(), [0], 0),
        (Mean(), [1, None, 2], 1.5),
        (Mean(), [None], None),
        (Mean("foo"), [{"foo": 1}, {"foo": None}], 1),
        (Max(), [3, 1, 2], 3),
        (Max(), [None, 3, 2], 3),
        (Max(), [None], None),
        (Max("foo"), [{"foo": 3}, {"foo": None}], 3),
        (Min(), [3, 1, 2], 1),
        (Min(), [None, 3, 2], 2),
        (Min(), [None], None),
        (Min("foo"), [{"foo": 3}, {"foo": 1}], 1),
        (Reduce(lambda so_far, value: so_far + value, lambda value: value), [A, B, C], "ABC"),
        (Collect(), [0, 1, 1, 0], [0, 1, 1, 0]),
        (Collect(), [A, B, A, B], [A, B, A, B]),
        (Collect("foo"), [{"foo": 1, "bar": 2}, {"foo": 3}], [1, 3]),
        (First(), [1, 2, 3], 1),
        (First("foo"), [{"foo": None}, {"foo": 3}], 3),
        (Last(), [1, 2, 3], 3),
        (Last("foo"), [{"foo": 1}, {"foo": None}], 1),
    ],
    ids=lambda given: repr(given).replace(" ", ""),
)
def test_an_aggregate_of_values(aggregation, values, result):
    records = [*(("k", value, 50) for value in values), ("k", values[0], 100)]
    window = frame().tumbling_window(100).agg(found=aggregation).final("key")

    assert run_local(window, records) == [{"start": 0, "end": 100, "found": result}]


@pytest.mark.parametrize(
    ("aggregation", "timestamps", "result"),
    [
        (First(), [1, 2, 3], 1),
        (First(), [3, 2, 1], 1),
        (Last(), [1, 2, 3], 3),
        (Last(), [3, 2, 1], 3),
        (Earliest(), [1, 2, 3], 1),
        (Earliest(), [3, 2, 1], 3),
        (Earliest(), [1, 1, 1], 1),
        (Latest(), [1, 2, 3], 3),
        (Latest(), [3, 2, 1], 1),
        (Latest(), [1, 1, 1], 3),
    ],
    ids=lambda given: repr(given).replace(" ", ""),
)
def test_first_and_last_go_by_arrival_earliest_and_latest_by_time(aggregation, timestamps, result):
    records = [("k", n, timestamp) for n, timestamp in enumerate(timestamps, 1)]
    window = frame().tumbling_window(100).agg(found=aggregation).final("key")

    for cut in CUTS:
        given = run_local(window, [*records, ("k", 0, 100)], batches=cut)
        assert given == [{"start": 0, "end": 100, "found": result}], f"cut: {cut}"


class PowerSum:
    """docs/aggregations.md, "Custom Aggregators"."""

    def initialize(self):
        return 0

    def agg(self, so_far, value, timestamp):
        return so_far + value["amount"] ** 2

    def result(self, so_far):
        return so_far


class Range:
    """Likewise, with a state that it changes in place."""

    def initialize(self):
        return {"seen": [], "events": 0}

    def agg(self, state, value, timestamp):
        state["seen"].append(value["amount"])
        state["events"] += 1
        return state

    def result(self, state):
        return (min(state["seen"]), max(state["seen"]), state["events"])


@pytest.mark.parametrize(
    ("window", "results"),
    [
        (lambda sdf: sdf.tumbling_window(10), [(100, 110, 13, (2, 3, 2))]),
        (
            lambda sdf: sdf.hopping_window(10, 5),
            [(95, 105, 13, (2, 3, 2)), (100, 110, 13, (2, 3, 2))],
        ),
        (
            lambda sdf: sdf.sliding_window(10, grace_ms=10),
            [(91, 101, 4, (2, 2, 1)), (92, 102, 13, (2, 3, 2))],
        ),
    ],
    ids=["tumbling", "hopping", "sliding"],
)
def test_an_aggregator_of_your_own_is_used_as_it_is(window, results):
    facts = case(
        lambda sdf: window(sdf).agg(power=PowerSum(), range=Range()),
        At(101, {"amount": 2}),
        At(102, {"amount": 3}),
        At(120, {"amount": 9}, final=results),
        fields=("power", "range"),
    )

    check(facts, "final")


# --- a window after a window ----------------------------------------------------------------


def test_a_window_takes_the_results_of_another():
    # test_dataframe.py, test_tumbling_window_two_windows
    facts = case(
        lambda sdf: (
            sdf.tumbling_window(timedelta(seconds=10))
            .sum()
            .current("key")
            .apply(lambda result: result["value"])
            .tumbling_window(timedelta(seconds=30))
            .sum()
        ),
        At(1_000, 1, [(0, 30_000, 1)]),
        At(9_000, 2, [(0, 30_000, 4)]),
        At(90_010, 3, [(90_000, 120_000, 3)], [(0, 30_000, 4)]),
    )

    check(facts, "current")
    check(facts, "final")


# --- closing for all keys at once: Quix's "partition", here "watermark" ---------------------


def by_watermark(window, *steps):
    """Compare the results of all keys, each record a batch of its own, sorted by key.

    Steps are (key, timestamp, value, current, final); results are (key, start, end, value).
    """
    records = [(key, value, timestamp) for key, timestamp, value, *_ in steps]
    for mode, results in (("current", [s[3] for s in steps]), ("final", [s[4] for s in steps])):
        expected = [
            [
                ({"start": start, "end": end, "value": value}, key, start, None)
                for key, start, end, value in given
            ]
            for given in results
        ]
        program = getattr(window(frame()), mode)("watermark").apply(with_metadata, metadata=True)
        given = [sorted(each, key=by_key) for each in one_by_one(program, records)]
        assert given == expected, mode
        together = run_local(program, records, batches=1)
        assert sorted(together, key=by_key) == sorted(chain(*expected), key=by_key), mode


def by_key(result):
    return result[1], result[2]


def test_partition_a_later_record_of_any_key_closes_tumbling_windows():
    # test_tumbling.py, test_tumbling_partition_expiration
    by_watermark(
        lambda sdf: sdf.tumbling_window(10, grace_ms=2).sum(),
        ("key1", 100, 1, [("key1", 100, 110, 1)], []),
        ("key1", 105, 3, [("key1", 100, 110, 4)], []),
        ("key2", 102, 5, [("key2", 100, 110, 5)], []),
        ("key2", 108, 7, [("key2", 100, 110, 12)], []),
        ("key1", 110, 2, [("key1", 110, 120, 2)], []),
        ("key2", 109, 2, [("key2", 100, 110, 14)], []),
        ("key1", 112, 2, [("key1", 110, 120, 4)], [("key1", 100, 110, 4), ("key2", 100, 110, 14)]),
    )


def test_partition_a_later_record_of_any_key_closes_hopping_windows():
    # test_hopping.py, test_hopping_partition_expiration
    by_watermark(
        lambda sdf: sdf.hopping_window(10, 5, grace_ms=2).sum(),
        ("key1", 100, 1, [("key1", 95, 105, 1), ("key1", 100, 110, 1)], []),
        ("key1", 106, 3, [("key1", 100, 110, 4), ("key1", 105, 115, 3)], []),
        ("key2", 102, 5, [("key2", 95, 105, 5), ("key2", 100, 110, 5)], []),
        (
            "key2",
            108,
            7,
            [("key2", 100, 110, 12), ("key2", 105, 115, 7)],
            [("key1", 95, 105, 1), ("key2", 95, 105, 5)],
        ),
        ("key1", 110, 2, [("key1", 105, 115, 5), ("key1", 110, 120, 2)], []),
        ("key2", 109, 2, [("key2", 100, 110, 14), ("key2", 105, 115, 9)], []),
        (
            "key1",
            112,
            3,
            [("key1", 105, 115, 8), ("key1", 110, 120, 5)],
            [("key1", 100, 110, 4), ("key2", 100, 110, 14)],
        ),
    )


def test_partition_a_new_key_closes_the_windows_of_quiet_ones():
    # test_tumbling.py, test_tumbling_key_expiration_to_partition, from the beginning
    by_watermark(
        lambda sdf: sdf.tumbling_window(10).sum(),
        ("key1", 100, 1, [("key1", 100, 110, 1)], []),
        ("key2", 102, 1, [("key2", 100, 110, 1)], []),
        ("key2", 105, 1, [("key2", 100, 110, 2)], []),
        ("key1", 106, 1, [("key1", 100, 110, 2)], []),
        ("key1", 107, 1, [("key1", 100, 110, 3)], []),
        ("key2", 108, 1, [("key2", 100, 110, 3)], []),
        ("key3", 115, 1, [("key3", 110, 120, 1)], [("key1", 100, 110, 3), ("key2", 100, 110, 3)]),
    )


def test_partition_a_record_is_late_for_what_another_key_has_closed():
    # docs/windowing.md, "Closing strategies"
    by_watermark(
        lambda sdf: sdf.tumbling_window(timedelta(seconds=10)).agg(value=Sum()),
        ("A", 100, 1, [("A", 0, 10_000, 1)], []),
        ("B", 101, 2, [("B", 0, 10_000, 2)], []),
        ("C", 105, 3, [("C", 0, 10_000, 3)], []),
        (
            "B",
            10_100,
            1,
            [("B", 10_000, 20_000, 1)],
            [("A", 0, 10_000, 1), ("B", 0, 10_000, 2), ("C", 0, 10_000, 3)],
        ),
        ("A", 8_000, 1, [], []),
        ("A", 10_001, 1, [("A", 10_000, 20_000, 1)], []),
    )


@pytest.mark.parametrize("word", ["count", "sum", "mean", "reduce", "max", "min", "collect"])
@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
def test_partition_each_shortcut_gives_its_value(kind, word):
    sdf = frame()
    is_tumbling = kind == "tumbling"
    window = sdf.tumbling_window(10, grace_ms=5) if is_tumbling else sdf.hopping_window(10, 5)
    result = {"count": 2, "sum": 3, "mean": 1.5, "max": 2, "min": 1}.get(word, [2, 1])
    spans = [(100, 110)] if is_tumbling else [(95, 105), (100, 110)]

    given = run_local(
        single(window, word).final("watermark"),
        [("quiet", 2, 100), ("quiet", 1, 100), ("other", 7, 115)],
        batches=1,
    )

    assert given == [{"start": start, "end": end, "value": result} for start, end in spans]


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda sdf: sdf.tumbling_window(-10, 5), "duration_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.tumbling_window(0), "duration_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.tumbling_window(1.5), "duration_ms is an int of milliseconds"),
        (lambda sdf: sdf.tumbling_window(10, -5), "grace_ms must be 0 or more"),
        (lambda sdf: sdf.hopping_window(-10, 3, 5), "duration_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.hopping_window(10, 3, -5), "grace_ms must be 0 or more"),
        (lambda sdf: sdf.hopping_window(10, -1, 5), "step_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.hopping_window(10, 0, 5), "step_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.hopping_window(10, 11, 5), "step_ms .11. is longer than duration_ms"),
        (lambda sdf: sdf.sliding_window(-10), "duration_ms must be 1 millisecond or more"),
        (lambda sdf: sdf.sliding_window(10, -5), "grace_ms must be 0 or more"),
        (lambda sdf: sdf.tumbling_count_window(-10), "count must be an int of 1 or more"),
        (lambda sdf: sdf.tumbling_count_window(0), "count must be an int of 1 or more"),
        (lambda sdf: sdf.hopping_count_window(0, 1), "count must be an int of 1 or more"),
        (lambda sdf: sdf.hopping_count_window(2, 0), "step must be an int of 1 or more"),
        (lambda sdf: sdf.hopping_count_window(2, -1), "step must be an int of 1 or more"),
        (lambda sdf: sdf.sliding_count_window(0), "count must be an int of 1 or more"),
        (lambda sdf: sdf.tumbling_window(10).sum().final("foo"), "closing_strategy is"),
        (lambda sdf: sdf.hopping_window(10, 5).sum().current("foo"), "closing_strategy is"),
        (lambda sdf: sdf.tumbling_window(10).agg(), "needs at least one aggregation"),
        (lambda sdf: sdf.tumbling_window(10).agg(start=Count()), "a field 'start' of its own"),
        (lambda sdf: sdf.tumbling_window(10).agg(end=Count()), "a field 'end' of its own"),
        (lambda sdf: sdf.tumbling_window(10).agg(n=len), "n needs an aggregation"),
    ],
)
def test_a_window_that_cannot_work_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make(frame())
