"""How long one record takes through an application that runs, at a given load."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT

__all__ = ["latencies"]

HERE = Path(__file__).parent
USERS = 100

# Seconds between two looks at what came out, and at most between two writes of what goes in.
LOOK, WRITE = 0.002, 0.02

# Seconds that a program has to put out its first record, that it runs before anything counts, and
# that it runs at another load before that counts.
PATIENCE, WARMING, CHANGING = 120, 12, 3


def latencies(
    which: str, folder: Path, seconds: dict[int, float], warming: float = WARMING
) -> dict[int, tuple[float, ...]]:
    """Run a program once; return (median, 99th percentile) in ms at each of its loads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = {}
    with _PROGRAMS[which](folder) as (put, take):
        _first(put, take)
        for rate, length in seconds.items():
            _through(put, take, rate, warming)
            found[rate] = _through(put, take, rate, length)
            warming = CHANGING
    return found


Put = Callable[[list[dict[str, Any]]], None]
Take = Callable[[], list[int]]


def _first(put: Put, take: Take) -> None:
    """Wait until a record has come through."""
    put([_click(0)])
    until = time.monotonic() + PATIENCE
    while not take():
        if time.monotonic() > until:
            raise SystemExit("nothing came out")
        time.sleep(0.05)


def _through(put: Put, take: Take, rate: int, seconds: float) -> tuple[float, float]:
    """Send records at a rate; return median and 99th percentile of what came back, in ms."""
    found: list[float] = []
    number, began = 0, time.monotonic()
    wrote = 0.0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate)
        if due > number and (passed - wrote >= WRITE or rate < 1 / WRITE):
            put([_click(n) for n in range(number, due)])
            number, wrote = due, passed
        found += _ages(take())
        time.sleep(LOOK)
    until = time.monotonic() + 10
    while len(found) < number and time.monotonic() < until:
        found += _ages(take())
        time.sleep(LOOK)
    if len(found) < number:
        raise SystemExit(f"{number - len(found)} of {number} records have not come out")
    return float(np.median(found)), float(np.percentile(found, 99))


def _click(number: int) -> dict[str, Any]:
    return {"user_id": f"k{number % USERS}", "sent": time.time_ns()}


def _ages(sent: list[int]) -> list[float]:
    now = time.time_ns()
    return [(now - moment) / 1e6 for moment in sent]


@contextmanager
def _program(*command: object) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _millpond(folder: Path, compilers: str = "both") -> Iterator[tuple[Put, Take]]:
    log = Log(folder / "topics")
    for topic in ("clicks", "totals"):
        log.create(topic, 1)
    place = 0

    def put(clicks: list[dict[str, Any]]) -> None:
        columns = [
            pa.array([click["user_id"].encode() for click in clicks], pa.binary()),
            pa.array([json.dumps(click).encode() for click in clicks], pa.binary()),
            pa.array([click["sent"] // 1_000_000 for click in clicks], pa.int64()),
            pa.nulls(len(clicks), pa.binary()),
        ]
        log.append("clicks", 0, pa.Table.from_arrays(columns, schema=SEGMENT))

    def take() -> list[int]:
        nonlocal place
        end = log.end("totals", 0)
        parts = list(log.read("totals", 0, place, end)) if end > place else []
        place = end
        return [json.loads(value)["sent"] for p in parts for value in p.column("value").to_pylist()]

    with _program("latency_millpond.py", folder, compilers):
        yield put, take


@contextmanager
def _pyspark(folder: Path) -> Iterator[tuple[Put, Take]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        number, connection = 0, None

        def put(clicks: list[dict[str, Any]]) -> None:
            nonlocal connection
            if connection is None:
                connection, _ = server.accept()
            connection.sendall("".join(json.dumps(click) + "\n" for click in clicks).encode())

        def take() -> list[int]:
            nonlocal number
            # What a batch has put out can be seen when Spark has written down which files it is.
            metadata = folder / "out" / "_spark_metadata"
            names = (f"{number}", f"{number}.compact")
            found = [name for name in names if (metadata / name).exists()]
            if not found:
                return []
            entries = (metadata / found[0]).read_text().splitlines()[1:]
            number += 1
            files = [Path(json.loads(line)["path"].removeprefix("file://")) for line in entries]
            new = [file for file in files if file not in seen]
            seen.update(new)
            lines = (line for file in new for line in file.read_text().splitlines())
            return [json.loads(line)["sent"] for line in lines]

        seen: set[Path] = set()
        with _program("latency_pyspark.py", folder, server.getsockname()[1]):
            yield put, take


_PROGRAMS = {
    "millpond": _millpond,
    "millpond, one compiler": partial(_millpond, compilers="one"),
    "pyspark": _pyspark,
}
