"""What to write instead of a method that an object does not have.

Takes the name that was asked for; gives an `AttributeError` that says what to call first, or which
name is close.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from millpond.arguments.callsite import here

__all__ = ["missing", "public"]


def missing(owner: str, name: str, known: Iterable[str], hints: Mapping[str, str]) -> Exception:
    """Return the error for a name that an object does not have.

    Args:
        owner: What the object is, for people.
        name: What was asked of it.
        known: The names that it has.
        hints: For names of other objects, what to write.
    """
    if name.startswith("_"):  # protocols of Python, of notebooks, of pickle
        return AttributeError(name)
    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    fix = hints.get(name) or (
        f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}."
    )
    return AttributeError(f"{owner} has no {name!r} ({here()}).\nFix: {fix}")


def public(kind: type) -> list[str]:
    """Return the names that a class offers."""
    return [name for name in dir(kind) if not name.startswith("_")]
