"""What a step gives, to all that follows it."""

from __future__ import annotations

from typing import Any

from millpond.program.steps import Step
from millpond.wire.any_value import copy_value
from millpond.worker.emit import Push, StepFailure

__all__ = ["fan_out", "nothing"]


def fan_out(sinks: list[Push], nexts: list[Push], step: Step) -> Push:
    """Emitters encode at once, so they share the value; each branch but the last gets a copy."""
    pushes = [*sinks, *nexts]
    if len(pushes) == 1:
        return pushes[0]
    if not pushes:
        return nothing
    *copied, last = nexts or [nothing]

    def give_all(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        for sink in sinks:
            sink(value, key, timestamp, headers)
        for branch in copied:
            try:
                copy = copy_value(value)
            except Exception as error:
                raise StepFailure(step, error) from error
            branch(copy, key, timestamp, headers)
        last(value, key, timestamp, headers)

    return give_all


def nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    pass
