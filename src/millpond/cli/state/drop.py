"""`millpond state drop`: stores go from all keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from millpond.cli.state.output import answer
from millpond.cli.state.plan import apply_plan
from millpond.cli.state.target import AsJson, Config, DryRun, Group, Target, Yes, open_state

__all__ = ["drop"]


def drop(
    target: Target,
    stores: Annotated[list[str], typer.Argument(help="Stores (a/b), or a whole key scope (a).")],
    dry_run: DryRun = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Drop stores: their values and timers go from all keys, in a new generation."""
    opened = open_state(target, group, config)
    plan = opened.drop(*stores, dry_run=True)
    apply_plan(opened, plan, "drop", dry_run=dry_run, yes=yes, as_json=as_json)
    answer(f"{', '.join(plan.stores)} dropped.", as_json, **asdict(plan))
