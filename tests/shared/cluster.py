"""A standalone Spark cluster for tests: a master and two workers from the pip package.

Takes a folder for logs and work; gives the address of the master. The workers share no folder.
Everything listens on 127.0.0.1, and each process is stopped by its own id.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pyspark

__all__ = ["QUICK_START", "Cluster"]

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
# They end before Java's second compiler has paid for itself.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
COMMON = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Daemon:
    """A master or worker."""

    def __init__(self, folder: Path, name: str, *arguments: str, **environment: str) -> None:
        self.log = folder / f"{name}.log"
        self.process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={
                **os.environ,
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
                **environment,
            },
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
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Cluster:
    """A master and two workers of one core each; a `with` block starts and stops them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._daemons: list[Daemon] = []
        self.address = ""

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        master = Daemon(self._folder, "master", f"{DEPLOY}.master.Master", *COMMON)
        self._daemons.append(master)
        self.address = master.wait_for(r"spark://127\.0\.0\.1:[1-9]\d*")
        for number in (1, 2):
            work = self._folder / f"work{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            kind = f"{DEPLOY}.worker.Worker"
            worker = Daemon(
                self._folder,
                f"worker{number}",
                kind,
                *COMMON,
                *size,
                self.address,
                SPARK_LOCAL_DIRS=str(self._local(number)),
            )
            self._daemons.append(worker)
            worker.wait_for("Successfully registered with master")

    def executors(self) -> list[int]:
        """Return the ids of the processes that work for applications."""
        return _children({daemon.process.pid for daemon in self._daemons[1:]})

    def has_state(self, number: int) -> bool:
        """Tell whether a worker has a copy of state on its disk."""
        return any(self._local(number).rglob("StateStoreId*"))

    def lose(self, number: int) -> None:
        """Let a worker go, with all that was on its disk: its machine is gone."""
        worker = self._daemons[number].process
        for process in [*_children({worker.pid}), worker.pid]:
            os.kill(process, signal.SIGKILL)
        worker.wait()
        shutil.rmtree(self._local(number))
        shutil.rmtree(self._folder / f"work{number}")

    def _local(self, number: int) -> Path:
        return self._folder / f"local{number}"

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()


def _children(parents: set[int]) -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    pairs = (map(int, line.split()) for line in listed)
    return [pid for pid, parent in pairs if parent in parents]
