"""Killed again and again, on Kafka: readers of committed records see what one run would give.

`make test` kills the program a few times and restarts the broker once; `make soak` sets
MILLPOND_KILLS to 25.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit import new_name

import millpond as mp
from millpond.spark.checkpoint import read_stores
from millpond.state.codec import Codec
from millpond.state.view import scan_items

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PROGRAM = Path(__file__).parents[1] / "spark" / "programs" / "killed.py"
KILLS = int(os.environ.get("MILLPOND_KILLS", "2"))
RECORDS, KEYS = 42_000 if KILLS < 5 else 200_000, 3_000
BASE = (int(time.time() * 1000) // 10_000 - 100) * 10_000


class Run:
    """A program with topics of its own on the broker."""

    def __init__(self, broker, folder: Path) -> None:
        self.broker, self.folder, self.prefix = broker, folder, new_name("run") + "-"
        self.app = mp.Application(broker.address, loglevel=None)
        payments = self.app.topic(f"{self.prefix}payments", config=mp.TopicConfig(num_partitions=4))
        numbers = random.Random(7)
        with self.app.get_producer() as producer:
            for i in range(RECORDS):
                value = b'{"id":%d,"amount":%d}' % (i, numbers.randrange(100))
                key = f"k{numbers.randrange(KEYS)}"
                producer.produce(payments, key, value, timestamp=BASE + i)

    def start(self) -> subprocess.Popen:
        arguments = [str(self.folder), self.broker.address, self.prefix, str(BASE)]
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            start_new_session=True,
            stderr=subprocess.PIPE,
        )

    def written(self) -> int:
        listed = self.app.broker.listed()
        return next((count for name, _, count in listed if name == f"{self.prefix}totals"), 0)

    def until_done(self, kills: int, restart_at: int | None = None) -> int:
        """Run to the end, with kills of the program and maybe one of the broker."""
        moments, done = random.Random(11), 0
        while True:
            before, process = self.written(), self.start()
            while process.poll() is None and done < kills:
                if self.written() > before:  # it is at work: any moment from here on will do
                    time.sleep(moments.random() * 1.5)
                    if done == restart_at:
                        self.broker.kill()
                        self.broker.start()
                        restart_at, before = None, self.written()
                        continue
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        done += 1
                    break
                time.sleep(0.05)
            process.wait()
            if process.returncode == 0:
                return done
            assert process.returncode == -signal.SIGKILL, process.stderr.read().decode()

    def records(self, topic: str) -> list[tuple]:
        with self.app.get_consumer() as consumer:
            records = list(consumer.read(self.prefix + topic))
        return [(r.partition, r.key, r.value, r.timestamp) for r in records]

    def state(self, spark) -> dict:
        group = self.folder / "state" / f"{self.prefix}killed"
        items = (
            item
            for (scope, _), store in read_stores(spark, group / "generations" / "0001", 1).items()
            for item in scan_items(store, "", 128, Codec(), bytes)
        )
        return {(item.key, item.name): item.value for item in items}


def test_killed_and_cut_off_every_record_counts_exactly_once(spark, tmp_path):
    from broker import Broker

    with Broker(tmp_path / "kafka") as broker:
        undisturbed, killed = (Run(broker, tmp_path / name) for name in ("undisturbed", "killed"))
        assert undisturbed.until_done(0) == 0

        assert killed.until_done(KILLS, restart_at=KILLS - 1) == KILLS

        expected = undisturbed.records("totals")
        assert len(expected) == RECORDS
        assert killed.records("totals") == expected
        assert killed.state(spark) == undisturbed.state(spark)
        assert killed.records("late") == []
        for topic in ("windows", "checks"):
            assert sorted(killed.records(topic)) == sorted(undisturbed.records(topic))
        assert len(killed.records("checks")) == KEYS
