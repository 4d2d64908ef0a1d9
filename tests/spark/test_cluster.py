"""The quick start on a standalone cluster: a master and two workers from the pip package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "programs" / "quickstart.py"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Daemon:
    """A master or worker, started here and stopped by its own id."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.log = folder / f"{name}.log"
        home = str(Path(pyspark.__file__).parent)
        self.process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments],
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[0]
            time.sleep(0.2)
        raise AssertionError(self.log.read_text()[-3000:])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    deploy, common = (
        "org.apache.spark.deploy",
        ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
    )
    master = Daemon(tmp_path, "master", f"{deploy}.master.Master", *common)
    daemons = [master]
    try:
        address = master.wait_for(r"spark://127\.0\.0\.1:[1-9]\d*")
        for number in (1, 2):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"))
            worker = Daemon(
                tmp_path, f"worker{number}", f"{deploy}.worker.Worker", *common, *size, address
            )
            daemons.append(worker)
            worker.wait_for("Successfully registered with master")
        yield address
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


def test_the_quick_start_runs_on_a_cluster_with_nothing_but_the_master_changed(cluster, tmp_path):
    # From another folder, so that nothing is found by accident of the current one.
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), cluster],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    expected = sorted((f"user-{i}".encode(), 100) for i in range(10))
    assert done.stdout.strip() == str(expected)
