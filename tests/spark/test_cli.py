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
        [sys.executable, "-m", "millpond.cli.main", *arguments],
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


def test_an_archive_that_is_no_good_is_not_in_the_way(tmp_path, monkeypatch):
    from millpond.spark.internals.class_archive import archive_file

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = archive_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not an archive" * 1000)
    (tmp_path / "app.py").write_text(PROGRAM)
    millpond(tmp_path, "topics", "write", "in", text='{"user": "a"}\n')

    ran = millpond(tmp_path, "run", "app.py", "--drain")

    assert ran.returncode == 0, ran.stderr
    assert "cds" not in ran.stderr and "archive" not in ran.stderr


@pytest.mark.soak
def test_a_warm_start_uses_what_was_made(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = millpond(tmp_path, "warmup")
    again = millpond(tmp_path, "warmup")
    (tmp_path / "app.py").write_text(PROGRAM + SHOW_SHARED)
    shown = millpond(tmp_path, "run", "app.py", "--drain")

    assert "made in" in made.stdout, made
    assert again.returncode == 0
    assert "shared classes: yes" in shown.stderr + shown.stdout, shown


SHOW_SHARED = """
import millpond.spark.session as session

opened = session.open_session

def fake_start(*arguments, **named):
    made = opened(*arguments, **named)
    java = made.sparkContext._jvm.java.lang
    beans = java.management.ManagementFactory
    options = beans.getRuntimeMXBean().getInputArguments().toString()
    print("shared classes:", "yes" if "SharedArchiveFile" in options else "no")
    return made

session.open_session = fake_start
"""


PACKAGE = {
    "shop/__init__.py": "",
    "shop/names.py": "from shop.parts.sizes import large\ndef size(v):\n    return large(v)\n",
    "shop/parts/__init__.py": "from .. import names\n",
    "shop/parts/sizes.py": "LIMIT = 2\ndef large(value):\n    return value['n'] >= LIMIT\n",
    "shop/apps/__init__.py": "",
    "shop/apps/json.py": """
import json
from ..names import size
from shop.parts import sizes
"""
    + PROGRAM
    + """
def show(value):
    return json.dumps([value["n"], size(value), sizes.LIMIT])

def make_app():
    shown = app.dataframe(app.topic("numbers")).apply(show)
    shown.to_topic(app.topic("shown"))
    return app

if __name__ != "shop.apps.json":
    make_app()
app.run(timeout=0.1)
raise Exception("after the run")
""",
}


def test_functions_of_a_package_run_in_workers(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    millpond(tmp_path, "topics", "write", "numbers", text='{"n": 1}\n{"n": 3}\n')
    ran = millpond(tmp_path, "run", "shop.apps.json:make_app", "--drain")
    millpond(elsewhere, "topics", "write", "in", text='{"n": 1}\n')
    of_file = millpond(elsewhere, "run", "../shop/apps/json.py", "--drain")
    state = millpond(tmp_path, "state", "ls", "shop.apps.json:make_app()", "--json")

    assert ran.returncode == 0, ran.stderr
    assert of_file.returncode == 0, of_file.stderr
    shown = millpond(tmp_path, "topics", "read", "shown").stdout.splitlines()
    assert [json.loads(json.loads(line)["value"]) for line in shown] == [
        [1, False, 2],
        [3, True, 2],
    ]
    assert len(millpond(elsewhere, "topics", "read", "out").stdout.splitlines()) == 1
    assert json.loads(state.stdout)["group"] == "cli"


def test_a_file_that_runs_itself_is_run_once_by_the_command(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "json.py").write_text(PROGRAM + "app.run(drain=True)\n")
    millpond(tmp_path, "topics", "write", "in", text='{"user": "a"}\n')

    ran = millpond(tmp_path, "run", "programs/json.py", "--drain")

    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("Traceback") == 0
    assert len(millpond(tmp_path, "topics", "read", "out").stdout.splitlines()) == 1
