"""What tests that start servers share: jars, Java, free ports, a process with a log.

Jars come from the Maven repository through the Ivy inside PySpark, once, into ~/.cache/millpond: a
machine needs Java and Python, nothing else.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyspark

from millpond.connectors.segments import locked

__all__ = ["SPARK_JARS", "Process", "compiled", "free_ports", "jars", "java", "run", "set_clock_by"]

SPARK_JARS = Path(pyspark.__file__).parent / "jars"

_CACHE = Path.home() / ".cache" / "millpond"


def jars(name: str, dependencies: str) -> list[str]:
    """Return the paths of artifacts and what they need; fetch them the first time.

    Args:
        name: What they are known by on this machine; it must change when they do.
        dependencies: What an Ivy file has between <dependencies> and its end.
    """
    known = _CACHE / f"{name}.classpath"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with locked(_CACHE / "lock"):
        if not known.exists() or not all(map(os.path.exists, known.read_text().split(os.pathsep))):
            _resolve(known, dependencies)
    return known.read_text().split(os.pathsep)


def _resolve(target: Path, dependencies: str) -> None:
    module = target.with_suffix(".ivy.xml")
    module.write_text(
        f'<ivy-module version="2.0"><info organisation="millpond" module="{target.stem}"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    (ivy,) = SPARK_JARS.glob("ivy-*.jar")
    aside = target.with_suffix(".writing")
    options = ("-cache", str(_CACHE / "ivy"), "-types", "jar", "bundle", "-cachepath", str(aside))
    run([java(), "-jar", str(ivy), "-warn", "-ivy", str(module), *options])
    aside.write_text(aside.read_text().strip())  # Ivy ends its line, and Java would take it
    aside.rename(target)


def compiled(source: Path, folder: Path) -> Path:
    """Return the library of a C file, which programs can preload."""
    library = folder / source.with_suffix(".so").name
    run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"])
    return library


def set_clock_by(offset: Path, folder: Path) -> dict[str, str]:
    """Return the variables of processes whose wall clock differs by what a file says, as `+1d`."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise RuntimeError(
            "libfaketime is needed. Fix: Debian, Ubuntu: apt-get install libfaketime"
        )
    sleep = compiled(Path(__file__).with_name("real_sleep.c"), folder)
    return {
        "LD_PRELOAD": f"{sleep} {found[0]}",
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or Java waits for its own threads for minutes
    }


def run(command: list[str]) -> None:
    """Run a command to its end; what it said is shown where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        output = (done.stdout + done.stderr)[-3000:]
        raise RuntimeError(f"{command[0]} failed ({' '.join(command[-6:])}):\n{output}")


def java() -> str:
    """Return the command that starts Java."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise RuntimeError("Java 17 or newer is needed, and none was found.")
    return found


_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, and that were not given to anybody here before.

    They lie below those that systems give away by themselves (from 32768 on Linux): a port from
    there may be the near end of anybody's connection before a server has started.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_768), 1_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in _given:
                ports.append(port)
        if len(ports) == count:
            _given.update(ports)
            return ports
    raise RuntimeError("no ports could be opened on 127.0.0.1")


class Process:
    """A server in a process of its own, with a log; a `with` block ends it by its own id."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
            )

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            if is_ready():
                return
            time.sleep(0.05)
        tail = self._log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"the server did not start; the end of {self._log}:\n{tail}")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        # As if the machine had lost power: what it holds is thrown away anyway.
        self._process.kill()
        self._process.wait()
