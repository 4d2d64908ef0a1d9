"""A process that has imported what Spark's Python processes need, and forks them.

Spark starts half a dozen Python processes before the first record (one to look for sources, one to
make ours, one that runs it, one that asks it how to read, one for every stateful operator, the one
that forks workers), each with half a second and more of imports. The fork server is started beside
the JVM, imports once, and forks each of them in milliseconds: `fork_client`, which Spark takes for
Python, hands over streams, arguments and environment. The server ends when the program that started
it does.

Relies on: `PYSPARK_PYTHON` for every Python that the JVM starts; the modules that it runs with
    `-m`; a protocol by streams, arguments, environment and signals only.
Seen with: 4.3.
Without it: an ordinary Python is started, and a start takes seconds longer. So it is, too, where
    `PYSPARK_PYTHON` is set. A module of another name is imported after the fork.
For Spark 4.4: `PythonUtils`, `PythonWorkerFactory`, `StreamingPythonRunner`,
    `PythonPlannerRunner` for the modules.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from millpond.folders import Scratch

__all__ = ["open_fork_server"]

_SOCKET = "fork-server"


_opened: list[tuple[str, subprocess.Popen[bytes]]] = []
"""The fork server of this program: what Spark is to take for Python, and the process."""


def open_fork_server() -> str:
    """Return the program that Spark is to take for Python; start a fork server where none runs."""
    for script, server in _opened:
        if server.poll() is None and Path(script).exists():
            return script
    _opened[:] = [_start()]
    return _opened[0][0]


def _start() -> tuple[str, subprocess.Popen[bytes]]:
    scratch = Scratch("millpond-python-")
    atexit.register(scratch.remove)
    folder = scratch.path
    client = Path(__file__).with_name("fork_client.py")
    command = [sys.executable, "-I", "-S", str(client), str(folder / _SOCKET), sys.executable]
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    if not os.access(script, os.X_OK):
        raise OSError(errno.EACCES, "temporary files may not be executed (noexec)", str(script))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / _SOCKET))
        listener.listen(64)  # who comes while the fork server imports waits
        server = subprocess.Popen(
            [sys.executable, "-m", "millpond.spark.internals.fork_server", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", **os.environ, "PYTHONUNBUFFERED": "YES"},
            start_new_session=True,  # Ctrl-C is for the program
        )
    atexit.register(server.kill)
    return str(script), server


def serve(listener: socket.socket) -> None:
    """Fork a process for everybody who asks, until standard input ends."""
    _import()
    code = 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the program decides, as for the JVM
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            try:
                code = _live(connection)
            finally:
                os._exit(code)
        connection.close()


MODULES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "millpond.spark.internals.daemon",
)
"""What Spark runs with `-m`."""


def _import() -> None:
    for module in MODULES:
        with suppress(ModuleNotFoundError):  # the process that wants it says what is missing
            importlib.import_module(module)


def _live(connection: socket.socket) -> int:
    """Be the process that was asked for, to its end; return its exit code."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        head, streams, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as stream:
            order = json.loads(stream.read(int.from_bytes(head, "big")))
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        connection.sendall(os.getpid().to_bytes(4, "big"))
        code = _run(order) & 0xFF  # as the system does: -1 is 255
    except BaseException:
        traceback.print_exc()
    with suppress(OSError):  # who asked may be gone
        sys.stdout.flush()
        connection.sendall(bytes([code]))
    return code


def _run(order: dict[str, Any]) -> int:
    """Do what `python -m module ...` would have done."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    _, module, *arguments = order["argv"]
    sys.argv = [module, *arguments]
    if not sys.flags.safe_path:  # then `-m` puts no folder in front
        sys.path[0] = order["cwd"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    warnings.filterwarnings("ignore", message=".*found in sys.modules.*", module="runpy")
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
