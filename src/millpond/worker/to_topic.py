"""`to_topic`, `print` and `sink`: records that leave and also go on."""

from __future__ import annotations

from typing import Any

from millpond.connectors.topic import Topic
from millpond.errors import MillpondError, shown
from millpond.program.steps import Write
from millpond.worker.emit import Emitter, Push, StepFailure
from millpond.worker.fan_out import nothing

__all__ = ["emit", "write"]


def write(step: Write, emitter: Emitter, give: Push) -> Push:
    if step.choose is None:
        return emit(emitter.push(), give)
    choose = step.choose

    def write(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            topic = choose(value, key, timestamp, headers)
            if not isinstance(topic, Topic):
                raise _not_a_topic(topic)
        except Exception as error:
            raise StepFailure(step, error) from error
        emitter.add((value, topic), key, timestamp, headers, topic.name)
        give(value, key, timestamp, headers)

    return write


def emit(add: Push, give: Push) -> Push:
    if give is nothing:
        return add

    def emit(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        add(value, key, timestamp, headers)
        give(value, key, timestamp, headers)

    return emit


def _not_a_topic(given: Any) -> MillpondError:
    return MillpondError(
        f"the function given to to_topic() must return a topic, got {shown(given)}.\n"
        "Fix: make the topics with app.topic(...) and return one of them."
    )
