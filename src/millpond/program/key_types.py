"""Of what type the keys of a frame are, where the topic or source says it.

Takes a step; gives the Python type of the keys that come by it. Records whose keys are of two types
never meet in a join, whatever the keys say: "7" is not b"7", and not 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.connectors.serde import key_form
from millpond.program.steps import KeyBy, Read, Step

__all__ = ["KeyType", "key_type"]

_TYPES = {"bytes": bytes, "str": str, "int": int, "double": float}


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of the keys of a topic or a source."""

    type: type
    source: str


def key_type(step: Step) -> KeyType | None:
    """Return of what type the keys are; None: a `group_by` decides it, record by record."""
    if isinstance(step, KeyBy):
        return None
    if isinstance(step, Read):
        found = _TYPES.get(key_form(step.source.key_deserializer))
        return None if found is None else KeyType(found, step.source.name)
    above = [key_type(parent) for parent in step.parents]
    types = {one.type for one in above if one is not None}
    return above[0] if len(types) == 1 and None not in above else None
