"""What a run puts into the temporary folder, where everybody may write, and what it finds there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, stat, tempfile
from pathlib import Path

import millpond as mp

os.umask(0)
app = mp.Application(consumer_group="tmp", state_dir="state", topics_dir="topics", loglevel=None)


def look(value, state):
    state.set("n", state.get("n", 0) + value)
    temporary = Path(tempfile.gettempdir())
    sockets = [path for path in temporary.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
    modes = {stat.S_IMODE(path.parent.stat().st_mode) for path in sockets}
    return {"bare": [str(p) for p in sockets if p.parent == temporary], "modes": list(modes)}


app.dataframe(source=[1]).apply(look, stateful=True)
print(json.dumps(app.run()[0]))
"""

ROOT = Path(__file__).parents[2]

# A file system of its own in place of /tmp, from which nothing may be executed. Where the project
# itself is in /tmp, it can be seen there all the same.
MOUNT = "mount -t tmpfs -o noexec tmpfs /tmp"
if ROOT.is_relative_to("/tmp"):
    beside = '"$(mktemp -d -p /var/tmp)"'
    MOUNT = f"kept={beside}; mount --bind {ROOT} $kept && {MOUNT} && mkdir -p {ROOT} && " + (
        f"mount --move $kept {ROOT}; rmdir $kept"
    )
NOEXEC = ["unshare", "-m", "sh", "-c", f'{MOUNT}; exec "$@"', "sh"]


@pytest.fixture
def folder():
    """A folder that is not in /tmp, and has a short name, for the sockets."""
    path = Path(tempfile.mkdtemp(prefix="mp", dir="/var/tmp"))
    (path / "app.py").write_text(PROGRAM)
    yield path
    shutil.rmtree(path)


def run(folder, *before, **variables):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    environment.pop("PYSPARK_PYTHON", None)
    ran = subprocess.run(
        [*before, sys.executable, "app.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def left_in(temporary, but=frozenset()):
    """What is left: Java ends a moment after the program, and removes its folder then."""
    deadline = time.monotonic() + 60
    while True:
        left = {path.name for path in temporary.iterdir()}
        if left == but or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def test_sockets_are_for_this_user_alone_and_what_others_put_there_blocks_nothing(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    for name in ("python", "sockets", "payloads"):
        os.mkfifo(temporary / f"millpond-{name}-x.scratch")
    (temporary / "millpond-sockets-killed.scratch").mkdir()

    found = run(folder, TMPDIR=str(temporary))

    assert found == {"bare": [], "modes": [0o700]}
    planted = {f"millpond-{name}-x.scratch" for name in ("python", "sockets", "payloads")}
    assert left_in(temporary, planted) == planted


def test_a_program_starts_where_temporary_files_cannot_be_executed(folder):
    is_allowed = subprocess.run([*NOEXEC, "true"], capture_output=True).returncode == 0
    # Who may not mount has this one's other half: no folder for an own Python.
    before = NOEXEC if is_allowed else []

    assert run(folder, *before, TMPDIR="/tmp")["bare"] == []
    assert (folder / "cache" / "millpond" / "tmp").exists() == is_allowed


KILLED = """
import os, sys, time
import millpond as mp

app = mp.Application(consumer_group="tmp", topics_dir="topics", loglevel=None, persistence="none")
waits = sys.argv[1] == "wait"


def wait(value, state):
    state.set("n", value)
    if waits and value == 2:
        print("in a batch", flush=True)
        time.sleep(200)
    return value


source = mp.ListSource([1, 2], "in")
app.dataframe(source=source).apply(wait, stateful=True)
print(app.run(), flush=True)
"""


def children(process):
    """The processes below one, itself included."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)] = int(status[1])
        except OSError:  # it has ended
            continue
    found = {process}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_the_next_start_removes_what_a_killed_program_left(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    (folder / "app.py").write_text(KILLED)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "app.py", "wait"], cwd=folder, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        while "in a batch" not in program.stderr.readline():
            assert program.poll() is None
        for pid in children(program.pid):  # all at once, as when the machine has no memory left
            os.kill(pid, signal.SIGKILL)
    left = list(temporary.iterdir())
    assert {path.name.rpartition("-")[0] for path in left} >= {
        *("millpond-java", "millpond-python", "millpond-sockets", "millpond-state"),
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in left} == {0o700}
    assert list(temporary.glob("millpond-java-*/*rocksdb*"))

    ran = subprocess.run(
        [sys.executable, "app.py", "go"], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=240,
    )  # fmt: skip

    assert ran.stdout == "[1, 2]\n", ran.stderr
    assert left_in(temporary) == set()
