"""Topics on a disk that is full, and on one that may only be read."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, subprocess, sys, time
from pathlib import Path
import pyarrow as pa
import millpond as mp
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.connectors.sources import LogReader
from millpond.errors import MillpondError

disk = Path(sys.argv[1])
log, said = Log(disk / "topics"), []

def rows(*values):
    row = {"key": None, "timestamp": 0, "headers": None}
    return pa.Table.from_pylist([{"value": value, **row} for value in values], SEGMENT)

def attempt(call):
    try:
        said.append(repr(call()))
    except MillpondError as error:
        said.append(f"{type(error).__name__}: {error}")

def values(log=log):
    end = log.end("clicks", 0)
    return [v for part in log.read("clicks", 0, 0, end) for v in part["value"].to_pylist()]

def read_only(is_read_only):
    command = ["mount", "-o", f"remount,{'ro' if is_read_only else 'rw'}", str(disk)]
    for _ in range(100):  # the system lets go of files that were closed a moment later
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{disk} stays busy")
"""

FULL = """
log.create("clicks", 1)
log.append("clicks", 0, rows(b"a"), "app", 0)
left = os.statvfs(disk)
ballast = disk / "ballast"
ballast.write_bytes(bytes((left.f_bavail - 4) * left.f_frsize))
large = rows(*[os.urandom(1000) for _ in range(1000)])
attempt(lambda: log.append("clicks", 0, large, "app", 1))
left_behind = [f.name for f in (disk / "topics" / "clicks" / "0").glob("*.writing")]
producer = mp.Application(consumer_group="g", topics_dir=disk / "topics").get_producer()
producer.produce("clicks", value=os.urandom(1_000_000))
attempt(producer.flush)
ballast.unlink()
attempt(producer.flush)
attempt(lambda: log.append("clicks", 0, large, "app", 1))
print(json.dumps([said, left_behind, len(values(Log(log.path)))]))
"""

READ_ONLY = """
log.create("clicks", 1)
log.create("views", 1, is_input=True)
log.append("clicks", 0, rows(b"a"))
read_only(True)
again = Log(log.path)
for name in ("clicks", "views"):
    attempt(lambda: again.create(name, 1, is_input=True))
attempt(lambda: again.create("clicks", 1))
attempt(lambda: values(again))
attempt(lambda: again.verify("clicks"))
app = mp.Application(consumer_group="g", topics_dir=log.path)
attempt(lambda: len(list(app.get_consumer().read("clicks"))))
attempt(lambda: again.create("views", 1))
attempt(lambda: again.create("other", 1))
attempt(lambda: again.append("clicks", 0, rows(b"b")))
read_only(False)
attempt(lambda: again.create("other", 1))
attempt(lambda: again.append("clicks", 0, rows(b"b")))
print(json.dumps([said, values(again) == [b"a", b"b"]]))
"""


def run(program, disk):
    """Run a program with a small disk that nobody else sees, in a namespace of its own."""
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size=4m tmpfs "{disk}" && exec "$@"'
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    done = subprocess.run(
        [*namespace, sys.executable, "-c", PROGRAM + program, str(disk)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def disk(tmp_path):
    return tmp_path / "disk"


def test_a_full_disk_is_reported_for_the_topic_and_nothing_is_lost(disk):
    said, left_behind, count = run(FULL, disk)

    full = (
        "TopicError: topic 'clicks', partition 0, cannot be written: No space left on device (in "
        f"{disk}/topics/clicks/0).\nFix: make room on its disk, and run again: nothing of it was "
        "written."
    )
    assert said == [full, full, "0", "True"]
    assert left_behind == []
    assert count == 1 + 1 + 1000


def test_topics_that_may_only_be_read_are_read_and_what_is_written_is_refused(disk):
    said, is_whole = run(READ_ONLY, disk)

    topics = f"{disk}/topics"
    why = "cannot be written: Read-only file system (in"
    fix = "Fix: make the folder writable for the user of this program, or choose another one"
    assert said[:6] == ["None", "None", "None", "[b'a']", "([], 0)", "1"]
    for text, where in zip(
        said[6:9],
        [
            f"topic 'views' {why} {topics})",
            f"topic 'other' {why} {topics})",
            f"topic 'clicks', partition 0, {why} {topics}/clicks/0)",
        ],
        strict=True,
    ):
        assert text.startswith(f"TopicError: {where}.\n{fix}")
    assert said[9:] == ["None", "True"]
    assert is_whole
