"""How long it takes from starting a program to its first output."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["seconds_to_first_output"]

HERE = Path(__file__).parent
PATIENCE = 180


def seconds_to_first_output(which: str, folder: Path) -> float:
    """Start "millpond" or "pyspark" on a folder of a thousand clicks; wait for what comes out."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    numbers = random.Random(0)
    lines = (
        f'{{"user_id":"k{numbers.randrange(100)}","amount":{numbers.random()},"event":"click"}}\n'
        for _ in range(1_000)
    )
    (folder / "in" / "clicks.json").write_text("".join(lines))
    command = {
        "millpond": [str(Path(sys.executable).parent / "millpond"), "run", "first_millpond.py"],
        "pyspark": [sys.executable, "first_pyspark.py"],
    }[which]
    environment = {**os.environ, "FOLDER": str(folder), "PYSPARK_PYTHON": sys.executable}
    if which == "millpond":
        del environment["PYSPARK_PYTHON"]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=HERE,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not _is_there(which, folder):
            if process.poll() is not None or time.monotonic() - began > PATIENCE:
                raise SystemExit(f"{which} has put out nothing")
            time.sleep(0.005)
        return time.monotonic() - began
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_there(which: str, folder: Path) -> bool:
    """Tell whether a reader would see output: a segment, or a file that Spark has committed."""
    if which == "millpond":
        return any((folder / "out" / "totals").rglob("*.arrow"))
    return (folder / "out" / "_spark_metadata" / "0").exists()
