"""A program that is killed, cut off and started again, and what must be true of it in the end.

Takes a folder and, for Kafka, a broker; gives a run of `programs/payments.py` with topics and
state of its own, to be disturbed by a test and compared with a run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import payments

import millpond as mp
from millpond import admin

__all__ = ["KILLS", "SMALL", "Run", "assert_equal"]

PROGRAM = Path(__file__).parent / "programs" / "payments.py"


class Size(NamedTuple):
    """How many records a program reads, with how many keys, and how far they are apart."""

    records: int
    keys: int
    step_ms: int


# `make test` kills once, `make soak` many times.
KILLS = int(os.environ.get("MILLPOND_KILLS", "1"))
SMALL, LARGE = Size(12_000, 1_000, 4), Size(200_000, 2_000, 2)
SIZE = SMALL if KILLS < 5 else LARGE

# One record in so many is followed by one that cannot be read, or gives an output that Kafka
# refuses.
BROKEN, AHEAD = 1_000, payments.AHEAD

# Seconds after which a program hangs.
_LONGEST = 900

# Some minutes ago, at the edge of a window: a broker may forget records that are older.
BASE = (int(time.time() * 1000) // 10_000 - 100) * 10_000


class Run:
    """A program with topics and state of its own.

    Args:
        folder: Where its state is, and its topics where there is no broker.
        broker: The address of a Kafka broker.
        master: The Spark master.
        size: What it reads.
    """

    def __init__(
        self,
        folder: Path,
        broker: str | None = None,
        master: str | None = None,
        size: Size = SIZE,
    ) -> None:
        folder.mkdir()
        self.size = size
        self.folder = folder
        self._broker = broker
        self._errors = folder / "errors.txt"
        self.prefix = f"{folder.name}-"
        self.options = ["--prefix", self.prefix, "--base", str(BASE)]
        self.options += ["--broker", broker] if broker else []
        self.options += ["--master", master] if master else []
        self.app = mp.Application(broker, topics_dir=folder / "topics", loglevel=None)
        topic = self.app.topic(f"{self.prefix}payments", config=mp.TopicConfig(num_partitions=4))
        numbers = random.Random(7)
        with self.app.get_producer() as producer:
            for i in range(size.records):
                value = b'{"id":%d,"amount":%d}' % (i, numbers.randrange(100))
                key, moment = f"k{numbers.randrange(size.keys)}", BASE + size.step_ms * i
                producer.produce(topic, value, key, timestamp=moment)
                if i % BROKEN == 0:
                    producer.produce(topic, b"{broken %d" % i, key, timestamp=moment)

    # --- running it -------------------------------------------------------------------------

    @contextmanager
    def started(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the program, and be sure that it has ended after the block."""
        with self._errors.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.folder), *self.options, *more],
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
                start_new_session=True,
                stderr=errors,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # where it was killed alone, Java may be left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ended_well(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(_LONGEST) == 0, self.said()

    def said(self) -> str:
        """What the program has written to its standard error."""
        return self._errors.read_text()

    def undisturbed(self, spark) -> Run:
        """Run to the end in this process, and return the run."""
        app = payments.program(self.folder, self._broker, self.prefix, BASE, spark=spark)
        app.run(drain=True, collect=False)
        return self

    def written(self) -> int:
        listed = self.app.broker.listed()
        return next((count for name, _, count in listed if name == f"{self.prefix}totals"), 0)

    def at_work(self, process: subprocess.Popen[bytes], moments: random.Random) -> bool:
        """Wait until it has written something more, and a moment; False: it has ended before."""
        before = self.written()
        while process.poll() is None:
            if self.written() > before:
                time.sleep(moments.random() * 1.5)
                return process.poll() is None
            time.sleep(0.1)
        return False

    def killed(self, kills: int, disturb: Callable[[int], bool] | None = None) -> int:
        """Run to the end and kill it as often as asked; return how often that was.

        Args:
            kills: How often.
            disturb: Called before each kill with the number of those before; where it does
                something, the program is let come to work again first.
        """
        moments, done = random.Random(11), 0
        while True:
            with self.started() as process:
                if done < kills and self.at_work(process, moments):
                    if disturb and disturb(done):
                        self.at_work(process, moments)
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        done += 1
                if process.wait(_LONGEST) != -signal.SIGKILL:
                    self.ended_well(process)
                    return done

    # --- what came of it --------------------------------------------------------------------

    def records(self, topic: str) -> list[tuple]:
        """What a reader of committed records sees; in the order of each partition."""
        name = self.prefix + topic
        if name not in [listed for listed, _, _ in self.app.broker.listed()]:
            return []
        with self.app.get_consumer() as consumer:
            return [(r.partition, r.key, r.value, r.timestamp) for r in consumer.read(name)]

    def dead_letters(self) -> list[tuple]:
        """Those of its dead letters, without what depends on when it ran."""
        with self.app.get_consumer() as consumer:
            records = list(consumer.read(f"{self.prefix}payments.dead-letters"))
        own = self.prefix.encode()
        headers = [{n: v.replace(own, b"") for n, v in r.headers} for r in records]
        place = ("millpond.step", "millpond.partition", "millpond.offset", "millpond.timestamp")
        return sorted(
            (r.key, r.value, *(h.get(name, b"") for name in place))
            for r, h in zip(records, headers, strict=True)
        )

    def state(self, spark) -> dict:
        with admin.open(self.folder / "state", f"{self.prefix}payments", spark=spark) as state:
            return {(item.key, str(item.name)): item.value for item in state.scan()}


def assert_equal(disturbed: Run, undisturbed: Run, spark) -> None:
    """Every record counts exactly once: outputs, windows, timers and state are the same."""
    expected = undisturbed.records("totals")
    assert len(expected) == undisturbed.size.records
    assert disturbed.records("totals") == expected
    assert disturbed.records("late") == []
    for topic in ("windows", "checks"):  # their order depends on where batches are cut
        results = sorted(disturbed.records(topic))
        assert results == sorted(undisturbed.records(topic))
        assert len({(key, time) for _, key, _, time in results}) == len(results)
    assert len(disturbed.records("checks")) == undisturbed.size.keys  # each timer fired, once
    letters = disturbed.dead_letters()
    assert letters == undisturbed.dead_letters()
    broken = [value for _, value, *_ in letters if value.startswith(b"{broken")]
    assert len(set(broken)) == len(broken) == undisturbed.size.records // BROKEN
    ahead = len(letters) - len(broken) + len(disturbed.records("ahead"))  # refused, or written
    assert ahead == undisturbed.size.records // AHEAD
    state = disturbed.state(spark)
    assert state == undisturbed.state(spark)
    assert len({key for key, _ in state}) == undisturbed.size.keys
