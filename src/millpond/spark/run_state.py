"""What the threads of a run share."""

from __future__ import annotations

import threading
import time

from millpond.driver.gather import BatchReport
from millpond.driver.held_back import HeldBack
from millpond.driver.timekeeper import Timekeeper
from millpond.storage.directory import StateDirectory
from millpond.storage.manifest import Manifest

__all__ = ["CommittedOffsets", "RunState"]

# Seconds for which offsets that must be fetched from another machine are taken as known.
_FRESH = 0.5


class RunState:
    """What a batch changes and the main thread reads.

    The thread in which Spark calls back handles batches; the main thread decides when to stop, and
    shows progress. Every access of both holds the lock.
    """

    def __init__(self, keeper: Timekeeper) -> None:
        self._lock = threading.Lock()
        self._keeper = keeper
        self._outputs = 0
        self._busy = time.monotonic()

    @property
    def outputs(self) -> int:
        """How many records have come out."""
        with self._lock:
            return self._outputs

    @property
    def busy_since(self) -> float:
        """When the last batch ended, or was last seen at work."""
        with self._lock:
            return self._busy

    def is_at_work(self, now: float) -> None:
        """Note that a batch is at work."""
        with self._lock:
            self._busy = now

    def observe(self, report: BatchReport, now: int, marks: dict[str, int]) -> None:
        """Note what a batch has seen of the time, and how much came out."""
        with self._lock:
            self._keeper.observe(report, now, marks)
            self._outputs += report.outputs

    def is_settled(self, now: int) -> bool:
        """Tell whether nothing is due, nor would be if every source stayed quiet from here on."""
        with self._lock:
            return self._keeper.is_settled(now)

    def held_back(self, now: int) -> list[HeldBack]:
        """Return the sources that hold a watermark back."""
        with self._lock:
            return self._keeper.held_back(now)


class CommittedOffsets:
    """Where the sources stand after the last committed batch.

    The main thread, the feeder of lists and the thread that knows the lag ask; the lock covers what
    was found last.
    """

    def __init__(self, directory: StateDirectory, manifest: Manifest) -> None:
        self._lock = threading.Lock()
        self._directory = directory
        self._manifest = manifest
        self._offsets: dict[str, dict[str, int]] = {}
        self._looked = -_FRESH

    def now(self) -> dict[str, dict[str, int]]:
        """Return the offsets; those of a state directory elsewhere may be half a second old."""
        with self._lock:
            at = time.monotonic()
            if self._directory.folder.is_local or at - self._looked > _FRESH:
                self._offsets = self._directory.committed_offsets(self._manifest)
                self._looked = at
            return self._offsets

    def position(self, source: str) -> int:
        """Return how many records of a source were read, over all its partitions."""
        return sum(self.now().get(source, {}).values())

    def look_again(self) -> None:
        """Let the next question be answered from the state directory."""
        with self._lock:
            self._looked = -_FRESH
