"""What Spark starts where it wants a Python: asks the fork server for one that is ready.

Run as `python -I -S fork_client.py SERVER PYTHON -m module ...`, in a few milliseconds, so it
imports almost nothing. Hands over its standard streams, its arguments and its environment, stands
for the process that it got until that one ends, and starts an ordinary Python where there is no
server.

Relies on: a command of the form `python -m module`; `pyspark.zip`, `py4j-*.zip` and
    `spark-core_*.jar` as what Spark adds to `PYTHONPATH`.
Seen with: 4.3.
Without it: another command gets an ordinary Python; a zip of another name is compiled again by each
    process.
For Spark 4.4: `PythonUtils.sparkPythonPath`, and who calls `ProcessBuilder`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main() -> None:
    server, python, *arguments = sys.argv[1:]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if not _is_of_spark(path))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until it is known who is to get it
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        child = _born(connection, server, arguments) if arguments[0] == "-m" else 0
        if not child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.execv(python, [python, *arguments])
        signal.signal(signal.SIGTERM, lambda *_: _end(child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        sys.exit(_exit_code(connection))


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has ended by itself


def _exit_code(connection: socket.socket) -> int:
    """Wait until the process has ended; one that was killed does not say how."""
    try:
        return (connection.recv(1) or b"\x01")[0]
    except OSError:
        return 1


def _is_of_spark(path: str) -> bool:
    """Tell whether Spark has put a file on the path that is installed as a package, too.

    A zip has no compiled code, so each process would compile pyspark again (1.1 s, and 0.23).
    """
    name = path.rpartition("/")[2]
    is_zip = name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith(".zip"))
    return is_zip or (name.startswith("spark-core_") and name.endswith(".jar"))


def _born(connection: socket.socket, server: str, arguments: list[str]) -> int:
    """Return the process that the fork server gives, or 0 where there is none."""
    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib takes longer than all the rest
        order = {"argv": arguments, "env": dict(os.environ), "cwd": here}
        message = json.dumps(order).encode()
        connection.connect(server)
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(message)
        answer = connection.recv(4, socket.MSG_WAITALL)
        return int.from_bytes(answer, "big") if len(answer) == 4 else 0
    except OSError:  # there is no fork server, or the folder we are in is gone
        return 0


if __name__ == "__main__":
    main()
