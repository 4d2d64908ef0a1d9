"""A program killed at random moments, again and again, gives what an undisturbed one gives.

`make test` kills it a few times; `make soak` sets MILLPOND_KILLS to 25.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import millpond as mp
from millpond.connectors.log import Log
from millpond.spark.checkpoint import read_stores
from millpond.state.codec import Codec
from millpond.state.view import scan_items

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).parent / "programs" / "killed.py"
KILLS = int(os.environ.get("MILLPOND_KILLS", "2"))
RECORDS, KEYS = 80_000 if KILLS < 5 else 200_000, 3_000


def write_input(folder: Path) -> None:
    log = Log(folder / "topics")
    log.create("payments", 4)
    numbers = random.Random(7)
    with mp.Producer(log) as producer:
        for i in range(RECORDS):
            value = b'{"id":%d,"amount":%d}' % (i, numbers.randrange(100))
            producer.produce("payments", f"k{numbers.randrange(KEYS)}", value, timestamp=i)


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder)], start_new_session=True, stderr=subprocess.PIPE
    )


def written(folder: Path) -> int:
    log = Log(folder / "topics")
    return sum(log.end("totals", p) for p in range(2)) if log.exists("totals") else 0


def outputs(folder: Path) -> list[tuple]:
    records = mp.Consumer(Log(folder / "topics")).read("totals")
    return [(r.partition, r.offset, r.key, r.value, r.timestamp) for r in records]


def results(folder: Path, topic: str) -> list[tuple]:
    """What was written, whatever the order: that depends on where batches are cut."""
    log = Log(folder / "topics")
    records = mp.Consumer(log).read(topic) if log.exists(topic) else []
    return sorted((r.key, r.timestamp, r.value) for r in records)


def state_of(spark, folder: Path) -> dict:
    stores = read_stores(spark, folder / "state" / "killed" / "generations" / "0001", 1)
    items = (
        item
        for (scope, _), store in stores.items()
        for item in scan_items(store, scope, 128, Codec(), bytes)
    )
    return {(item.key, item.name): item.value for item in items}


def run_with_kills(folder: Path, kills: int) -> int:
    """Run until the program ends by itself; kill it as often as asked. Return the kills done."""
    moments, done = random.Random(11), 0
    while True:
        before = written(folder)
        process = start(folder)
        while process.poll() is None and done < kills:
            if written(folder) > before:  # it is at work: any moment from here on will do
                time.sleep(moments.random() * 1.5)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    done += 1
                break
            time.sleep(0.02)
        process.wait()
        if process.returncode == 0:
            return done
        assert process.returncode == -signal.SIGKILL, process.stderr.read().decode()


def test_killed_at_random_moments_every_record_counts_exactly_once(spark, tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    write_input(undisturbed)
    shutil.copytree(undisturbed, killed)
    assert run_with_kills(undisturbed, 0) == 0

    assert run_with_kills(killed, KILLS) == KILLS

    expected = outputs(undisturbed)
    assert len(expected) == RECORDS
    assert outputs(killed) == expected
    assert state_of(spark, killed) == state_of(spark, undisturbed)
    assert results(killed, "late") == []
    windows, checks = results(killed, "windows"), results(killed, "checks")
    assert windows == results(undisturbed, "windows")
    assert len({(key, start) for key, start, _ in windows}) == len(windows)
    assert checks == results(undisturbed, "checks")
    assert len(checks) == KEYS  # each timer fired, once
    assert len({key for key, _ in state_of(spark, killed)}) == KEYS
