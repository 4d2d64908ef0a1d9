"""Every command that a refusal names is followed to a running program with the right state."""

from __future__ import annotations

import re

import pytest
from changing import COUNT, ways_out

from millpond.errors import StateError

pytestmark = pytest.mark.spark

SUM = "clicks.stateful_map('sum', fold)\n"
USER = "clicks.group_by('user').stateful_map('sum', fold)\n"
OLD = "clicks.stateful_map('old', fold)\n"
MIGRATION = """
@app.migration("clicks/default", from_version=1)
def lift(values):
    return {"n": 100 * values["n"]}
"""


def does(programs, way):
    for words in way:
        done = programs.does(words)
        assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"


def refused(programs, words):
    """The message of a command that is refused."""
    error = programs.does(words).exception
    assert isinstance(error, StateError)
    return str(error)


def test_keys_in_another_form_start_empty_with_all_stores_of_their_scope(programs, tmp_path):
    programs.write(COUNT + SUM + USER + OLD)
    programs.send(3)
    programs.run()
    programs.write(COUNT + SUM + USER)  # an orphan now, of the same scope
    programs.send(1)
    programs.run()
    programs.write(COUNT + SUM + USER, typed_keys=True)
    message = programs.refusal()
    assert "the keys of 'clicks' in group 'g' were str and are now typed" in message
    assert programs.verdicts()["clicks/user/sum"] == "reuse"
    ways = ways_out(message)
    assert [way and way[0].split()[:2] for way in ways] == [
        ["check", "--accept"],
        None,
        ["state", "drop"],
    ]

    for number, way in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        option = {"on_state_change": "accept"} if way is None else {}
        copy.write(COUNT + SUM + USER, typed_keys=True, **option)
        does(copy, way or [])
        copy.send(2)
        copy.run()

        assert copy.kept() == {
            "clicks/default": {"n": 2},
            "clicks/sum": {"": 2},
            "clicks/user/sum": {"": 6},
        }
        copy.write(COUNT + SUM + USER + OLD, typed_keys=True)
        assert copy.verdicts()["clicks/old"] == "new"


def test_an_older_program_runs_again_once_the_state_was_rewound_to_before_the_newer_one(programs):
    programs.write(COUNT)
    programs.send(3)
    programs.run()
    programs.write(COUNT + MIGRATION)
    for count in (1, 1):
        programs.send(count)
        programs.run()
    assert programs.kept() == {"clicks/default": {"n": 302}}
    programs.write(COUNT)
    message = programs.refusal()
    assert "is of version 2; this program knows versions up to 1" in message

    does(programs, *ways_out(message))
    programs.send(1)
    programs.run()

    assert programs.kept() == {"clicks/default": {"n": 6}}
    assert set(programs.verdicts().values()) == {"reuse"}
    programs.write(COUNT + MIGRATION)
    programs.send(1)
    programs.run()
    assert programs.kept() == {"clicks/default": {"n": 601}}


def test_only_a_backup_goes_back_to_before_another_group_by(programs, tmp_path):
    programs.write(COUNT)
    programs.send(3)
    programs.run()
    assert programs.does(f"state backup APP.py {tmp_path / 'backup'}").exit_code == 0
    programs.write("counts = " + COUNT + "counts.group_by('user').stateful_map('sum', fold)\n")
    programs.send(2)
    programs.run()
    message = refused(programs, "state rewind APP.py --to 7")
    command = re.search(r"millpond (state restore APP\.py PATH)\.", message)[1]

    programs.write(COUNT)
    does(programs, [command.replace("PATH", str(tmp_path / "backup"))])
    assert programs.kept() == {"clicks/default": {"n": 3}}
    programs.send(1)
    programs.run()

    assert programs.kept() == {"clicks/default": {"n": 6}}


MOVES = {
    "an aggregation is not there": (
        'clicks.agg(name="a", n=mp.Count(), most=mp.Max("n"))\n',
        'clicks.agg(name="b", n=mp.Count())\n',
        "clicks/a clicks/b",
        "clicks/b has no most, so clicks/a would lose what it has there",
        "clicks/b",
        {"n": 2},
    ),
    "keys are of another kind": (
        SUM,
        USER,
        "clicks clicks/user",
        "the keys of clicks/sum are str, and those of clicks/user/sum are typed",
        "clicks/user/sum",
        {"": 2},
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_state_that_cannot_be_moved_may_be_left_or_dropped(programs, tmp_path, move):
    before, after, names, why, store, values = MOVES[move]
    programs.write(before)
    programs.send(3)
    programs.run()
    old = set(programs.kept())
    programs.write(after)
    assert "state rename" not in programs.refusal()
    message = refused(programs, f"state rename APP.py {names}")
    assert why in message
    ways = ways_out(message)
    assert [way[0].split()[:2] for way in ways] == [["check", "--accept"], ["state", "drop"]]

    for number, way in enumerate(ways):
        copy = programs.copy(tmp_path / f"way-{number}")
        copy.write(after)
        does(copy, way)
        copy.send(2)
        copy.run()

        kept = copy.kept()
        assert kept.pop(store) == values
        assert set(kept) == (old if number == 0 else set())
