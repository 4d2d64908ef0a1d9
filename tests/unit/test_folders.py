"""Temporary folders go with the run that made them, or with the next one."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest

from millpond import folders
from millpond.folders import Scratch


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
    lock = folders.fcntl.flock
    seen = []

    def late(descriptor, kind):
        if not seen:  # the other start comes before our lock
            seen.extend(place.iterdir())
            seen[0].rmdir()
        lock(descriptor, kind)

    monkeypatch.setattr(folders.fcntl, "flock", late)
    folder = Scratch("millpond-x-")
    assert folder.path.exists()
    assert folder.path != seen[0]


def test_the_folder_of_a_program_that_was_killed_is_removed_by_the_next(place):
    program = "from millpond.folders import Scratch; import time\n"
    program += "print(Scratch('millpond-x-').path, flush=True); time.sleep(60)"
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        path = running.stdout.readline().strip()
        second = Scratch("millpond-x-")
        assert names(place) == {os.path.basename(path), second.path.name}  # noqa: PTH119
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


def test_the_newest_folders_stay_where_so_many_are_kept(place):
    for age in range(4):
        (place / f"millpond-x-{age}.scratch").mkdir()
        os.utime(place / f"millpond-x-{age}.scratch", (1000 - age, 1000 - age))

    with Scratch("millpond-x-", kept=2) as folder:
        assert names(place) == {"millpond-x-0.scratch", "millpond-x-1.scratch", folder.name}


def test_a_process_that_has_the_lock_keeps_the_folder_without_the_one_that_made_it(place):
    folder = Scratch("millpond-x-")
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[folder.fileno()]) as other:
        folder.hand_over()
        folder.remove()
        Scratch("millpond-x-").remove()
        assert names(place) == {folder.path.name}
        other.communicate(b"\n")

    Scratch("millpond-x-").remove()
    assert names(place) == set()


def test_java_has_a_folder_where_it_may_execute_files(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    with folders.java_folder() as usual:
        assert usual.parent == place
    assert not (place / "cache").exists()

    monkeypatch.setattr(folders, "_is_noexec", lambda folder: folder == place)
    with folders.java_folder() as other:
        assert other.parent == place / "cache" / "millpond" / "tmp"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert folders.java_folder() is None


@pytest.mark.parametrize(
    ("umask", "mode"), [(0, 0o770), (0o002, 0o775), (0o022, 0o755), (0o077, 0o700)]
)
def test_what_stays_is_made_as_the_umask_says_and_never_for_everybody_to_write(place, umask, mode):
    before = os.umask(umask)
    try:
        made = folders.make_folder(place / "state" / "group")
    finally:
        os.umask(before)

    assert [stat.S_IMODE(p.stat().st_mode) for p in (made, made.parent)] == [mode, mode]
    assert folders.make_folder(made) == made
    (place / "file").touch()
    with pytest.raises(FileExistsError):
        folders.make_folder(place / "file")
    with pytest.raises(OSError):
        folders.make_folder(place / "file" / "below")


def test_state_and_topics_are_for_nobody_else_to_write_where_the_umask_is_open(place):
    program = """
import os; os.umask(0)
import millpond as mp
from millpond.storage.directory import StateDirectory
app = mp.Application(state_dir="state", topics_dir="topics", loglevel=None)
app.topic("t")
with app.get_producer() as producer:
    producer.produce("t", b"1")
with StateDirectory("state", "default").held("this test"):
    pass
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=place)

    made = [place / "state", place / "state" / "default", place / "topics" / "t"]
    assert [stat.S_IMODE(folder.stat().st_mode) & 0o007 for folder in made] == [0, 0, 0]


def test_a_folder_is_removed_once(place):
    folder = Scratch("millpond-x-")
    folder.remove()
    folder.remove()

    assert names(place) == set()
