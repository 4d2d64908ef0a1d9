"""What a program writes to its terminal, when it runs and when it is ended."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

_PROGRAM = """
import logging, time
import millpond as mp

def price(value, state):
    logging.info("seen %s", value)
    logging.warning("price is negative")
    if value == 3:
        print("in batch", flush=True)
        time.sleep(120)
    return value

app = mp.Application(consumer_group="g", state_dir="state", topics_dir="topics",
                     max_records_per_batch=2)
app.dataframe(source=mp.ListSource([1, 2, 3], "in")).apply(price, stateful=True)
print(app.run(count=2), flush=True)
app.run()
"""


def test_terminal_has_what_functions_log_and_a_second_signal_ends_at_once(tmp_path):
    command = [sys.executable, "-c", _PROGRAM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as program:
        seen = ""
        while "in batch" not in seen:
            line = program.stderr.readline()
            assert line, seen
            seen += line
        program.send_signal(signal.SIGTERM)
        while "SIGTERM: stopping" not in seen:
            seen += program.stderr.readline()
        program.send_signal(signal.SIGTERM)
        printed, rest = program.communicate(timeout=30)

    assert printed == "[1, 2]\n"
    assert program.returncode == 128 + signal.SIGTERM
    lines = [re.sub(r"^\[[^\]]*\] ", "", line) for line in (seen + rest).splitlines()]
    of_users = [line for line in lines if not re.match("INFO millpond: g", line)]
    of_users.remove("in batch")  # printed, not logged: it comes by another way
    assert of_users == [
        *("INFO root: seen 1", "WARNING root: price is negative"),
        *("INFO root: seen 2", "WARNING root: price is negative"),
        *("INFO root: seen 3", "WARNING root: price is negative"),
        "INFO millpond: SIGTERM: stopping after the current batch; once more ends at once",
        "WARNING millpond: SIGTERM again: ending without waiting for the batch",
    ]
    log = (tmp_path / "state" / "g" / "logs" / "spark.log").read_text()
    assert " WARN " in log
    assert "doesn't contain key" not in log
