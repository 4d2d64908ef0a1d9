"""A function that hangs, and one that takes its process with it, are named: step and record."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import millpond as mp
from millpond.errors import StepError

pytestmark = pytest.mark.spark

LIST = [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


def counting(make_app, harm, **options) -> mp.Application:
    """An application that comes to harm at the record of value 3: list/0/2, key a."""

    def count(value, state):
        state.set("n", state.get("n", 0) + 1)
        if value == 3:
            harm()
        return state.get("n")

    app = make_app(**options)
    app.dataframe(source=mp.ListSource(LIST, "list")).apply(count, stateful=True)
    return app


def leave():
    import os

    os._exit(3)


def crash():
    import ctypes

    ctypes.string_at(0)


def sleep():
    time.sleep(600)


def hold():
    re.match(r"(a*)*b", "a" * 60)  # backtracks for years, and no other thread may run meanwhile


@pytest.mark.parametrize("harm", [leave, crash])
def test_worker_that_is_lost_twice_is_named_with_step_and_record(make_app, harm):
    app = counting(make_app, harm)

    with pytest.raises(StepError) as raised:
        app.run()

    text = str(raised.value)
    assert re.match(r"apply 'count' \(test_hangs.py:\d+\) lost its worker process twice", text)
    assert "at list/0/2, key 'a'." in text
    assert "Fix: correct the function" in text
    if harm is crash:  # the crash left the line
        assert re.search(r'test_hangs.py", line \d+, in crash', text)


def test_worker_that_is_lost_once_is_replaced(make_app, tmp_path):
    mark = tmp_path / "lost"

    def leave_once():
        if not mark.exists():
            mark.touch()
            leave()

    assert sorted(counting(make_app, leave_once).run()) == [1, 1, 2, 2]


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_function_that_ends_its_process_by_an_exception_fails_on_that_record(make_app, ending):
    def harm():
        raise ending("enough")

    with pytest.raises(
        StepError, match=f"'list', partition 0, offset 2, key 'a': {ending.__name__}"
    ):
        counting(make_app, harm).run()


def test_function_that_lets_nothing_else_run_is_named_with_its_line_and_range(make_app):
    app = counting(make_app, hold, step_timeout=7)

    with pytest.raises(StepError) as raised:
        app.run()

    text = str(raised.value)
    assert re.match(r"apply 'count' \(test_hangs.py:\d+\) has taken \d+ s", text)
    assert "at one of the records list/0/0 to list/0/2 of key group" in text
    assert re.search(r'test_hangs.py", line \d+, in hold', text)


def test_hanging_step_is_logged_and_reported_and_ends_the_run_where_that_is_asked(make_app, caplog):
    app = counting(make_app, sleep, step_timeout=13)
    found = []

    def look():
        while not found:
            found.extend(one for one in app.waiting if one.seconds > 5)
            time.sleep(0.5)

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    with caplog.at_level(logging.WARNING, "millpond"), pytest.raises(StepError) as raised:
        app.run()
    looker.join(1)

    assert re.match(r"apply 'count' \(test_hangs.py:\d+\) is at list/0/2, key 'a'", found[0].what)
    assert re.match(r"test_hangs.py:\d+", found[0].more)
    logged = [text for text in caplog.messages if "is at list/0/2, key 'a' for 1" in text]
    assert len(logged) == 1
    assert "Application(step_timeout=60)" in logged[0]
    text = str(raised.value)
    assert re.match(r"apply 'count' \(test_hangs.py:\d+\) has taken \d+ s", text)
    assert "at list/0/2, key 'a'." in text
    assert re.search(r'test_hangs.py", line \d+, in sleep', text)


def test_hanging_sink_is_reported(make_app):
    found, waits = [], threading.Event()

    def save(records, delivery_id):
        waits.wait(60)

    app = make_app()
    app.dataframe(source=mp.ListSource(LIST, "list")).sink(save)

    def look():
        while not found:
            found.extend(one for one in app.waiting if one.seconds > 1)
            time.sleep(0.2)
        waits.set()

    looker = threading.Thread(target=look)
    looker.start()
    app.run()
    looker.join(1)

    assert re.match(r"waiting for sink 'save' \(test_hangs.py:\d+\)", found[0].what)
    assert [what for what in app.reports[0].waited if "'save'" in what]


_PROGRAM = """
import os, signal, sys, time
import millpond as mp

def stay(value):
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    print("worker", os.getpid(), file=sys.stderr, flush=True)
    while True:
        time.sleep(1)

def save(records, delivery_id):
    print("worker", 0, file=sys.stderr, flush=True)
    time.sleep(600)

app = mp.Application(state_dir="state", topics_dir="topics", master="local[1]", stop_timeout=3)
sdf = app.dataframe(source=mp.ListSource([1], "list"))
sdf = sdf.apply(stay) if sys.argv[1] == "stay" else sdf.sink(save)
app.run()
"""


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.parametrize("where", ["stay", "save"])
def test_one_sigterm_ends_a_run_that_hangs_and_leaves_no_worker(tmp_path, where):
    (tmp_path / "program.py").write_text(_PROGRAM)
    program = subprocess.Popen(
        [sys.executable, "program.py", where], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    said = []
    for line in program.stderr:
        said.append(line)
        if line.startswith("worker"):
            break
    worker = int(said[-1].split()[1])

    program.send_signal(signal.SIGTERM)
    said += program.communicate(timeout=120)[1].splitlines()

    assert program.returncode == 128 + signal.SIGTERM
    assert any("the batch did not end in 3 s, ending without it" in line for line in said), said
    assert not any("Traceback" in line for line in said), said
    deadline = time.monotonic() + 10  # what was killed may take a moment to go
    while worker and lives(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not worker or not lives(worker)
