"""State of an older program, lifted as it is read."""

import re

import pytest

from millpond.errors import ConfigError, PlanError, StepError
from millpond.program.plan import make_plan
from millpond.testing import LocalEngine, frame


def version_1(value, state):
    state.set("total", state.get("total", 0.0) + value)
    return state.get("total")


def version_2(value, state):
    state.set("cents", state.get("cents", 0) + round(value * 100))
    return dict(sorted((name, state.get(name)) for name in state.keys()))  # noqa: SIM118


def to_cents(values):
    total = values.pop("total")
    return {**values, "cents": round(total * 100)}


def add_currency(values):
    return {**values, "currency": "EUR"}


def engine_of(function, lifts=None, stores=None):
    sdf = frame().apply(function, stateful=True)
    sdf._graph.migrations = lifts or {}
    engine = LocalEngine(sdf, copy_functions=False)
    engine.stores.update(stores or {})
    return engine


def put(engine, records):
    """What comes out for some more records."""
    before = len(engine.values)
    engine.feed(records)
    engine.run()
    return engine.values[before:]


def old_state(records):
    engine = engine_of(version_1)
    put(engine, records)
    return engine.stores


def test_a_key_is_lifted_when_it_is_touched_and_only_once():
    calls = []

    def counted(values):
        calls.append(dict(values))
        return to_cents(values)

    stores = old_state([("a", 1.5), ("b", 2.0)])
    engine = engine_of(version_2, {"default": {1: counted}}, stores)

    assert put(engine, [("a", 1.0), ("a", 1.0)]) == [{"cents": 250}, {"cents": 350}]
    assert put(engine, [("a", 1.0)]) == [{"cents": 450}]
    assert calls == [{"total": 1.5}]
    assert engine.state("b") == {"total": 2.0}  # nobody has touched it


def test_a_key_passes_through_all_versions_it_has_missed():
    stores = old_state([("a", 1.5), ("b", 2.0)])
    second = engine_of(version_2, {"default": {1: to_cents}}, stores)
    put(second, [("a", 1.0)])

    third = engine_of(version_2, {"default": {1: to_cents, 2: add_currency}}, second.stores)

    assert put(third, [("a", 1.0), ("b", 1.0), ("new", 1.0)]) == [
        {"cents": 350, "currency": "EUR"},
        {"cents": 300, "currency": "EUR"},
        {"cents": 100},
    ]
    assert put(third, [("new", 1.0)]) == [{"cents": 200}]  # it was of the newest version at once


def test_a_key_whose_names_are_all_deleted_leaves_nothing():
    def forget(value, state):
        for name in state.keys():  # noqa: SIM118
            state.delete(name)

    stores = old_state([("a", 1.5)])
    engine = engine_of(forget, {"default": {1: to_cents}}, stores)

    put(engine, [("a", 0)])

    assert engine.state("a") == {}
    assert all(len(blobs.blobs) <= 1 for blobs in engine.stores.values())  # the head of the group


def test_a_migration_that_fails_fails_the_record_and_changes_nothing():
    def broken(values):
        raise KeyError("no")

    stores = old_state([("a", 1.5)])
    engine = engine_of(version_2, {"default": {1: broken}}, stores)

    with pytest.raises(StepError, match="KeyError"):
        put(engine, [("a", 1.0)])
    assert engine.state("a") == {"total": 1.5}


def test_what_a_migration_gives_must_be_a_dict():
    stores = old_state([("a", 1.5)])
    engine = engine_of(version_2, {"default": {1: lambda values: None}}, stores)

    with pytest.raises(StepError, match="not a dict"):
        put(engine, [("a", 1.0)])


def test_migrations_that_cannot_be_used_are_refused():
    with pytest.raises(PlanError, match=r"no such store(.|\n)*Fix:"):
        engine_of(version_2, {"other": {1: to_cents}})
    with pytest.raises(PlanError, match=r"none from \[1\](.|\n)*Fix:"):
        engine_of(version_2, {"default": {2: to_cents}})


def test_a_migration_of_several_stores_of_one_name_says_for_which_it_is():
    def plan_of(migrations):
        sdf = frame(name="clicks").apply(version_2, stateful=True)
        sdf.group_by("user").apply(version_2, stateful=True)
        sdf._graph.migrations = migrations
        return make_plan(sdf._graph)

    with pytest.raises(PlanError, match=r"clicks/default, clicks/user/default(.|\n)*Fix:") as found:
        plan_of({"default": {1: to_cents}})

    named = re.search(r"@app\.migration\('([^']+)'", str(found.value))[1]
    assert plan_of({named: {1: to_cents}}).versions() == {"clicks": {"default": 2}}


def test_the_decorator_refuses_what_makes_no_sense(tmp_path):
    import millpond as mp

    app = mp.Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)
    app.migration("default", from_version=1)(to_cents)

    with pytest.raises(ConfigError, match="already"):
        app.migration("default", from_version=1)
    with pytest.raises(ConfigError, match="from_version"):
        app.migration("default", from_version=0)
