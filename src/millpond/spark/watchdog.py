"""What a run waits for, and when it gives up.

Takes the places of the workers, the readers and what the driver waits for itself; gives all that
does not answer, ends a run whose record takes too long, and names the step and the record where a
worker was lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from millpond.connectors.protocols import SourceReader
from millpond.driver.waiting import WORTH_A_WORD, Waiting, Waits
from millpond.errors import EngineError, MillpondError, StepError
from millpond.program.plan import Plan
from millpond.spark.internals.error_texts import lost_task
from millpond.spark.worker_places import Places, Worker
from millpond.state.codec import Codec
from millpond.wire.place import RUNS

__all__ = ["Watchdog"]

_AGAIN = "and run again: the run continues with this batch, nothing of it was committed"
_FIX_LOST = f"correct the function, or give the machine more memory, {_AGAIN}"
_FIX_SLOW = f"correct what the function waits for, or raise step_timeout, {_AGAIN}"


class Watchdog:
    """Looks at a run.

    Args:
        folder: Where its workers keep their places; None: they are on other machines.
        plan: What runs.
        codec: Reads keys.
        readers: What reads its sources.
        step_timeout: Seconds that one record may take.
    """

    def __init__(
        self,
        folder: Path | None,
        plan: Plan,
        codec: Codec,
        readers: Mapping[str, SourceReader],
        step_timeout: float | None,
    ) -> None:
        self.waits = Waits()
        self.waiting: list[Waiting] = []
        """What has not answered for a while."""
        self._readers = [reader for reader in readers.values() if reader.waits_for]
        self._step_timeout = step_timeout
        names = {name: r.waits_for for name, r in readers.items() if r.waits_for}
        self._places = None if folder is None else Places(folder, plan, codec, names)

    def look(self) -> list[Waiting]:
        """Return what does not answer.

        Raises:
            StepError: a record takes longer than is allowed; its worker has been ended.
        """
        waiting = self.waits.now() + self._away()
        workers = [] if self._places is None else self._places.look()
        if self._places is not None:
            waiting += self._places.waiting(workers)
        self.waiting = [one for one in waiting if one.seconds >= WORTH_A_WORD]
        for worker in workers:
            if worker.spot.doing == RUNS:
                self._check_time(worker)
        return self.waiting

    def _away(self) -> list[Waiting]:
        """Return the brokers that gave no answer when they were last asked."""
        now, wall = time.monotonic(), time.time()
        away = [(reader.waits_for, reader.away_since) for reader in self._readers]
        since = {name: min(at for n, at in away if at and n == name) for name, at in away if at}
        return [
            Waiting(f"waiting for {name}", wall - (now - at), now - at)
            for name, at in since.items()
        ]

    def _check_time(self, worker: Worker) -> None:
        limit, seconds = self._step_timeout, time.monotonic() - worker.since
        if limit is None or self._places is None or seconds < limit:
            return
        error = f"has taken {seconds:.0f} s, and step_timeout is {limit:g} s,"
        failure = self._places.failure(worker, error, _FIX_SLOW)
        self._places.kill(worker.pid)
        raise StepError(failure)

    def named(self, error: EngineError) -> MillpondError:
        """Return what ended a query; where a worker was lost, with step and record."""
        task = lost_task(str(error))
        lost = self._places.lost(task) if self._places and task is not None else None
        if lost is None or self._places is None:
            return error
        twice = " twice" if lost.spot.is_exact else ""
        what = f"lost its worker process{twice} (os._exit, a crash, or out of memory),"
        return StepError(self._places.failure(lost, what, _FIX_LOST))

    def kill_busy(self) -> None:
        """End the workers of this machine that still have something in hand."""
        if self._places is not None:
            self._places.kill_busy()
