"""The command, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import millpond as mp

app = mp.Application(consumer_group="cli", auto_offset_reset="earliest")

def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return {"n": state.get("n")}

app.dataframe(app.topic("in")).apply(count, stateful=True).to_topic(app.topic("out"))
"""


def millpond(folder, *arguments, text=None):
    return subprocess.run(
        [sys.executable, "-m", "millpond.cli", *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_write_run_and_read_from_the_command_line(tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    lines = '{"user": "a"}\n{"user": "b"}\n{"user": "a"}\n'

    wrote = millpond(tmp_path, "topics", "write", "in", "--key-field", "user", text=lines)
    explained = millpond(tmp_path, "explain", "app.py")
    ran = millpond(tmp_path, "run", "app.py", "--drain")
    read = millpond(tmp_path, "topics", "read", "out")
    listed = millpond(tmp_path, "topics", "ls")

    assert wrote.stdout == "3 records written to in.\n"
    assert "apply count   state in/default" in explained.stdout
    assert "app.py:10" in explained.stdout
    assert ran.returncode == 0, ran.stderr
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(r["key"], r["value"]["n"]) for r in records] == [("a", 1), ("b", 1), ("a", 2)]
    assert "out" in listed.stdout


def test_a_file_without_an_application_is_a_clear_error(tmp_path):
    (tmp_path / "app.py").write_text("x = 1\n")

    ran = millpond(tmp_path, "run", "app.py")

    assert ran.returncode == 1
    assert "ConfigError" in ran.stderr
    assert "0 applications" in ran.stderr
    assert "Fix:" in ran.stderr
    assert "Traceback" not in ran.stderr
