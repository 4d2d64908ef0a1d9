"""Programs that are measured by turns: each stays up, warm, and does one run when it is asked.

`Program` starts one and asks it; `serve` is its other end. A request is a line of JSON, and so is
the answer. Two programs that are asked by turns see the same machine, whatever else it does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Program", "memory", "serve", "sizes_of_files"]

HERE = Path(__file__).parent


def serve(**runs: Callable[..., dict[str, Any]]) -> None:
    """Answer requests until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what programs print is not an answer
    for line in sys.stdin:
        request = json.loads(line)
        found = runs[request.pop("what")](**request)
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def memory(process: int) -> dict[str, int]:
    """Return the bytes that a process and those below it take; what they share is counted once."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found, waiting = {"driver": 0, "JVM": 0, "Python workers": 0}, [process]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        with suppress(OSError, AttributeError):
            folder = Path(f"/proc/{number}")
            rollup = (folder / "smaps_rollup").read_text()
            kilobytes = re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)
            is_java = (folder / "comm").read_text().strip() == "java"
            kind = "driver" if number == process else "JVM" if is_java else "Python workers"
            found[kind] += 1024 * int(kilobytes[1])  # type: ignore[index]
    return found


def sizes_of_files(folder: Path) -> list[int]:
    """Return the bytes of each file in a folder and below it."""
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # Spark has cleaned up in between
                sizes.append(Path(place, name).stat().st_size)
    return sizes


class Program:
    """A program that is up. A context manager."""

    def __init__(self, script: str, *arguments: object, python: str = sys.executable) -> None:
        self.name = script
        python = str(Path(python).absolute())
        self._command = [python, str(HERE / script), *map(str, arguments)]

    def __enter__(self) -> Program:
        self._process = subprocess.Popen(
            self._command,
            cwd=HERE,  # workers of Spark find modules there
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def ask(self, what: str, **request: Any) -> dict[str, Any]:
        """Have one run done; return what it measured."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"what": what, **request}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended while it was asked for {what} {request}")
        return json.loads(line)  # type: ignore[no-any-return]

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
