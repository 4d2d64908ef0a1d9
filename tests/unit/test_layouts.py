"""Aggregations that change, as the manifest and `check` see it."""

import json
import shutil
from pathlib import Path

import pytest

from millpond import Aggregation, Count, Max, Reduce, Sum
from millpond.errors import StateError
from millpond.program.layouts import change, following, from_text, origins, text_of, translated
from millpond.program.plan import make_plan
from millpond.storage.directory import StateDirectory
from millpond.storage.manifest import FORMAT
from millpond.testing import frame
from millpond.worker.totals import Totals

OLD = Path(__file__).parent / "manifest-0.1.0.json"


# --- what a program changes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "asked", "why"),
    [
        ({"n": "Count()"}, {"n": "Count()"}, ""),
        ({"n": "Count()", "s": "Sum()"}, {"s": "Sum()", "n": "Count()"}, ""),
        ({"n": "Count()"}, {"s": "Sum()", "n": "Count()"}, "s starts empty beside n"),
        (
            {"n": "Count()", "s": "Sum(a)"},
            {"n": "Count()", "s": "Sum(b)", "m": "Max(a)"},
            "drops s; s, m start empty beside n",
        ),
        ({"n": "Count()", "s": "Sum()"}, {"n": "Count()"}, "drops s"),
        ({"n": "Count()"}, {"s": "Sum()"}, "drops n; s starts empty"),
    ],
)
def test_a_change_says_what_becomes_of_each_field(known, asked, why):
    assert change(known, asked).why == why


def test_layouts_grow_by_changes_of_content_only():
    layouts = []
    for asked in (
        {"n": "Count()"},
        {"s": "Sum()", "n": "Count()"},
        {"n": "Count()", "s": "Sum()"},
        {"s": "Sum()"},
        {"n": "Count()", "s": "Sum()"},
    ):
        layouts = following(layouts, asked)

    assert [list(layout) for layout in layouts] == [["n"], ["n", "s"], ["s"], ["s", "n"]]
    assert origins(layouts) == [[None, None], [1, None], [0, None], [0, 1]]


def test_what_is_kept_is_always_described_from_the_first_layout():
    fields = {"a": Count(), "b": Count(), "c": Count()}
    signatures = dict.fromkeys(fields, "Count()")
    first = dict.fromkeys(("a", "b"), "Count()")
    for names in (("a",), ("a", "b", "c"), ("a", "c")):
        some = {name: fields[name] for name in names}
        layouts = [first, {name: signatures[name] for name in names}]
        totals = Totals(some, layouts=layouts)
        states = [5] * len(names)

        assert totals.read(totals.keep(states)) == states
        assert totals.read([7, 8]) == [{"a": 7, "b": 8}.get(name, 0) for name in names]


@pytest.mark.parametrize("kept", [[1, 2, 7], [1, 2, None], []])
def test_states_of_a_layout_that_the_manifest_does_not_know_are_refused(kept):
    totals = Totals({"n": Count()}, layouts=[{"n": "Count()", "m": "Max()"}, {"n": "Count()"}])

    with pytest.raises(StateError, match=r"layout .* not known(.|\n)*Fix:"):
        totals.read(kept)


# --- what version 0.1.0 wrote ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("n=Count()", {"n": "Count()"}),
        ("n=Count(), spent=Sum(amount)", {"n": "Count()", "spent": "Sum(amount)"}),
        ("all=Reduce(<lambda>, start)", {"all": "Reduce(<lambda>, start)"}),
        (
            "u=CountDistinct(user, 1000), p=my/own",
            {"u": "CountDistinct(user, 1000)", "p": "my/own"},
        ),
        ("session_window_30, closed by key: n=Count()", {"n": "Count()"}),
        ("tumbling_window_5, closed by watermark, corrected: v=Sum(a b)", {"v": "Sum(a b)"}),
        ("s=Sum(a=b)", None),
        ("s=Sum(amount (EUR))", None),
        ("s=Sum(a), s=Sum(b)", None),
        ("s=Sum(a), ", None),
        ("a table", None),
        ("running totals", None),
        ("tumbling_window_5, closed by watermark", None),
        ("", None),
    ],
)
def test_aggregations_are_read_from_an_old_text_only_where_that_is_certain(text, layout):
    assert from_text(text) == layout
    if layout is not None:
        settings, _, _ = text.rpartition(": ")
        assert text_of(settings or "running totals", layout) == text


def test_a_manifest_is_translated_once():
    claims = {"settings": {"in": {"agg": "n=Count()", "t": "a table"}}}

    once = translated(claims)

    assert once["settings"] == {"in": {"agg": "running totals", "t": "a table"}}
    assert once["layouts"] == {"in": {"agg": [{"n": "Count()"}]}}
    assert translated(once) == once


class Strange(Aggregation):
    """Its signature has signs in it that part fields."""

    def __init__(self, signature):
        super().__init__()
        self._signature = signature

    @property
    def signature(self):
        return self._signature

    def add(self, state, value, timestamp):
        return value


def program(agg, visits=None):
    """The program that wrote the old manifest, with some of it changed."""
    sdf = frame(name="orders")
    sdf.agg(**agg)
    last = Reduce(lambda a, b: b, lambda a: a)
    sdf.tumbling_window(5000).agg(n=Count(), last=last).final()
    sdf.tumbling_window(7000, corrections_ms=10).sum().final()
    sdf.sliding_window(60).agg(n=Count(), most=Max()).current("key")
    visits = visits or {"n": Count(), "odd": Sum("amount (EUR), net")}
    sdf.session_window(30, name="visit").agg(**visits).final()
    return make_plan(sdf._graph)


SAME = {"n": Count(), "spent": Sum("amount")}


@pytest.fixture
def directory(tmp_path):
    """A group with the manifest that version 0.1.0 wrote: one batch of `agg`, then one of all."""
    directory = StateDirectory(tmp_path, "shop")
    folder = Path(directory.folder.path)
    folder.mkdir()
    shutil.copy(OLD, folder / "manifest.json")
    generation = folder / "generations" / "0001"
    for name in ("offsets", "commits", "state/0/_metadata/v2"):
        (generation / name).mkdir(parents=True)
    (generation / "state/0/_metadata/v2/0").write_text("v2\n{}")
    (generation / "metadata").write_text('{"id": "one"}')
    for batch in (0, 1):
        commit(directory, batch)
    return directory


def commit(directory, batch):
    generation = Path(directory.folder.path) / "generations" / "0001"
    lines = ["v1", '{"batchWatermarkMs":0}', '{"millpond": {}}']
    (generation / "offsets" / str(batch)).write_text("\n".join(lines))
    (generation / "commits" / str(batch)).write_text("v1\n{}")


def verdicts(directory, plan):
    return {v.store: (v.says, v.why) for v in directory.compare(plan)}


def test_an_old_state_directory_opens_and_its_program_goes_on(directory):
    found = verdicts(directory, program(SAME))
    assert set(found.values()) == {("reuse", "the program goes on with it")}

    manifest = directory.admit(program(SAME), 8, 2)

    assert manifest == directory.load()
    assert manifest.layouts["orders"] == {
        "agg": [{"n": "Count()", "spent": "Sum(amount)"}],
        "tumbling_window_5000": [{"n": "Count()", "last": "Reduce(<lambda>, <lambda>)"}],
        "tumbling_window_7000_sum": [{"value": "Sum()"}],
        "visit_session_window_30": [{"n": "Count()", "odd": "Sum(amount (EUR), net)"}],
    }
    assert manifest.settings["orders"]["visit_session_window_30"] == (
        "session_window_30, closed by watermark"
    )
    stored = json.loads(Path(directory.folder.path, "manifest.json").read_text())
    assert stored["format"] == FORMAT == 2


def test_an_old_state_directory_takes_a_new_aggregation(directory):
    plan = program({"most": Max("amount"), **SAME})

    assert verdicts(directory, plan)["agg"] == ("migrate", "most starts empty beside n, spent")

    manifest = directory.admit(plan, 8, 2)
    old = {"n": "Count()", "spent": "Sum(amount)"}
    assert manifest.layouts["orders"]["agg"] == [old, {**old, "most": "Max(amount)"}]
    assert manifest.at(1).layouts["orders"]["agg"] == [old]
    assert manifest.at(0).layouts == {"orders": {"agg": [old]}}
    assert manifest.at(0).settings == {"orders": {"agg": "running totals"}}
    assert manifest.at(None).layouts == {}


def test_a_layout_that_no_batch_was_committed_with_is_forgotten(directory):
    directory.admit(program({**SAME, "most": Max("amount")}), 8, 2)

    manifest = directory.admit(program({**SAME, "least": Max("amount")}), 8, 2)

    assert [list(layout) for layout in manifest.layouts["orders"]["agg"]] == [
        ["n", "spent"],
        ["n", "spent", "least"],
    ]


@pytest.mark.parametrize(
    ("agg", "lost"),
    [
        ({"n": Count()}, "spent was Sum(amount) and is no longer there"),
        ({"n": Count(), "spent": Sum("price")}, "spent was Sum(amount) and is now Sum(price)"),
    ],
)
def test_what_would_lose_an_aggregation_is_refused_by_name(directory, agg, lost):
    with pytest.raises(StateError) as error:
        directory.admit(program(agg), 8, 2)

    assert str(error.value) == (
        "the state orders/agg of group 'shop' would lose what it has aggregated in spent:\n"
        f"  {lost}\n"
        "Fix: put it back, or have it dropped: millpond check --accept APP.py, or "
        'Application(on_state_change="accept"); an aggregation under a new field starts empty '
        "and needs neither."
    )


def test_where_an_old_text_cannot_be_taken_apart_any_difference_is_refused(directory):
    changed = {"n": Count(), "odd": Sum("amount (EUR), net"), "more": Count()}

    says, why = verdicts(directory, program(SAME, changed))["visit_session_window_30"]

    assert says == "refuse"
    assert "n=Count(), odd=Sum(amount (EUR), net)\nand the program now asks for" in why


def test_an_old_text_that_cannot_be_taken_apart_has_a_layout_from_the_next_run_on(directory):
    directory.admit(program(SAME), 8, 2)
    commit(directory, 2)
    changed = {"n": Count(), "odd": Sum("amount (EUR), net"), "more": Count()}

    found = verdicts(directory, program(SAME, changed))

    assert found["visit_session_window_30"] == ("migrate", "more starts empty beside n, odd")
    assert found["agg"][0] == "reuse"


def test_another_length_or_another_way_to_close_is_still_refused(tmp_path):
    directory = StateDirectory(tmp_path, "g")

    def plan(closing):
        sdf = frame().tumbling_window(10).agg(n=Count())
        return make_plan(sdf.final(closing)._graph)

    from millpond.storage.compare import compare

    manifest = directory.admit(plan("watermark"), 8, 1)

    (verdict,) = compare(manifest, plan("key"), "g")
    assert verdict.says == "refuse"
    assert "tumbling_window_10, closed by watermark\nand the program" in verdict.why


def test_a_rename_is_proposed_only_where_nothing_would_be_lost():
    from millpond.storage.claims import claims_of
    from millpond.storage.compare import compare
    from millpond.storage.manifest import Manifest

    def plan(name, **fields):
        return make_plan(frame().agg(name=name, **fields)._graph)

    known = Manifest(8, 1)
    known.say(claims_of(plan("old", n=Count(), s=Sum("a")), known.claims()), None)

    fits, loses = (
        next(v for v in compare(known, asked, "g") if v.says == "refuse").fix
        for asked in (plan("new", n=Count(), s=Sum("a"), m=Max("a")), plan("new", n=Count()))
    )
    assert "millpond state rename APP.py list/old list/new" in fits
    assert "state rename" not in loses


@pytest.mark.parametrize("signature", ["a, b=c", "Own(x=1)", "f(g(x))"])
def test_a_signature_may_be_any_text(tmp_path, signature):
    directory = StateDirectory(tmp_path, "g")
    plan = make_plan(frame().agg(x=Strange(signature), n=Count())._graph)

    manifest = directory.admit(plan, 8, 1)

    assert (
        directory.load().layouts
        == manifest.layouts
        == {"list": {"agg": [{"x": signature, "n": "Count()"}]}}
    )
