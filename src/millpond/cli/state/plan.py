"""Plans of dangerous changes: printed, agreed to, applied."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer

from millpond import admin
from millpond.cli.state.output import answer
from millpond.operations.basis import Basis

__all__ = ["apply_plan", "show_plan"]

Plan = admin.RewindPlan | admin.RepairPlan | admin.RescalePlan | admin.RestorePlan | admin.DropPlan


def show_plan(plan: Plan, as_json: bool, *, is_all: bool) -> None:
    """Print a plan: the dry run with all of it, a command before it asks.

    Args:
        plan: What would be done.
        as_json: Whether a program reads the output.
        is_all: Whether nothing else is printed.
    """
    text = f"{plan}."
    if isinstance(plan.basis, Basis) and plan.basis.removes:
        kept = ", ".join(map(str, plan.basis.removes))
        text += f"\nRemoved with it: generation {kept}."
    if is_all:
        answer(text, as_json, **asdict(plan))
    else:
        typer.echo(text, err=as_json)


def apply_plan(
    opened: admin.Admin,
    plan: Plan,
    what: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    asks_scripts: bool = True,
) -> Any:
    """Print a plan, ask, and apply it; a dry run ends the command.

    Args:
        opened: The state.
        plan: What would be done.
        what: The command.
        dry_run: Whether only to print it.
        yes: Whether not to ask.
        as_json: Whether a program reads the output.
        asks_scripts: Whether to ask also where nobody sits at a terminal.
    """
    if dry_run:
        show_plan(plan, as_json, is_all=True)
        raise typer.Exit
    opened.check_free(what)
    show_plan(plan, as_json, is_all=False)
    if not yes and (asks_scripts or sys.stdin.isatty()):
        typer.confirm("Go on?", abort=True)
    return opened.apply(plan)
