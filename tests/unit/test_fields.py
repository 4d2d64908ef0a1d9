"""What people see of aggregations and windows: fields by name, windows with start and end."""

import pytest

from millpond import Collect, Count, Mean, Reduce, Sum
from millpond.operations.fields import Fields
from millpond.state.codec import Codec
from millpond.state.plain import to_plain
from millpond.state.rows import group_rows
from millpond.storage.claims import claims_of
from millpond.storage.manifest import Manifest
from millpond.testing import LocalEngine, frame

CODEC = Codec()


def run(sdf, records, after=None):
    engine = LocalEngine(sdf, after=after, on_state_change="accept")
    engine.feed(records)
    engine.run()
    return engine


def seen(engine, *, with_program=True, key="a"):
    """What is shown of a key: name to value."""
    manifest = Manifest(8, 1)
    manifest.say(claims_of(engine.plan, manifest.claims()), None)
    manifest.layouts = engine.layouts
    value = CODEC.decode if with_program else to_plain
    fields = Fields(manifest, engine.plan if with_program else None, CODEC, value)
    return {
        name: value
        for store in engine.stores.values()
        for row in group_rows(store, 8)
        if CODEC.decode(row.key) == key
        for name, value in fields.shown("list", row.store, row.name, row.value)
    }


RECORDS = [("a", {"v": 2}, 1), ("a", {"v": 4}, 12), ("a", {"v": 5}, 14), ("b", {"v": 9}, 3)]
FIELDS = {"n": Count(), "mean": Mean("v")}


@pytest.mark.parametrize("emit", ["record", "batch"])
def test_totals_are_shown_by_field(emit):
    engine = run(frame().agg(emit=emit, **FIELDS), RECORDS)

    assert seen(engine) == {"n": 3, "mean": 11 / 3}
    assert seen(engine, with_program=False) == {"n": 3, "mean": {"$tuple": [11, 3]}}


@pytest.mark.parametrize("closing", ["watermark", "key"])
def test_each_open_window_is_shown(closing):
    sdf = frame().tumbling_window(10, grace_ms=100).agg(**FIELDS).final(closing)

    engine = run(sdf, RECORDS)

    assert seen(engine) == {
        "0": {"start": 0, "end": 10, "n": 1, "mean": 2.0},
        "10": {"start": 10, "end": 20, "n": 2, "mean": 4.5},
    }
    assert seen(engine, with_program=False)["0"] == {
        "start": 0, "end": 10, "n": 1, "mean": {"$tuple": [2, 1]}
    }  # fmt: skip


def test_a_window_that_has_closed_and_may_be_corrected_is_shown_with_its_revision():
    sdf = frame().tumbling_window(10, corrections_ms=1_000).sum().final()

    engine = run(sdf, [("a", 2, 1), ("a", 3, 12)])

    assert seen(engine) == {
        "0": {"start": 0, "end": 10, "value": 2, "revision": 0},
        "10": {"start": 10, "end": 20, "value": 3},
    }


def test_hopping_and_count_windows_are_shown():
    hopping = run(frame().hopping_window(10, 5).agg(n=Count()).final(), RECORDS[1:2])
    counted = run(frame().hopping_count_window(3, 1).agg(**FIELDS).final(), RECORDS[:2])

    assert seen(hopping) == {
        "5": {"start": 5, "end": 15, "n": 1},
        "10": {"start": 10, "end": 20, "n": 1},
    }
    assert seen(counted) == {
        "0": {"start": 1, "end": 12, "n": 2, "mean": 3.0},
        "1": {"start": 12, "end": 12, "n": 1, "mean": 4.0},
    }


ALL = Reduce(lambda so_far, value: [*so_far, value["v"]], lambda value: [value["v"]])


def test_sessions_are_shown_whether_they_keep_states_or_records():
    states = run(frame().session_window(5, grace_ms=99).agg(**FIELDS).final(), RECORDS)
    sdf = frame().session_window(5, grace_ms=99).agg(**FIELDS, all=ALL).final()
    current = run(frame().session_window(5, grace_ms=99).agg(**FIELDS).current(), RECORDS)
    records = run(sdf, RECORDS)
    mixed = run(sdf, [("a", {"v": 6}, 15)], after=states)

    whole = {
        "1": {"start": 1, "end": 2, "n": 1, "mean": 2.0},
        "12": {"start": 12, "end": 15, "n": 2, "mean": 4.5},
    }
    assert seen(states) == whole
    assert current.values[2] == whole["12"]
    assert seen(records)["12"] == {**whole["12"], "all": [4, 5]}
    assert seen(records, with_program=False)["12"] == {"start": 12, "end": 15, "records": 2}
    assert seen(mixed) == {
        "1": {**whole["1"], "all": None},
        "12": {"start": 12, "end": 16, "n": 3, "mean": 5.0, "all": [6]},
    }
    assert seen(mixed, with_program=False)["12"] == {
        "start": 12, "end": 16, "n": 2, "mean": {"$tuple": [9, 2]}, "all": None, "records": 1
    }  # fmt: skip


def test_sliding_windows_are_shown():
    engine = run(frame().sliding_window(5, grace_ms=99).agg(**FIELDS).final(), RECORDS)

    assert seen(engine)["14"] == {"start": 9, "end": 14, "n": 2, "mean": 4.5}
    assert seen(engine, with_program=False) == {
        "1": {"start": 0, "end": 1, "records": 1},
        "12": {"start": 7, "end": 12, "records": 1},
        "14": {"start": 9, "end": 14, "records": 2},
    }


def test_what_was_kept_before_a_change_is_shown_with_the_fields_of_now():
    old = run(frame().agg(spent=Sum("v"), n=Count()), RECORDS)
    new = run(frame().agg(n=Count(), all=Collect("v")), [("b", {"v": 1}, 20)], after=old)

    assert seen(new) == {"n": 3, "all": []}
    assert seen(new, with_program=False) == {"n": 3, "all": None}
    assert seen(new, key="b") == {"n": 2, "all": [1]}


def test_a_field_of_which_the_program_has_another_aggregation_shows_the_state():
    engine = run(frame().agg(**FIELDS), RECORDS)
    engine.plan = LocalEngine(frame().agg(n=Count(), mean=Sum("v"))).plan

    assert seen(engine)["mean"] == (11, 3)


class Unkept:
    """A result that state cannot keep."""

    def __repr__(self):
        return "Unkept()"


def test_a_result_that_state_could_not_keep_is_shown_as_text():
    class Own(Count):
        def result(self, state):
            return Unkept()

    engine = run(frame().agg(n=Own()), RECORDS)

    assert seen(engine) == {"n": "Unkept()"}
    assert seen(engine, with_program=False) == {"n": 3}
