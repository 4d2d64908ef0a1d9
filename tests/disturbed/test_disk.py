"""A disk that becomes full, and one that becomes read-only, in the middle of a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "programs" / "disk.py"


@pytest.mark.parametrize("what", ["state", "topics"])
def test_a_full_and_a_read_only_disk_are_reported_and_nothing_is_lost(tmp_path, what):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f'mount -t tmpfs -o size=24m tmpfs "{disk}" && exec "$@"'
    # A namespace of its own, in which anybody may mount: nobody else sees the small disk.
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh"]
    program = [sys.executable, str(PROGRAM), str(tmp_path), what]
    done = subprocess.run(
        namespace + program, capture_output=True, text=True, timeout=300, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])

    full, read_only = result["errors"]
    if what == "state":
        subject = "StateError: the state cannot be written: "
        where, fixes = f"{disk}/state/g", ("Fix: make room", "Fix: make room")
    else:
        subject = "TopicError: topic 'out', partition 0, cannot be written: "
        where = f"(in {disk}/topics/out/0)"
        fixes = "Fix: make room on its disk", "Fix: make the folder writable"
    assert full.startswith(f"{subject}No space left on device") and fixes[0] in full
    assert read_only.startswith(f"{subject}Read-only file system") and fixes[1] in read_only
    assert where in full and where in read_only
    assert "\tat " not in full + read_only
    totals = {f"key-{k}": list(accumulate(range(k, 120, 5))) for k in range(5)}
    assert result["kept"] == {key: values[-1] for key, values in totals.items()}
    assert len(result["written"]) == 120
    for key, values in totals.items():
        assert [value for k, value in result["written"] if k == key] == values
