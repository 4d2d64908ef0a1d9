"""Of what type the keys of a frame are, where the topic or source says it.

Takes a step; gives the Python type of the keys that come by it. Records whose keys are of two types
never meet in a join, whatever the keys say: "7" is not b"7", and not 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.connectors.serde import key_form
from millpond.errors import MillpondError, shown
from millpond.program.steps import KeyBy, Read, Step

__all__ = ["KeyType", "check_key", "check_meets", "key_field", "key_type"]

_TYPES = {"bytes": bytes, "str": str, "int": int, "double": float}


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of the keys of a topic or a source."""

    type: type
    source: str


def key_field(step: Step) -> str | None:
    """Return the field that the last `group_by` of a frame names; None: there is none."""
    while len(step.parents) == 1 and not isinstance(step, KeyBy):
        step = step.parents[0]
    return step.field if isinstance(step, KeyBy) else None


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


def check_meets(key: Any, other: KeyType | None) -> None:
    """Refuse a key that is equal to none of the other side."""
    if other is None or key is None or type(key) is other.type:
        return
    msg = (
        f"the key {shown(key)} is {type(key).__name__}, and on the other side of the join those of "
        f"{other.source!r} are {other.type.__name__}, so no two are equal."
    )
    same = {str: "str", int: "int", float: "double"}.get(type(key))
    fix = f"join by a key that is {other.type.__name__} on this side, too"
    if other.type is bytes and same is not None:
        # Records of the other side that were read keep the keys that they have.
        fix = (
            f"app.topic({other.source!r}, key_deserializer={same!r}); if a batch has read "
            f"{other.source!r} already, also start over: millpond state clear APP.py "
            "--reset-offsets"
        )
    raise MillpondError(f"{msg}\nFix: {fix}.")


def check_key(key: Any) -> None:
    """Refuse a row without a key."""
    if key is None:
        msg = "a record of a table has no key."
        raise MillpondError(f"{msg}\nFix: give its records one: group_by(...).as_table().")
