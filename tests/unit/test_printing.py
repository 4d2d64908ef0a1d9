"""What `print()` shows, and that neither a batch nor a stop waits long for a terminal."""

import io
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console
from rich.pretty import pretty_repr

from millpond.driver.printing import Printer, rendered
from millpond.driver.progress import Meter
from millpond.errors import ConfigError
from millpond.testing import frame, run_local

LONG = {"name": "a" * 30, "values": list(range(30)), "inner": {"b": "c" * 40}}


@pytest.mark.parametrize("value", [{"a": 1}, [1, "x", None], 5, 1.5, b"x", (1,), LONG])
def test_a_pretty_value_looks_as_rich_has_it(value):
    assert rendered([value], True, 0, 80) == pretty_repr(value, max_width=80)


def test_text_is_shown_as_it_is_and_a_plain_value_on_one_line():
    assert rendered(["a\nb", LONG], True, 0, 80).startswith("a\nb\n{\n")
    assert rendered(["a\nb", LONG], False, 0, 80) == f"a\nb\n{LONG}"


@pytest.mark.parametrize(("more", "line"), [(87_654, "87,654 more rows"), (1, "1 more row")])
def test_a_line_says_how_many_more_there_are(more, line):
    assert rendered([1], True, more, 80) == f"1\n... and {line}; print(limit=None) shows all"


@pytest.mark.parametrize(("limit", "shown"), [(None, 250), (100, 100), (3, 3), (0, 0)])
def test_so_many_values_of_a_batch_are_shown(limit, shown):
    run = run_local(frame().print(limit=limit), range(250), batches=[250])

    assert run.printed == list(range(shown))
    assert len(run) == 250


def test_without_a_limit_a_hundred_values_of_each_batch_are_shown():
    run = run_local(frame().print(), range(250), batches=[200, 50])

    assert run.printed == [*range(100), *range(200, 250)]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "all"])
def test_a_limit_is_a_number_or_none(wrong):
    with pytest.raises(ConfigError, match="limit must be(.|\n)*Fix:"):
        frame().print(limit=wrong)


def test_a_meter_prints_everything_before_it_ends(capsys):
    with Meter("shop", {}) as meter:
        for batch in range(50):
            meter.show([f"{batch}.{i}" for i in range(1_000)], pretty=True)
        meter.show([{"a": 1}], pretty=False, more=5)

    lines = capsys.readouterr().out.splitlines()
    assert lines[:-2] == [f"{batch}.{i}" for batch in range(50) for i in range(1_000)]
    assert lines[-2:] == ["{'a': 1}", "... and 5 more rows; print(limit=None) shows all"]


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self):
        return True


def test_a_terminal_with_a_live_line_takes_90_000_pretty_rows_a_second(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    rows = [{"value": n, "key": "ann", "timestamp": n} for n in range(90_000)]

    began = time.monotonic()
    with Meter("shop", {}) as meter:
        for _ in range(3):
            meter.show(rows, pretty=True)
    took = time.monotonic() - began

    assert terminal.getvalue().count("'value': 89999,") == 3
    assert took < 3


def test_only_the_rows_of_a_small_batch_are_coloured():
    terminal = Terminal()
    printer = Printer(threading.Event(), Console(file=terminal, force_terminal=True, width=20))
    printer.put("{'a': 1}", True)
    printer.put("{'a': 1}", False)
    printer.put("[red]" + "x" * 20_000, True)
    printer.close()

    lines = terminal.getvalue().splitlines()
    assert "\x1b[" in lines[0]
    assert lines[1:] == ["{'a': 1}", "[red]" + "x" * 20_000]


_BLOCKED = """
import sys, threading, time
from millpond.driver.printing import Printer
stop = threading.Event()
printer = Printer(stop)
threading.Timer(0.5, stop.set).start()
for _ in range(100):
    printer.put("x" * 1_000_000, False)
asked = time.monotonic()
printer.close()
print(stop.is_set(), file=sys.stderr)
"""


def test_a_stop_does_not_wait_for_a_pipe_that_nobody_reads():
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        error = program.stderr.read().decode()  # ends with the program; its output is not read
        assert program.wait(timeout=60) == 0

    assert "characters of print() are left out" in error
    assert error.endswith("True\n")
    assert time.monotonic() - began < 60


def test_where_nobody_reads_any_more_the_run_is_to_end():
    code = _BLOCKED.replace("Timer(0.5", "Timer(3600").replace(".start()", "")
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    program.stdout.close()

    error = program.stderr.read().decode()

    assert program.wait(timeout=60) == 0
    assert "stopping: what print() shows cannot be written" in error
    assert error.endswith("True\n")
    program.stderr.close()


def test_a_batch_waits_for_a_terminal_that_is_late(monkeypatch):
    gate, written = threading.Event(), []
    printer = Printer(threading.Event())
    monkeypatch.setattr(
        printer, "_write", lambda text, pretty: gate.wait(30) and written.append(len(text))
    )
    printer.put("x" * 5_000_000, False)
    late = threading.Thread(target=printer.put, args=("y", False))
    late.start()
    late.join(0.3)
    assert late.is_alive()

    gate.set()
    late.join(30)
    printer.close()

    assert written == [5_000_000, 1]
