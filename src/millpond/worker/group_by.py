"""`group_by`: a new key for each record."""

from __future__ import annotations

from typing import Any

from millpond.program.steps import KeyBy
from millpond.worker.emit import Push, StepFailure, failed

__all__ = ["key_by"]


def key_by(step: KeyBy, give: Push) -> Push:
    function = step.function
    if step.field is not None:
        return _key_by_field(step, step.field, give)

    def key_by(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = function(value)
        except Exception as error:
            failed(step, error)
            return
        give(value, new, timestamp, headers)

    return key_by


def _key_by_field(step: KeyBy, name: str, give: Push) -> Push:
    """The commonest key of all, without the calls in between."""

    def key_by(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = value[name]
        except Exception:
            try:
                new = step.function(value)
            except Exception as better:
                raise StepFailure(step, better) from better
        give(value, new, timestamp, headers)

    return key_by
