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


def test_a_full_and_a_read_only_disk_are_told_of_and_nothing_is_lost(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f'mount -t tmpfs -o size=24m tmpfs "{disk}" && exec "$@"'
    # A namespace of its own, in which anybody may mount: nobody else sees the small disk.
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh"]
    program = [sys.executable, str(PROGRAM), str(tmp_path)]
    done = subprocess.run(
        namespace + program, capture_output=True, text=True, timeout=300, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])

    full, read_only = result["told"]
    assert "No space left on device" in full and "Fix: make room" in full
    assert "Read-only file system" in read_only and "Fix: make room" in read_only
    assert "\tat " not in full + read_only
    totals = {f"key-{k}": list(accumulate(range(k, 120, 5))) for k in range(5)}
    assert result["kept"] == {key: values[-1] for key, values in totals.items()}
    assert len(result["written"]) == 120
    for key, values in totals.items():
        assert [value for k, value in result["written"] if k == key] == values
