"""Which step is at work, from the frames of a thread or of an exception.

Our functions keep their step in a variable, so nothing has to be noted for it while records flow.
"""

from __future__ import annotations

from collections.abc import Iterable
from traceback import walk_tb
from types import FrameType

from millpond.arguments.callsite import PACKAGE
from millpond.program.steps import Step
from millpond.worker.emit import StepFailure

__all__ = ["ENDINGS", "failure_of", "step_in"]

# What a function raises that wants its process, or a generator, to end. It has no say in that.
ENDINGS = (SystemExit, GeneratorExit)


def step_in(frames: Iterable[FrameType]) -> tuple[Step | None, list[FrameType]]:
    """Return the innermost step that is at work, and the frames of the user's that it called.

    Args:
        frames: The innermost first.
    """
    users = []
    for frame in frames:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            users.append(frame)
            continue
        named = frame.f_locals
        for step in (named.get("step"), getattr(named.get("self"), "_step", None)):
            if isinstance(step, Step):
                return step, users
    return None, []


def failure_of(error: BaseException, instead: Step) -> StepFailure:
    """Return the failure that an exception is, which came out of a step.

    Args:
        error: A failure, or what nobody has made one of.
        instead: The step that it is laid to where none is found.
    """
    if isinstance(error, StepFailure):
        return error
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    step, _ = step_in(reversed(frames))
    return StepFailure(step or instead, error)
