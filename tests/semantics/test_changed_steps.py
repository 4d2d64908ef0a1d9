"""A changed program on the state of the one before: the local engine refuses what Spark refuses."""

import pytest

from millpond import Count, Max
from millpond.errors import StateError
from millpond.testing import LocalEngine, frame


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


def fold(key, value, state):
    return (state or 0) + 1, (state or 0) + 1


def named(name):
    return lambda sdf: sdf.stateful_map(name, fold)


def window(ms, strategy="watermark"):
    return lambda sdf: sdf.tumbling_window(ms).count().current(closing_strategy=strategy)


def run(program, after=None, records=2, **options):
    """Run a program on the state of another one; return the engine."""
    engine = LocalEngine(program(frame()), after=after, **options)
    engine.feed([("ann", {"v": number}, 10) for number in range(records)])
    engine.run()
    return engine


REFUSED = {
    "a step": (named("a"), named("b"), "list/b"),
    "another length of a window": (window(1_000), window(2_000), "list/tumbling_window_2000_count"),
    "a window that closes otherwise": (window(1_000), window(1_000, "key"), "by key"),
    "a group_by": (
        lambda sdf: sdf.group_by("v").apply(count, stateful=True),
        lambda sdf: sdf.group_by("v", name="w").apply(count, stateful=True),
        "list/w/default",
    ),
    "values instead of an aggregation": (
        lambda sdf: sdf.agg(name="a", n=Count()),
        named("a"),
        "values that a function sets",
    ),
    "no state": (named("a"), lambda sdf: sdf.apply(len), "keeps no state"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_spark_refuses_is_refused_and_starts_empty_once_accepted(change):
    before, after, named_in_message = REFUSED[change]
    first = run(before)
    fix = r'\nFix: change the program back, or LocalEngine\(on_state_change="accept"\)'

    with pytest.raises(StateError, match=f"{named_in_message}(.|\n)*{fix}"):
        run(after, first)
    accepted = run(after, first, on_state_change="accept")

    assert accepted.values == run(after).values


def test_other_steps_keep_their_state_and_what_is_dropped_does_not_come_back():
    both = run(lambda sdf: sdf.update(count, stateful=True).agg(name="a", n=Count()))
    changed = run(
        lambda sdf: named("a")(sdf.update(count, stateful=True)), both, on_state_change="accept"
    )
    again = run(
        lambda sdf: sdf.update(count, stateful=True).agg(name="a", n=Count()),
        changed,
        on_state_change="accept",
    )

    assert both.values == [{"n": 1}, {"n": 2}]
    assert changed.values == [1, 2]
    assert again.values == [{"n": 1}, {"n": 2}]
    assert again.state("ann") == {"n": 6}


def test_a_step_that_comes_back_finds_its_state_once_accepted_and_an_orphan_blocks_no_other():
    def beside(sdf, *names):
        for name in names:
            named(name)(sdf)
        return sdf.apply(count, stateful=True)

    engine = run(lambda sdf: beside(sdf, "users"))
    engine = run(beside, engine)
    engine = run(lambda sdf: beside(sdf, "shops"), engine)
    with pytest.raises(StateError, match=r"users; what came since is not in it(.|\n)*Fix:"):
        run(lambda sdf: beside(sdf, "shops", "users"), engine)
    engine = run(lambda sdf: beside(sdf, "shops", "users"), engine, on_state_change="accept")

    assert engine.state("ann", "users") == {"": 4}
    assert engine.state("ann", "shops") == {"": 4}
    assert engine.state("ann") == {"n": 8}


def test_a_program_that_never_ran_has_said_nothing():
    first = run(lambda sdf: sdf.agg(name="a", n=Count(), most=Max("v")))
    idle = LocalEngine(frame().agg(name="a", n=Count()), after=first, on_state_change="accept")

    engine = run(lambda sdf: sdf.agg(name="a", n=Count(), most=Max("v")), idle, 1)

    assert engine.values == [{"n": 3, "most": 1}]
    with pytest.raises(StateError, match=r"lose what it has aggregated in most(.|\n)*Fix:"):
        run(lambda sdf: sdf.agg(name="a", n=Count()), idle)
