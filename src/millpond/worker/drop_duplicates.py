"""`drop_duplicates` at work: a record goes on if the same has not been there before."""

from __future__ import annotations

from typing import Any

from millpond.program.steps import Distinct
from millpond.state.codec import Codec
from millpond.state.view import State
from millpond.worker.emit import Push, StepFailure

__all__ = ["distinct"]


def distinct(step: Distinct, state: State, codec: Codec, give: Push) -> Push:
    """Return the step. State: the encoding of what was seen, as a name, for as long as needed."""
    on = step.on

    def keep_first(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            name = codec.encode_equal(value if on is None else on(value))
            is_new = not state.exists(name)
            if is_new:
                state.set(name, True)
        except Exception as error:
            raise StepFailure(step, error) from error
        if is_new:
            give(value, key, timestamp, headers)

    return keep_first
