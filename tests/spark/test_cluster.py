"""The quick start on a standalone cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "programs" / "quickstart.py"


def test_the_quick_start_runs_on_a_cluster_with_nothing_but_the_master_changed(tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        # From another folder, so that nothing is found by accident of the current one.
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(tmp_path), cluster.address],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
        )

    assert done.returncode == 0, done.stderr
    expected = sorted((f"user-{i}".encode(), 100) for i in range(10))
    assert done.stdout.strip() == str(expected)
