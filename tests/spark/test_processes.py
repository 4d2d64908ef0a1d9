"""How many processes a program has."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

_PROGRAM = """
import os, sys
from pathlib import Path
import millpond as mp
from millpond import admin

def add(value, state):
    state.set("n", state.get("n", 0) + value)
    return state.get("n")

def fork_servers():
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue
        found += parent == os.getpid() and b"millpond.spark.internals.fork_server" in command
    return found

for number in range(2):
    app = mp.Application(
        consumer_group="g", state_dir="state", topics_dir="topics", loglevel=None
    )
    sdf = app.dataframe(source=mp.ListSource([("a", 1)] * (number + 1), "in"))
    sdf.apply(add, stateful=True)
    app.run()
with admin.open(app) as state:
    print(state.get("a")["n"], fork_servers())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_two_runs_and_a_look_at_state_share_one_fork_server(tmp_path):
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.split() == ["2", "1"], done.stderr
