"""A worker says what it is at, at no cost to the loop that does the work.

Takes a folder of the run; gives the `Place` that a stage keeps, in a file that the driver reads
(`worker_places`). A thread looks once a second which function of the user's the main thread is in,
and on which record. It cannot look while a function in C holds Python's lock: the file's age shows
that, and the driver asks by a signal for the lines that are at work, which C code answers.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark import TaskContext

from millpond.program.steps import Step
from millpond.spark.internals.worker_process import is_crash_written
from millpond.wire.place import RUNS, SIZE, SPARE, Place, Spot
from millpond.worker.current_step import step_in
from millpond.worker.stage import StageRunner

__all__ = ["ASKED", "BEAT", "TEXT", "place_here", "trace_file"]

# In a file, after the numbers of a place: when the thread looked last, and what it saw, as JSON
# with its length in front.
BEAT, TEXT = struct.Struct("@d"), struct.Struct("@q")

# Seconds between two looks.
_TICK = 1.0

# Seconds that a worker lives on when the process that started it is gone: Spark asks it to end,
# and it may have something to close. A function can refuse to be asked.
_ORPHANED = 30.0

# The signal by which the driver asks for the lines at work. Nobody else uses it.
ASKED = signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else None

# Frames that are shown, and characters of each text: all of it fits into the file.
_FRAMES, _TEXT = 12, 400


@dataclass(frozen=True)
class _Shared:
    """The files of this process in the folder of a run."""

    buffer: mmap.mmap
    lock: int
    trace: int


_files: dict[Path, _Shared] = {}

_present: list[_Shared] = []
"""That of the run whose task is, or was last, at work."""


def place_here(folder: Path | None) -> Place:
    """Return the place of this process, for one task."""
    context = TaskContext.get()
    task = -1 if context is None else context.taskAttemptId()
    is_again = context is not None and context.attemptNumber() > 0
    if folder is None or (shared := _shared(folder)) is None:
        return Place(None, task)
    if _present != [shared]:
        is_first, _present[:] = not _present, [shared]
        _tell_of_crashes(shared.trace)
        _forget_ended()
        if is_first:
            threading.Thread(target=_watch, name="millpond-watch", daemon=True).start()
    return Place(shared.buffer, task, is_exact=is_again)


def trace_file(file: Path) -> Path:
    """Return where the lines at work are written, when they are asked for and at a crash."""
    return file.with_suffix(".trace")


def _shared(folder: Path) -> _Shared | None:
    if folder not in _files:
        try:
            _files[folder] = _opened(folder / str(os.getpid()))
        except OSError:  # the run has ended, or there is no room: nothing is shown
            return None
    return _files[folder]


def _forget_ended() -> None:
    """Let go of the files of runs that have ended."""
    for folder in [folder for folder in _files if not folder.exists()]:
        shared = _files.pop(folder)
        os.close(shared.lock)
        os.close(shared.trace)


def _opened(file: Path) -> _Shared:
    lock = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    os.truncate(lock, SIZE)
    fcntl.flock(lock, fcntl.LOCK_SH)  # gone where the process is gone
    trace = os.open(trace_file(file), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    return _Shared(mmap.mmap(lock, SIZE), lock, trace)


def _tell_of_crashes(trace: int) -> None:
    """Have Python write down where it was when it is asked, and when it crashes."""
    if ASKED is not None:
        faulthandler.register(ASKED, trace, all_threads=False)
    if not is_crash_written():
        faulthandler.enable(trace, all_threads=False)


# --- the thread that looks --------------------------------------------------------------------


def _watch() -> None:
    main, parent, orphaned = threading.main_thread().ident, os.getppid(), 0.0
    assert main is not None
    look = _Look()
    while True:
        time.sleep(_TICK)
        with suppress(Exception):  # it is for people: a record that moves on meanwhile is no harm
            look(_present[0].buffer, main)
        orphaned = orphaned + _TICK if os.getppid() != parent else 0.0
        if orphaned >= _ORPHANED:
            os.kill(os.getpid(), signal.SIGKILL)


class _Look:
    """Looks where the main thread is, and writes down what it has been at for a while."""

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] = ()
        self._since = 0.0

    def __call__(self, buffer: mmap.mmap, main: int) -> None:
        now = time.monotonic()
        spot = Spot.read(buffer[:SPARE])
        frames = _frames(sys._current_frames().get(main)) if spot.doing == RUNS else []
        runner, (step, users) = _runner_in(frames), step_in(frames)
        seen = () if runner is None or step is None else (spot.turn, runner.index)
        if seen != self._seen:
            self._seen, self._since = seen, now
            self._write(buffer, {})
        elif runner is not None and step is not None:
            activity = _activity(runner, step, users, spot.turn, self._since)
            if seen == (activity["turn"], runner.index):
                self._write(buffer, activity)
        BEAT.pack_into(buffer, SPARE, now)

    def _write(self, buffer: mmap.mmap, activity: dict[str, Any]) -> None:
        data = json.dumps(activity).encode() if activity else b""
        start = SPARE + BEAT.size
        TEXT.pack_into(buffer, start, 0)  # who reads now finds nothing, and not half of it
        place = start + TEXT.size
        buffer[place : place + len(data)] = data
        TEXT.pack_into(buffer, start, len(data))


def _activity(
    runner: StageRunner, step: Step, users: list[FrameType], turn: int, since: float
) -> dict[str, Any]:
    failure = runner.whereabouts(step)
    lines = ((frame, frame.f_lineno) for frame in users[::-1][:_FRAMES])
    stack = traceback.StackSummary.extract(lines, lookup_lines=False)
    return {
        "turn": turn,
        "since": since,
        "step": failure.step[:_TEXT],
        "call_site": failure.call_site[:_TEXT],
        "topic": failure.topic,
        "partition": failure.partition,
        "offset": failure.offset,
        "key": failure.key[:_TEXT],
        "stack": [[f.filename[-_TEXT:], f.lineno, f.name[:80]] for f in stack],
    }


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread, the innermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _runner_in(frames: list[FrameType]) -> StageRunner | None:
    """Return the stage that is at work."""
    for frame in frames:
        if frame.f_code.co_filename == _STAGE_FILE:
            runner = frame.f_locals.get("self")
            if isinstance(runner, StageRunner):
                return runner
    return None


_STAGE_FILE = StageRunner.run.__code__.co_filename
