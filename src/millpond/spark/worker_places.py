"""What the workers of a run are at, as the driver sees it, and which of them was lost.

Takes the folder where workers keep their places (`watched`); gives what takes long, the failure
that a lost worker stands for, and ends workers that do not end by themselves. With a local master
only: workers of a cluster are on other machines.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.arguments.callsite import PACKAGE
from millpond.driver.waiting import Waiting
from millpond.errors import Failure, shown
from millpond.folders import is_locked
from millpond.program.plan import Plan
from millpond.program.steps import Read, Step
from millpond.spark.activity import ASKED, BEAT, TEXT, trace_file
from millpond.state.codec import Codec
from millpond.wire.place import IDLE, READS, RUNS, SIZE, SPARE, Spot
from millpond.worker.key_group import key_decoder

__all__ = ["Places"]

# Seconds without a sign of the thread that looks after which a call into C is taken to hold
# Python's lock.
_SILENT = 5.0

# Seconds in which a worker that is asked for its lines writes them.
_ANSWER = 0.05

_FIX_SLOW = (
    "wait, if it may take so long; else correct what the function waits for. "
    "Application(step_timeout=60) ends a run whose record takes longer"
)


@dataclass(frozen=True)
class Worker:
    """A worker that has something in hand."""

    pid: int
    spot: Spot
    since: float
    """Since when nothing has moved, by the monotonic clock."""
    activity: dict[str, Any]
    """What its own thread saw; empty where it could not look."""
    is_lost: bool = False


class Places:
    """The places of the workers of one run."""

    def __init__(
        self, folder: Path, plan: Plan, codec: Codec, waits_for: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._steps = list(plan.children)
        self._codec = codec
        self._waits_for = waits_for
        """What is waited for where a source gives nothing, for some sources."""
        self._moved: dict[int, tuple[tuple[int, ...], float, float, float]] = {}
        """Of each worker: where it was, since when; its thread's last sign, and since when."""

    def look(self) -> list[Worker]:
        """Return the workers that are at something, and since when."""
        now, found = time.monotonic(), []
        for pid, data in self._files():
            spot, (beat,) = Spot.read(data), BEAT.unpack_from(data, SPARE)
            where = (spot.doing, spot.turn, spot.index, spot.first if spot.is_exact else 0)
            old, since, sign, heard = self._moved.get(pid, ((), now, beat, now))
            since, heard = since if where == old else now, heard if sign == beat else now
            self._moved[pid] = where, since, beat, heard
            activity = _activity_in(data)
            if spot.doing == RUNS and activity.get("turn") == spot.turn:
                found.append(Worker(pid, spot, activity["since"], activity))
            elif spot.doing == READS or (spot.doing == RUNS and now - heard >= _SILENT):
                found.append(Worker(pid, spot, since if spot.doing == READS else heard, {}))
        return found

    def waiting(self, workers: list[Worker]) -> list[Waiting]:
        """Return what takes long, in words."""
        now, wall = time.monotonic(), time.time()
        found = []
        for worker in workers:
            seconds, spot = now - worker.since, worker.spot
            if spot.doing == READS:
                source = self._plan.topics[spot.source]
                place = f"{source}/{spot.partition} from offset {spot.first} on"
                by = self._waits_for.get(source, f"the source {source!r}")
                what, more, fix = f"waiting for {by}: {place}", "", ""
            else:
                failure = self.failure(worker, "", "")
                step = f"{failure.step} ({failure.call_site})"
                what, more = f"{step} is {failure.place}", _line(failure.traceback)
                fix = _FIX_SLOW
            found.append(Waiting(what, wall - seconds, seconds, more, fix))
        return found

    def failure(self, worker: Worker, error: str, fix: str) -> Failure:
        """Return what is to be said of a worker that is given up."""
        if worker.activity:
            return self._of_activity(worker.activity, error, fix)
        spot = worker.spot
        trace = self._trace(worker)
        steps, place = self._steps_of(spot, trace), self._place(spot)
        is_record = spot.is_exact and spot.partition >= 0
        return Failure(
            step=" or ".join(str(step) for step in steps),
            call_site=", ".join(str(step.call_site) for step in steps),
            topic=self._topic(spot.source),
            partition=spot.partition,
            offset=spot.first,
            key=shown(self._key(spot)) if is_record else "",
            error=error,
            traceback=trace,
            place=place,
            fix=fix,
        )

    def lost(self, task: int) -> Worker | None:
        """Return the worker that a task of Spark's was lost with."""
        for pid, data in self._files(alive=False):
            spot = Spot.read(data)
            if spot.task == task and spot.doing != IDLE:
                return Worker(pid, spot, time.monotonic(), {}, is_lost=True)
        return None

    def kill(self, pid: int) -> None:
        """End a worker that takes too long."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_busy(self) -> None:
        """End the workers that still have something in hand, whatever they do with signals."""
        for pid, data in self._files():
            if Spot.read(data).doing != IDLE:
                self.kill(pid)

    # --- what files say ---------------------------------------------------------------------

    def _files(self, *, alive: bool = True) -> list[tuple[int, bytes]]:
        """Return the places of the processes that live, or of all that there were."""
        found = []
        with suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                if not file.suffix and (not alive or is_locked(file)):
                    data = file.read_bytes()
                    if len(data) == SIZE:
                        found.append((int(file.name), data))
        return found

    def _of_activity(self, activity: dict[str, Any], error: str, fix: str) -> Failure:
        topic, partition = activity["topic"], activity["partition"]
        key, offset = activity["key"], activity["offset"]
        place = f"{topic}/{partition}/{offset}, key {key}"
        if partition < 0:
            place = f"a timer of key {key}, due at {offset}"
        lines = (f'  File "{file}", line {n}, in {name}' for file, n, name in activity["stack"])
        names = ("step", "call_site", "topic", "partition", "offset", "key")
        return Failure(
            **{name: activity[name] for name in names},
            error=error,
            traceback=_traced(lines),
            place=f"at {place}",
            fix=fix,
        )

    def _topic(self, source: int) -> str:
        return self._plan.topics[source] if 0 <= source < len(self._plan.topics) else ""

    def _place(self, spot: Spot) -> str:
        first = f"{self._topic(spot.source)}/{spot.partition}/{spot.first}"
        if spot.is_exact and spot.has_key:
            key = shown(self._key(spot))
            if spot.partition < 0:
                return f"at a timer of key {key}, due at {spot.first}"
            return f"at {first}, key {key}"
        if spot.source < 0:
            return f"at the timers of key group {spot.group}"
        last = f"{self._topic(spot.last_source)}/{spot.last_partition}/{spot.last}"
        group = f" of key group {spot.group}" if spot.group >= 0 else ""
        return f"at one of the records {first} to {last}{group}"

    def _key(self, spot: Spot) -> Any:
        """Return the key of a record, as far as it can be read."""
        if spot.key is None:
            return None
        stage = self._plan.stages[spot.stage]
        try:
            if spot.group >= 0:
                return key_decoder(self._plan, stage.scope, self._codec)(spot.key)
            return self._plan.reads[spot.source].source.key_deserializer(spot.key)
        except Exception:  # it is the user's function, or the key was cut
            return spot.key

    def _steps_of(self, spot: Spot, trace: str) -> list[Step]:
        """Return the step that was at work, or those that may have been."""
        if 0 <= spot.step < len(self._steps):
            return [self._steps[spot.step]]
        steps = [s for s in self._plan.stages[spot.stage].steps if not isinstance(s, Read)]
        named = [step for step in steps if f", in {step.name}\n" in f"{trace}\n"]
        return named[-1:] or steps or list(self._plan.stages[spot.stage].steps)

    def _trace(self, worker: Worker) -> str:
        """Return the user's lines at work: those that a crash left, or a worker says when asked."""
        file = trace_file(self._folder / str(worker.pid))
        if ASKED is not None and not worker.is_lost and file.exists():
            os.truncate(file, 0)
            with suppress(ProcessLookupError):
                os.kill(worker.pid, ASKED)
            time.sleep(_ANSWER)
        found = re.findall(r'  File "(.*)", line (\d+) in (.*)', _read(file))
        users = []
        for path, line, name in found:  # the innermost first
            if path.startswith(PACKAGE):
                break
            users.append(f'  File "{path}", line {line}, in {name}')
        return _traced(reversed(users))


def _activity_in(data: bytes) -> dict[str, Any]:
    start = SPARE + BEAT.size
    (length,) = TEXT.unpack_from(data, start)
    place = start + TEXT.size
    try:
        return dict(json.loads(data[place : place + length])) if length else {}
    except ValueError:  # it is being written
        return {}


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _traced(lines: Any) -> str:
    text = "\n".join(lines)
    return f"Traceback (most recent call last):\n{text}" if text else ""


def _line(trace: str) -> str:
    """Return file and line of the user's own function, the outermost of a traceback."""
    found = re.search(r'File "(.*)", line (\d+)', trace)
    return "" if found is None else f"{Path(found[1]).name}:{found[2]}"
