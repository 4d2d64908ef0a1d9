"""`millpond state rename`: state under another name."""

from __future__ import annotations

from millpond.cli.state.output import answer, confirm
from millpond.cli.state.target import AsJson, Config, Group, Target, Yes, open_state

__all__ = ["rename"]


def rename(
    target: Target,
    old: str,
    new: str,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Move state to another name: a store (a/b), a whole key scope (a), or timers (a/f()).

    Timers move from one function of a key scope to another: a/old() a/new().
    """
    opened = open_state(target, group, config)
    opened.rename(old, new, dry_run=True)
    opened.check_free("rename")
    confirm(f"The state of {old} moves to {new}; the program must use that name.", yes, as_json)
    moved = opened.rename(old, new)
    answer(f"{old} is now {new} ({moved:,} written).", as_json, old=old, new=new, written=moved)
