"""The wall clock of the machine is set a day ahead and back while a program runs on Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from machine import set_clock_by

import millpond as mp

pytestmark = pytest.mark.spark

HOUR, DAY = 3_600_000, 86_400_000

# Seconds that anything may take: a batch, or the start of Spark.
PATIENCE = 60

PROGRAM = """
import millpond as mp

def remind(value, state):
    state.set_timer("reminder", after=3_000, clock="processing")
    return f"order {value}"

app = mp.Application(
    consumer_group="jumps",
    state_dir="state",
    topics_dir="topics",
    auto_offset_reset="earliest",
    master="local[2]",
)
orders = app.dataframe(app.topic("orders", key_deserializer="str", max_future=3_600_000))
called = orders.apply(
    remind, stateful=True, on_timer=lambda key, state, timer: f"call {key} at {timer.at}"
)
called.to_topic(app.topic("calls", key_serializer="str"))
app.run()
"""


class Machine:
    """A machine whose clock the test sets, and the program that runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        self._offset = folder / "offset"
        self._app = mp.Application(topics_dir=folder / "topics", loglevel=None)
        self.set_clock("+0")
        (folder / "program.py").write_text(PROGRAM)

    def set_clock(self, offset: str) -> None:
        aside = self._offset.with_suffix(".writing")
        aside.write_text(offset)
        aside.replace(self._offset)

    @contextmanager
    def running(self):
        environment = {**os.environ, **set_clock_by(self._offset, self.folder)}
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "program.py"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0, self.log.read_text()

    def order(self, key: str, value: int, timestamp: int) -> None:
        topic = self._app.topic("orders", key_serializer="str")
        with self._app.get_producer() as producer:
            producer.produce(topic, value, key, timestamp=timestamp)

    def read(self, topic: str) -> list:
        if topic not in {name for name, _, _ in self._app.broker.listed()}:
            return []
        with self._app.get_consumer() as consumer:
            return [record.value.decode() for record in consumer.read(topic)]

    def wait_for(self, topic: str, start: str) -> list:
        """Return all values of a topic as soon as one begins like this."""
        until = time.monotonic() + PATIENCE
        while True:
            found = self.read(topic)
            if any(value.startswith(start) for value in found):
                return found
            assert time.monotonic() < until, f"{topic} has {found}: {self.log.read_text()}"
            time.sleep(0.2)


def test_timers_and_the_guard_go_by_a_clock_that_was_set_a_day_ahead_and_back(tmp_path):
    machine = Machine(tmp_path)
    with machine.running():
        now = time.time_ns() // 1_000_000
        machine.order("ann", 1, now)
        machine.wait_for("calls", '"order 1')

        machine.set_clock("+1d")  # the reminder of ann is due, and the guard opens
        machine.wait_for("calls", '"call ann')
        machine.order("bob", 2, now + 2 * HOUR)
        machine.wait_for("calls", '"order 2')

        machine.set_clock("+0")  # the guard closes, and new timers go by this time
        machine.order("cat", 3, now + 2 * HOUR)
        machine.wait_for("jumps.dead-letters", "3")
        machine.order("dan", 4, time.time_ns() // 1_000_000)
        calls = [json.loads(value) for value in machine.wait_for("calls", '"call dan')]

    reminded = [call for call in calls if call.startswith("call")]
    assert [call for call in calls if call not in reminded] == ["order 1", "order 2", "order 4"]
    at = {call.split()[1]: int(call.split()[3]) for call in reminded}
    assert set(at) >= {"ann", "dan"}
    assert at["dan"] < now + HOUR  # and not a day later
    log = machine.log.read_text()
    assert re.search(r"was set forward by 2[34] h", log)
    assert re.search(r"was set back by 2[34] h", log)
