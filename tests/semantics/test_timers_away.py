"""Timers of functions that a program does not have any more wait until there is one again."""

import pytest

from millpond.state.edit import Edit, apply_edits
from millpond.testing import LocalEngine, frame


def timed(*names):
    """A program with functions of these names, each with a timer a second after each record."""

    def program():
        sdf = frame()
        for name in names:

            def function(value, state, name=name):
                if value == name:
                    state.set_timer("later", after=1_000)

            function.__name__ = name
            fired = lambda key, state, timer, name=name: f"{name} {key}"  # noqa: E731
            sdf.apply(function, stateful=True, on_timer=fired)
        sdf.apply(lambda value, state: None, stateful=True)
        return sdf

    return program


def fired(engine):
    return [value for value in engine.values if value is not None]


def run(program, records, after=None):
    engine = LocalEngine(program(), after=after, on_state_change="accept")
    engine.feed(records)
    engine.run()
    return engine


FOLLOW, CHASE, NOBODY = timed("follow"), timed("chase"), timed()
SET = [("ann", "follow", 0)]


@pytest.mark.parametrize("between", [NOBODY, CHASE, timed("chase", "notify")])
@pytest.mark.parametrize("batches", [1, 3])
def test_timers_that_became_due_while_their_function_was_away_fire_when_it_is_back(
    between, batches
):
    away = run(FOLLOW, SET)
    for number in range(batches):
        away = run(between, [("carl", "x", 2_000 + number)], away)
    assert fired(away) == []

    back = run(FOLLOW, [], away)

    assert fired(back) == ["follow ann"]
    assert fired(run(FOLLOW, [("carl", "x", 9_000)], back)) == []


def test_functions_that_are_there_keep_their_timers_while_others_are_away():
    both = run(timed("follow", "chase"), [("ann", "follow", 0), ("ann", "chase", 0)])

    without = run(CHASE, [("carl", "x", 2_000)], both)
    back = run(timed("follow", "chase"), [("carl", "x", 2_100)], without)

    assert fired(without) == ["chase ann"]
    assert fired(back) == ["follow ann"]


def test_what_waits_for_a_function_wakes_no_group_in_every_batch():
    away = run(NOBODY, [("carl", "x", 2_000)], run(FOLLOW, SET))
    batches = len(away.reports)

    for _ in range(3):
        away.run()

    assert len(away.reports) == batches


def test_timers_that_were_given_to_another_function_after_they_were_due_fire_in_it():
    away = run(CHASE, [("carl", "x", 2_000)], run(FOLLOW, SET))

    for store in away.stores.values():
        apply_edits(store, [Edit("rename-timers", None, "follow", new_store="chase")], 8)
    renamed = run(CHASE, [], away)

    assert fired(renamed) == ["chase ann"]
    assert fired(run(CHASE, [("carl", "x", 9_000)], renamed)) == []
