"""`millpond state drop`: stores go from all keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from millpond.cli.state.output import answer, confirm
from millpond.cli.state.target import AsJson, Config, Group, Target, Yes, open_state

__all__ = ["drop"]


def drop(
    target: Target,
    stores: Annotated[list[str], typer.Argument(help="Stores (a/b), or a whole key scope (a).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Drop stores: their values and timers go from all keys, in a new generation."""
    opened = open_state(target, group, config)
    meant = opened.drop(*stores, dry_run=True)
    if dry_run:
        answer(f"{meant}.", as_json, **asdict(meant))
        return
    opened.check_free("drop")
    confirm(f"{meant}.", yes, as_json)
    opened.drop(*meant.stores)
    answer(f"{', '.join(meant.stores)} dropped.", as_json, **asdict(meant))
