"""`millpond state repair`: back to the last batch that is whole."""

from __future__ import annotations

import sys
from dataclasses import asdict

from millpond.cli.state.output import answer
from millpond.cli.state.plan import apply_plan
from millpond.cli.state.target import AsJson, Config, DryRun, Group, Target, Yes, open_state

__all__ = ["repair"]


def repair(
    target: Target,
    dry_run: DryRun = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Go back to the last batch that is whole; say what will be replayed.

    Asks only at a terminal.
    """
    opened = open_state(target, group, config)
    text = ""
    if dry_run or (sys.stdin.isatty() and not yes):
        plan = opened.repair(dry_run=True)
        if plan.problems:
            apply_plan(opened, plan, "repair", dry_run=dry_run, yes=yes, as_json=as_json)
            text = "Repaired."
    else:  # to read all of the state twice would take long, and nobody looks at the plan
        plan = opened.repair()
    answer(text or f"{plan}.", as_json, **asdict(plan))
