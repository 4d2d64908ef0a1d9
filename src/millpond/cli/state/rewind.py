"""`millpond state rewind`: state and input back to a batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from millpond.cli.state.output import answer
from millpond.cli.state.plan import apply_plan
from millpond.cli.state.target import AsJson, Config, DryRun, Group, Target, Yes, open_state

__all__ = ["rewind"]


def rewind(
    target: Target,
    to: Annotated[str, typer.Option("--to", help="A batch or a time.")],
    outputs: Annotated[
        str, typer.Option(help="keep: write nothing twice; again: write all of it again.")
    ] = "keep",
    dry_run: DryRun = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Take state and input back to a batch; the next run goes on from there."""
    opened = open_state(target, group, config)
    plan = opened.rewind(to, outputs, dry_run=True)
    apply_plan(opened, plan, "rewind", dry_run=dry_run, yes=yes, as_json=as_json)
    answer(f"Rewound to batch {plan.batch}.", as_json, **asdict(plan))
