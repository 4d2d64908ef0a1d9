"""The fork server gives processes that behave as those Spark would have started itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from millpond.spark import session
from millpond.spark.internals import fork_server

_PROBE = """
import json, os, sys
if __name__ == "__main__":
    text = sys.stdin.read()
    facts = {"argv": sys.argv[1:], "read": text, "cwd": os.getcwd(), "word": os.environ.get("WORD"),
             "pid": os.getpid(), "parent": os.getppid(), "is_warm": "pyspark.worker" in sys.modules,
             "hash": hash("millpond"), "main": sys.modules["__main__"].__name__}
    print(json.dumps(facts))
    print("said aside", file=sys.stderr)
    sys.exit(7)
"""

_SLEEPER = "import time, os\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.py").write_text(_PROBE)
    (folder / "sleeper.py").write_text(_SLEEPER)
    (folder / "failing.py").write_text("import sys\nsys.exit(-1)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "_opened", [])
        patch.delenv("PYTHONHASHSEED", raising=False)
        return fork_server.open_fork_server(), folder


def _facts(python, folder, *arguments, word="brook"):
    run = subprocess.run(
        [python, "-m", "probe", *arguments],
        input="through the pipe",
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "WORD": word, "PYTHONHASHSEED": "0"},
    )
    assert (run.returncode, run.stderr) == (7, "said aside\n")
    return json.loads(run.stdout)


def test_a_process_has_the_streams_arguments_and_surroundings_of_the_one_that_asked(python):
    script, folder = python
    facts = _facts(script, folder, "one", "two words")
    assert facts["argv"] == ["one", "two words"]
    assert facts["read"] == "through the pipe"
    assert facts["cwd"] == str(folder)
    assert facts["word"] == "brook"
    assert facts["main"] == "__main__"
    assert facts["is_warm"]


def test_a_process_has_the_path_that_was_set_for_it_without_sparks_own_files(python, tmp_path):
    script, _ = python
    (tmp_path / "users_own.py").write_text("import sys; print(sys.path[1], *sys.path)")
    sparks = [
        "/spark/lib/pyspark.zip",
        "/spark/lib/py4j-0.10.9.9-src.zip",
        "/spark/spark-core_2.jar",
    ]
    path = os.pathsep.join([*sparks, str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [script, "-m", "users_own"],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout.startswith(f"{tmp_path} "), run.stderr
    assert "/spark/" not in run.stdout


def test_a_process_keeps_the_folder_it_was_started_in_off_the_path_where_python_is_set_so(
    python, monkeypatch
):
    monkeypatch.setattr(fork_server, "_opened", [])
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    script, folder = fork_server.open_fork_server(), python[1]
    command = [script, "-m", "failing"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 1
    assert "No module named failing" in run.stderr


def test_where_the_folder_one_is_in_is_gone_a_python_is_started(python, tmp_path):
    script, _ = python
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = f'cd "{gone}" && rmdir "{gone}" && exec "{script}" -m json.tool'
    run = subprocess.run(["sh", "-c", shell], input="[1]", capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()) == (0, ["[", "1", "]"]), run.stderr


def test_a_program_has_one_fork_server_as_long_as_it_lives(monkeypatch):
    monkeypatch.setattr(fork_server, "_opened", [])
    first = fork_server.open_fork_server()
    assert fork_server.open_fork_server() == first
    fork_server._opened[0][1].kill()
    fork_server._opened[0][1].wait()
    assert fork_server.open_fork_server() != first


def test_a_process_that_ends_with_minus_one_ends_as_any_other(python):
    script, folder = python
    run = subprocess.run([script, "-m", "failing"], capture_output=True, text=True, cwd=folder)
    assert (run.returncode, run.stderr) == (255, "")


def test_where_there_can_be_no_fork_server_spark_starts_python_itself(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert session._python() == sys.executable
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert session._python() == sys.executable


def test_processes_share_a_parent_and_nothing_else(python):
    script, folder = python
    first, second = _facts(script, folder), _facts(script, folder, word="ünïcode")
    assert first["parent"] == second["parent"]
    assert first["pid"] != second["pid"]
    assert (first["word"], second["word"]) == ("brook", "ünïcode")


def test_hashes_of_texts_are_those_of_every_worker_of_spark(python):
    script, folder = python
    plain = subprocess.run(
        [sys.executable, "-c", "print(hash('millpond'))"],
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert _facts(script, folder)["hash"] == int(plain.stdout)


def test_who_ends_the_one_that_asked_ends_the_process(python):
    asked, child = _sleeper(*python)
    asked.send_signal(signal.SIGTERM)
    assert asked.wait(10) == 1
    _wait_until_gone(child)


def test_a_signal_to_end_after_its_process_is_gone_prints_nothing(python):
    asked, child = _sleeper(*python)
    asked.send_signal(signal.SIGSTOP)  # so it does not see that
    os.kill(child, signal.SIGKILL)
    _wait_until_gone(child)
    asked.send_signal(signal.SIGTERM)
    asked.send_signal(signal.SIGCONT)
    assert asked.communicate(timeout=10) == (b"", b"")
    assert asked.returncode == 1


def _sleeper(script, folder):
    asked = subprocess.Popen(
        [script, "-m", "sleeper"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert asked.stdout is not None
    child = int(asked.stdout.readline())
    assert child != asked.pid
    return asked, child


def test_without_a_fork_server_a_python_is_started(python, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "_opened", [])
        patch.setattr(fork_server.subprocess, "Popen", _NoForkServer)
        script = fork_server.open_fork_server()
    facts = _facts(script, python[1], "one")
    assert facts["argv"] == ["one"]
    assert not facts["is_warm"]


def test_a_fork_server_ends_with_the_program_that_started_it():
    program = (
        "from millpond.spark.internals import fork_server\n"
        "import subprocess\n"
        "kept = []\n"
        "start = subprocess.Popen\n"
        "def popen(*a, **o):\n"
        "    kept.append(start(*a, **o))\n"
        "    return kept[0]\n"
        "subprocess.Popen = popen\n"
        "fork_server.open_fork_server()\n"
        "print(kept[0].pid, flush=True)\n"
        "import os\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    _wait_until_gone(int(run.stdout))


class _NoForkServer:
    """A fork server that died at birth."""

    def __init__(self, *_args, **_options) -> None:
        pass

    def kill(self) -> None:
        pass


def _wait_until_gone(pid: int) -> None:
    for _ in range(200):
        if not _is_alive(pid):
            return
        time.sleep(0.05)
    pytest.fail("it has survived")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as status:
        return status.read().rpartition(")")[2].split()[0] != "Z"
