"""A program is killed before each change of a file, and goes on from what that leaves.

What is on the disk before a change is copied (`file_events.py`), and the program is started on the
copy. In the end nothing is lost, nothing is doubled, and nothing is stuck: outputs, late records,
dead letters, deliveries to a sink, state and timers are those of a run that nobody disturbed.

A power cut leaves less than a kill: then it is so after the one command that the error of the next
start names, if there is one. `make test` goes on from some of the copies, `make soak` from all.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from file_events import SOURCE, Event, Image, Recorder
from machine import compiled

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).parent / "programs" / "orders.py"

# How many of the changes of one kind count; 0: those of `FIRST` only.
EACH = int(os.environ.get("MILLPOND_CRASHES", "0"))

# In a short run, before the first change of these kinds only. They stand for the steps of a batch.
FIRST = (
    "run create run/state/g/generations/N/.metadata.ID.tmp",
    "run rename run/state/g/generations/N/offsets/N",
    "run rename run/state/g/generations/N/state/N/N/N_ID.changelog",
    "run rename run/topics/g-out/N/N-N.arrow",
    "run rename run/g-sink/deliveries-N-ID",
    "run rename run/state/g/generations/N/commits/N",
)

# The batches of which all changes count: the first two, and one in the middle.
COUNTED = (-1, 0, 1, 3)

# Of how many changes of one kind there are copies that are cheap to tell from others.
HALVES = 2

# Copies that one process goes on from: Spark's memory fills with what it remembers of queries.
AT_A_TIME = 15


# What a power cut makes of files that were not synced; of a program that runs, and of a command.
CUTS = ("empty", "missing", "old", "mixed1", "mixed2", "mixed3")
CUTS_OF_COMMANDS = ("missing", "old", "mixed1")


class Sample:
    """Chooses before which changes a copy is made.

    Args:
        phases: The folders in which the program works at those changes.
        kills: In a short run, a kill comes before the first change of these kinds only.
        cuts: And a power cut before the third one of these, or at the end of a command.
    """

    def __init__(self, phases, kills, cuts) -> None:
        self._phases = phases
        self._kills = kills
        self._cuts = cuts
        self._seen: dict[str, int] = {}
        self._batch = -1

    def __call__(self, event: Event) -> tuple[str, ...]:
        if event.phase not in self._phases:
            return ()
        if "/offsets/." in event.path and event.what == "create":
            self._batch = int(Path(event.path).name.lstrip(".").partition(".")[0])
        is_run, is_new = event.phase == "run", event.phase not in self._seen
        seen = self._seen[event.kind] = self._seen.get(event.kind, 0) + 1
        self._seen[event.phase] = 1
        if is_new and not is_run:
            return ("",)  # as it was before the command
        if not EACH:
            is_kill, cut = event.kind in self._kills, self._cuts.get(event.kind)
            is_cut = cut and (seen == 3 or event.what == "end")
            return ("",) * (is_kill and seen == 1) + (cut,) * bool(is_cut)
        if event.what == "end":
            return CUTS
        if seen > EACH or (is_run and self._batch not in COUNTED):
            return ()
        if event.what in ("write", "truncate"):  # half a file, which a power cut leaves, too
            return ("",) if seen <= HALVES else ()
        if is_run:
            return ("", *CUTS)
        return ("", *(CUTS_OF_COMMANDS if seen <= HALVES else ()))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


def watched(library, folder, wanted, *words: str) -> Recorder:
    """Run the program and copy its files where that is wanted."""
    for name in ("work", "images"):
        (folder / name).mkdir()
    recorder = Recorder(folder / "work", folder / "images", wanted)
    command = [sys.executable, str(PROGRAM), words[0], str(recorder.folder), *words[1:]]
    assert recorder.run(command, library, PYTHONPATH=str(PROGRAM.parent.parent)) == 0
    return recorder


def outcomes(folders: list[Path]) -> list:
    """What comes of it when the program goes on in each folder: a result, or an error."""
    variables = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
    for low in range(0, len(folders), AT_A_TIME):
        command = [sys.executable, str(PROGRAM), "go-on", *map(str, folders[low : low + AT_A_TIME])]
        subprocess.run(command, env=variables, check=True)
    return [pickle.loads(f.with_name(f"{f.name}.result").read_bytes()) for f in folders]


def difference(image: Image, found, expected) -> str:
    if isinstance(found, str):
        return f"{image}: {found}"
    parts = [part for part in expected if found[part] != expected[part]]
    said = [f"{part}: {found[part]} and not {expected[part]}"[:2000] for part in parts]
    return "\n".join([str(image), *said])


# A power cut: what was delivered and is not committed yet, and what was just committed.
CUT = {
    "run rename run/state/g/generations/N/commits/N": "old",
    "run create run/state/g/generations/N/offsets/.N.ID.tmp": "mixed1",
}


@pytest.fixture(scope="module")
def run(library, tmp_path_factory):
    """Each copy of one run with what came of it, and what comes of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("run")
    recorder = watched(library, folder, Sample(["run"], FIRST, CUT), "batches")
    (folder / "undisturbed").mkdir()
    folders = [image.folder for image in recorder.made]
    expected, *found = outcomes([folder / "undisturbed", *folders])
    assert isinstance(expected, dict), expected
    assert len(expected["written"]) == 4 and expected["timers"] and expected["sink"]
    return expected, list(zip(recorder.made, found, strict=True))


def test_a_kill_before_any_change_of_a_file_leaves_no_trace(run):
    expected, outcomes = run
    kills = [(image, found) for image, found in outcomes if not image.cut]

    wrong = [difference(image, found, expected) for image, found in kills if found != expected]

    print(f"{len(kills)} crash points: {len(wrong)} wrong")
    assert {image.before.kind for image, _ in kills} >= set(FIRST)
    assert not wrong, "\n\n".join(wrong)


def test_a_power_cut_loses_nothing_that_was_not_synced_in_time(run):
    expected, outcomes = run
    cuts = [(image, found) for image, found in outcomes if image.cut]

    repaired = [found for _, found in cuts if isinstance(found, dict) and found["is repaired"]]
    same = [(i, {**f, "is repaired": False} if isinstance(f, dict) else f) for i, f in cuts]
    wrong = [difference(image, found, expected) for image, found in same if found != expected]

    print(f"{len(cuts)} power cuts: {len(wrong)} wrong, {len(repaired)} needed a repair")
    assert {image.cut for image, _ in cuts} >= set(CUT.values())
    assert not wrong, "\n\n".join(wrong)


# Of a program, nothing but the state changes with these; their outputs are those of a run that
# nobody disturbed.
SAME = ("rewind", "rename", "rescale", "fork", "backup", "repair", "reshape", "cleared", "merge")
SAME += ("accept", "backfill")
CHANGED = ("clear_state", "set", "delete", "restore", "again", "import", "drop")


# What it took to go on is none of the result.
UNAIDED = {"is repaired": False, "is repeated": False}


@pytest.mark.parametrize(
    "commands",
    [("clear_state", "repair", "rewind")] if not EACH else [(name,) for name in SAME + CHANGED],
    ids=" ".join,
)
def test_a_command_that_is_cut_short_leaves_the_old_state_or_the_new(commands, library, tmp_path):
    last = [f"{name} rename {name}/state/g/manifest.json" for name in commands if name != "rewind"]
    sample = Sample(commands, last, {"rewind end ": "missing"})
    recorder = watched(library, tmp_path, sample, "changes", *commands)
    by_name = {name: [i for i in recorder.made if i.before.phase == name] for name in commands}

    folders = [recorder.folder / name for name in commands]
    done = outcomes([*folders, *(image.folder for image in recorder.made)])
    after, found = done[: len(folders)], done[len(folders) :]

    by_image = dict(zip([image.folder for image in recorder.made], found, strict=True))
    wrong = []
    for name, new in zip(commands, after, strict=True):
        old = by_image[by_name[name][0].folder]
        assert isinstance(old, dict) and isinstance(new, dict), (old, new)
        if name in SAME:
            assert {**old, **UNAIDED} == new
        for image in by_name[name]:
            if not is_right(image, by_image[image.folder], old, new):
                wrong.append(difference(image, by_image[image.folder], new))
    assert "rewind" not in commands or [i for i in by_name["rewind"] if i.before.what == "end"]
    kills, cuts = (sum(bool(i.cut) is is_cut for i in recorder.made) for is_cut in (False, True))
    print(f"{commands}: {kills} crash points, {cuts} power cuts, {len(wrong)} wrong")
    print(f"{recorder.same} more images were as one of these")
    assert not wrong, "\n\n".join(wrong)


def is_right(image: Image, found, old, new) -> bool:
    """Whether a start on an image comes to what it may: after a power cut, with one repair."""
    if image.before.what == "end":  # it was done, so no power cut undoes it
        return found == new
    if not image.cut or isinstance(found, str):
        return found in (old, new)
    return {**found, **UNAIDED} in ({**old, **UNAIDED}, {**new, **UNAIDED})
