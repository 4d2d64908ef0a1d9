"""SIGTERM as service managers send it: to the group of the program, or to all its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

_PROGRAM = """
import time
import millpond as mp

def count(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    if value == 3:
        print("in batch", flush=True)
        time.sleep(3)
    return n

app = mp.Application(consumer_group="g", state_dir="state", topics_dir="topics",
                     max_records_per_batch=2, master="local[1]")
sdf = app.dataframe(source=mp.ListSource([1, 2, 3, 4, 5, 6], "in"))
sdf.apply(count, stateful=True).to_topic(app.topic("out"))
app.run()
print([record.value for record in app.get_consumer().read("out")])
"""


def descendants(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            continue
        if parent == pid:
            found += [int(stat.parent.name), *descendants(int(stat.parent.name))]
    return found


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def in_batch(program: subprocess.Popen[str]) -> list[str]:
    lines = []
    for line in program.stderr:
        lines.append(line)
        if line == "in batch\n":
            break
    return lines


def outputs_after_another_run(folder: Path) -> list[int]:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_sigterm_for_the_group_of_processes_stops_after_the_batch(tmp_path):
    with start(tmp_path) as program:
        lines = in_batch(program)
        os.killpg(program.pid, signal.SIGTERM)
        _, rest = program.communicate(timeout=60)

    assert program.returncode == 0, rest
    assert "Traceback" not in "".join(lines) + rest
    assert "stopped  ·  4 records" in rest


def test_sigterm_for_every_process_loses_nothing_and_shows_no_stack(tmp_path):
    with start(tmp_path) as program:
        lines = in_batch(program)
        for pid in [*descendants(program.pid), program.pid]:
            with suppress(ProcessLookupError):  # it ends with another one
                os.kill(pid, signal.SIGTERM)
        _, rest = program.communicate(timeout=60)

    assert "Traceback" not in "".join(lines) + rest
    if program.returncode:  # else other workers were there in time, and the batch is committed
        assert program.returncode == 128 + signal.SIGTERM, rest
        assert "ending without the batch: Spark's processes have ended: " in rest
    assert outputs_after_another_run(tmp_path) == [1, 2, 3, 4, 5, 6]
