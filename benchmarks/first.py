"""How long it takes from starting a program to its first output.

python first.py FOLDER [5]   what each of the things does that make a start faster: so many rounds
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["seconds_to_first_output"]

HERE = Path(__file__).parent
PATIENCE = 180

ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def seconds_to_first_output(which: str, folder: Path, **variables: str) -> float:
    """Start "millpond" or "pyspark" on a folder of a thousand clicks; wait for what comes out.

    The variables are set for the program.
    """
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
    environment = {**os.environ, "FOLDER": str(folder)}
    environment.pop("PYSPARK_PYTHON", None)  # or there is no fork server
    environment |= {"PYSPARK_PYTHON": sys.executable} if which == "pyspark" else variables
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


def _with(**config: str) -> dict[str, str]:
    return {"SPARK_CONFIG": json.dumps(config)}


# A start as it is, and without each of the things that make it faster.
WAYS: dict[str, dict[str, str]] = {
    "as it is": {},
    "without the archive of classes": {"XDG_CACHE_HOME": "/nowhere"},
    "without the fork server": {"PYSPARK_PYTHON": sys.executable},
    "with 200 shuffle partitions": _with(**{"spark.sql.shuffle.partitions": "200"}),
    "with Spark's page": _with(**{"spark.ui.enabled": "true"}),
    "with adaptive plans": _with(**{"spark.sql.adaptive.enabled": "true"}),
    "with TCP to the workers": _with(**{"spark.python.unix.domain.socket.enabled": "false"}),
    "with one compiler": _with(**{"spark.driver.extraJavaOptions": ONE_COMPILER}),
}


def main(folder: Path, rounds: int) -> None:
    """Print the median of each way, by turns, and its ratio to the start as it is."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, variables in WAYS.items():
            found[way].append(seconds_to_first_output("millpond", folder, **variables))
    for way, seconds in found.items():
        ratios = [mine / least for mine, least in zip(seconds, found["as it is"], strict=True)]
        print(f"{way}: {statistics.median(seconds):.1f} s, {statistics.median(ratios):.2f} times")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 5)
