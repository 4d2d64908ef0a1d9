"""Temporary folders go with the run that made them, or with the next one."""

import os
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from millpond.spark import scratch
from millpond.spark.scratch import Scratch


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names(place):
    return {found.name for found in place.iterdir()}


def test_a_start_removes_what_nobody_uses_and_nothing_else(place):
    (place / "millpond-x-old.scratch").mkdir()
    (place / "millpond-x-old.scratch" / "file").write_text("left")
    (place / "millpond-x-others").mkdir()
    running = Scratch("millpond-x-")

    later = Scratch("millpond-x-")

    assert names(place) == {"millpond-x-others", running.path.name, later.path.name}
    running.remove()
    later.remove()
    assert names(place) == {"millpond-x-others"}


def test_a_folder_that_another_start_took_for_left_over_is_made_again(place, monkeypatch):
    lock = scratch.fcntl.flock
    seen = []

    def late(descriptor, kind):
        if not seen:  # the other start comes before our lock
            seen.extend(place.iterdir())
            seen[0].rmdir()
        lock(descriptor, kind)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    folder = Scratch("millpond-x-")
    assert folder.path.exists()
    assert folder.path != seen[0]


def test_the_folder_of_a_program_that_was_killed_is_removed_by_the_next(place):
    program = "from millpond.spark.scratch import Scratch; import time\n"
    program += "print(Scratch('millpond-x-').path, flush=True); time.sleep(60)"
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        told = running.stdout.readline().strip()
        second = Scratch("millpond-x-")
        assert names(place) == {os.path.basename(told), second.path.name}  # noqa: PTH119
        running.send_signal(signal.SIGKILL)
    third = Scratch("millpond-x-")
    assert names(place) == {second.path.name, third.path.name}


@pytest.mark.parametrize("kind", ["fifo", "file", "link", "socket"])
def test_what_others_put_under_such_a_name_neither_blocks_a_start_nor_is_touched(
    place, kind, monkeypatch
):
    planted = place / "millpond-x-planted.scratch"
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "kept").write_text("kept")
    if kind == "fifo":
        os.mkfifo(planted)
    elif kind == "file":
        planted.write_text("")
    elif kind == "link":
        planted.symlink_to(place / "elsewhere")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            monkeypatch.chdir(place)  # the name of a socket must be short
            bound.bind(planted.name)

    folder = Scratch("millpond-x-")

    assert names(place) == {"elsewhere", planted.name, folder.path.name}
    assert (place / "elsewhere" / "kept").read_text() == "kept"
    folder.remove()


def test_java_gets_no_other_folder_where_its_own_may_be_executed(place):
    assert scratch.java_temp(str(place)) == ""


def test_a_folder_is_removed_once(place):
    folder = Scratch("millpond-x-")
    folder.remove()
    folder.remove()

    assert names(place) == set()
