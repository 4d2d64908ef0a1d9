"""What a run puts into the temporary folder, where everybody may write, and what it finds there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
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

# A file system of its own in place of /tmp, from which nothing may be executed.
NOEXEC = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o noexec tmpfs /tmp && exec "$@"', "sh"]


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


def test_sockets_are_for_this_user_alone_and_what_others_put_there_blocks_nothing(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    for name in ("python", "sockets", "payloads"):
        os.mkfifo(temporary / f"millpond-{name}-x.scratch")
    (temporary / "millpond-sockets-killed.scratch").mkdir()

    found = run(folder, TMPDIR=str(temporary))

    assert found == {"bare": [], "modes": [0o700]}
    left = {path.name for path in temporary.iterdir()}
    assert left == {f"millpond-{name}-x.scratch" for name in ("python", "sockets", "payloads")}


def test_a_program_starts_where_temporary_files_cannot_be_executed(folder):
    is_allowed = subprocess.run([*NOEXEC, "true"], capture_output=True).returncode == 0
    # Who may not mount has this one's other half: no folder for an own Python.
    before = NOEXEC if is_allowed else []

    assert run(folder, *before, TMPDIR="/tmp")["bare"] == []
    assert (folder / "cache" / "millpond" / "tmp").exists() == is_allowed
