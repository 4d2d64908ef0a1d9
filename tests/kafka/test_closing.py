"""What a program leaves open is closed before Python ends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kit import new_name, new_topic

pytestmark = pytest.mark.kafka

PROGRAM = """
import atexit, sys
from pathlib import Path

@atexit.register  # before Millpond, so it is called after its own
def count():
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    print("left:", sum(name.startswith("rdk:") for name in names))

import millpond as mp

app = mp.Application(sys.argv[1], consumer_group=sys.argv[3], loglevel=None)
topic = app.topic(sys.argv[2])
producer = app.get_producer()
producer.produce(topic, {"n": 1}, "k")
producer.flush()
consumer = app.get_consumer()
consumer.subscribe([topic])
while consumer.poll(1.0) is None:
    pass
outputs = app.broker.writer(sys.argv[3], "stream", True, lambda batch_id: {})
names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
print("open:", sum(name.startswith("rdk:") for name in names) > 8)
"""


def test_no_thread_of_librdkafka_is_left_when_python_ends(broker, tmp_path):
    script = tmp_path / "left_open.py"
    script.write_text(PROGRAM)

    ended = subprocess.run(
        [sys.executable, script, broker.address, new_topic(broker), new_name("group")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.stderr == ""
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == ["open: True", "left: 0"]
