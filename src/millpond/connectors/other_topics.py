"""Which topics there are, for messages about one that is missing.

Takes a name and the names of all topics; gives sentences that list them and name a close match.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["other_topics", "warning_of_new_input"]

# Names that a message lists.
_SHOWN = 10


def other_topics(name: str, known: Iterable[str]) -> str:
    """Return which topics there are besides one, and which of them may be meant."""
    others = [other for other in known if other != name]
    if not others:
        return "There are no other topics."
    shown = ", ".join(others[:_SHOWN]) + " and more" * (len(others) > _SHOWN)
    close = get_close_matches(name, others, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"Topics there are: {shown}.{hint}"


def warning_of_new_input(name: str, known: Iterable[str]) -> str:
    """Return the warning about a topic that was created because a program reads it."""
    return (
        f"input topic {name!r} did not exist and was created; nothing has been written to it. "
        f"{other_topics(name, known)}"
    )
