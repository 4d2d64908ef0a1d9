"""A program is killed before each change of a file, and goes on from what that leaves.

What is on the disk before a change is copied (`file_events.py`), and the program is started on the
copy. In the end nothing is lost, nothing is doubled, and nothing is stuck: outputs, late records,
dead letters, deliveries to a sink, state and timers are those of a run that nobody disturbed.

`make test` goes on from some of the copies, `make soak` from all of them.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from file_events import Event, Image, Recorder, shim

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).parent / "programs" / "orders.py"

# How many of the changes of one kind count; 0: those of `FIRST` only.
EACH = int(os.environ.get("MILLPOND_CRASHES", "0"))

# In a short run, before the first change of these kinds only. They stand for the steps of a batch.
FIRST = (
    "run create run/state/g/generations/N/.metadata.ID.tmp",
    "run rename run/state/g/generations/N/offsets/N",
    "run rename run/state/g/generations/N/state/N/N/N_ID.changelog",
    "run rename run/topics/g-out/N/N.arrow",
    "run rename run/g-sink/deliveries-N-ID",
    "run rename run/state/g/generations/N/commits/N",
)

# The batches of which all changes count: the first two, and one in the middle.
COUNTED = (-1, 0, 1, 3)

# Copies that one process goes on from: Spark's memory fills with what it remembers of queries.
AT_A_TIME = 15


class Sample:
    """Chooses before which changes a copy is made.

    Args:
        phases: The folders in which the program works at those changes.
        first: In a short run, before changes of these kinds only.
        number: Before which of those: the first, the second.
    """

    def __init__(self, phases, first, number=1) -> None:
        self._phases = phases
        self._first = first
        self._number = number
        self._seen: dict[str, int] = {}
        self._batch = -1

    def __call__(self, event: Event) -> bool:
        if event.phase not in self._phases:
            return False
        if "/offsets/." in event.path and event.what == "create":
            self._batch = int(Path(event.path).name.lstrip(".").partition(".")[0])
        is_counted = event.phase != "run" or self._batch in COUNTED
        is_new = event.phase not in self._seen
        seen = self._seen[event.kind] = self._seen.get(event.kind, 0) + 1
        self._seen[event.phase] = 1
        if is_new and event.phase != "run":
            return True  # as it was before the command
        if EACH:
            return is_counted and seen <= EACH
        return event.kind in self._first and seen == self._number


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return shim(tmp_path_factory.mktemp("shim"))


def watched(library, folder, wanted, *words: str, cuts=("",)) -> Recorder:
    """Run the program and copy its files where that is wanted."""
    for name in ("work", "images"):
        (folder / name).mkdir()
    recorder = Recorder(folder / "work", folder / "images", wanted, cuts)
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


def test_a_kill_before_any_change_of_a_file_leaves_no_trace(library, tmp_path):
    recorder = watched(library, tmp_path, Sample(["run"], FIRST), "batches")
    (tmp_path / "undisturbed").mkdir()

    expected, *found = outcomes(
        [tmp_path / "undisturbed", *(image.folder for image in recorder.made)]
    )

    assert isinstance(expected, dict), expected
    assert all(expected["written"].values()) and expected["timers"] and expected["sink"]
    wrong = [
        difference(image, one, expected)
        for image, one in zip(recorder.made, found, strict=True)
        if one != expected
    ]
    print(f"{len(found)} crash points of {len(recorder.events)} changes: {len(wrong)} wrong")
    assert len(found) >= len(FIRST)
    assert not wrong, "\n\n".join(wrong)


# After a power cut: what was delivered and not committed yet, and what was just committed.
CUT = (
    "run rename run/state/g/generations/N/commits/N",
    "run create run/state/g/generations/N/offsets/.N.ID.tmp",
)


def test_a_power_cut_loses_nothing_that_was_not_synced_in_time(library, tmp_path):
    cuts = ("empty", "missing", "mixed") if EACH else ("mixed",)
    recorder = watched(library, tmp_path, Sample(["run"], CUT, 3), "batches", cuts=cuts)
    (tmp_path / "undisturbed").mkdir()

    expected, *found = outcomes(
        [tmp_path / "undisturbed", *(image.folder for image in recorder.made)]
    )

    same = [one if isinstance(one, str) else {**one, "is repaired": False} for one in found]
    wrong = [
        difference(image, one, expected)
        for image, one in zip(recorder.made, same, strict=True)
        if one != expected
    ]
    repaired = sum(one["is repaired"] for one in found if isinstance(one, dict))
    print(f"{len(found)} power cuts: {len(wrong)} wrong, {repaired} needed a repair")
    assert found
    assert not wrong, "\n\n".join(wrong)


# Of a program, nothing but the state changes with these; their outputs are those of a run that
# nobody disturbed.
SAME = ("rewind", "rename", "rescale", "fork", "backup", "repair")
CHANGED = ("clear_state", "set", "delete", "restore")


@pytest.mark.parametrize(
    "commands",
    [("clear_state", "repair")] if not EACH else [(name,) for name in SAME + CHANGED],
    ids=" ".join,
)
def test_a_kill_inside_a_state_command_leaves_the_old_state_or_the_new(commands, library, tmp_path):
    last = [f"{name} rename {name}/state/g/manifest.json" for name in commands]
    recorder = watched(library, tmp_path, Sample(commands, last), "changes", *commands)
    by_name = {name: [i for i in recorder.made if i.before.phase == name] for name in commands}

    folders = [recorder.folder / name for name in commands]
    after, found = outcomes(folders), outcomes([image.folder for image in recorder.made])

    by_image = dict(zip([image.folder for image in recorder.made], found, strict=True))
    wrong = []
    for name, new in zip(commands, after, strict=True):
        old = by_image[by_name[name][0].folder]
        assert isinstance(old, dict) and isinstance(new, dict), (old, new)
        if name in SAME:
            assert {**old, "is repaired": False} == new
        for image in by_name[name]:
            if by_image[image.folder] not in (old, new):
                wrong.append(difference(image, by_image[image.folder], new))
    print(f"{commands}: {len(found)} crash points, {len(wrong)} wrong")
    assert not wrong, "\n\n".join(wrong)
