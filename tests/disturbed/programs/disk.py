"""Runs in a mount namespace of its own: a disk that becomes full, and one that becomes read-only.

A function does it in the middle of a batch; the run must end with a clear error, and go on when
the disk is there again. The state is on that disk, or the topics. Prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import millpond as mp
from millpond.errors import MillpondError

FOLDER = Path(sys.argv[1])
DISK = FOLDER / "disk"
STATE, TOPICS = FOLDER / "state", FOLDER / "topics"
if sys.argv[2] == "state":
    STATE = DISK / "state"
    WRITTEN = str(STATE / "g" / "generations")
else:
    TOPICS = DISK / "topics"
    WRITTEN = str(TOPICS / "out")
RECORDS = 120


def add(value, state):
    how = {50: "full", 90: "read-only"}.get(value)
    if how and not (FOLDER / how).exists():
        (FOLDER / how).touch()
        if how == "full":
            with suppress(OSError):  # what fits is there, and there is no room any more
                (DISK / "ballast").write_bytes(bytes(64 * 1024 * 1024))
        else:
            subprocess.run(["mount", "--bind", WRITTEN, WRITTEN], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", WRITTEN], check=True)
    state.set("total", state.get("total", 0) + value)
    return state.get("total")


def umount():
    # Spark's threads may have a file open for a moment after the run has failed.
    for _ in range(20):
        if not subprocess.run(["umount", WRITTEN]).returncode:
            return
        time.sleep(0.5)
    raise SystemExit(f"{WRITTEN} is busy for ten seconds after the run has ended")


app = mp.Application(
    consumer_group="g",
    state_dir=STATE,
    topics_dir=TOPICS,
    auto_offset_reset="earliest",
    max_records_per_batch=20,
    loglevel=None,
)
topic = app.topic("in", key_deserializer="str")
app.dataframe(topic).apply(add, stateful=True).to_topic(app.topic("out"))

if __name__ == "__main__":
    with app.get_producer() as producer:
        for number in range(RECORDS):
            producer.produce("in", key=f"key-{number % 5}", value=number)
    errors = []
    for repair in (
        lambda: (DISK / "ballast").unlink(),
        umount,
        None,
    ):
        try:
            app.run(drain=True)
        except MillpondError as error:
            errors.append(f"{type(error).__name__}: {error}")
        if repair is not None:
            repair()
    with app.get_consumer() as consumer:
        written = [(r.key.decode(), r.value) for r in consumer.read("out")]
    kept = {item.key: item.value for item in app.scan_state()}
    print(json.dumps({"errors": errors, "written": written, "kept": kept}))
