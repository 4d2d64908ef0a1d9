"""`millpond state verify`: what is damaged."""

from __future__ import annotations

from dataclasses import asdict

import typer

from millpond.cli.state.output import answer, show
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state

__all__ = ["verify"]


def verify(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Read every file of the state and say what is damaged."""
    opened = open_state(target, group, config)
    found = opened.verify()
    home = f"{opened.folder}/"
    text = f"{found.files:,} files, {found.bytes:,} bytes, {found.values:,} values"
    if as_json:
        answer(text, as_json, **asdict(found))
    elif found.problems:
        typer.echo(f"In {opened.folder}:")
        rows = [{"file": p.file.removeprefix(home), "problem": p.what} for p in found.problems]
        show(rows, as_json)
    else:
        typer.echo(f"{text}: whole, as of batch {found.batch}.")
    if found.history and not as_json:
        typer.echo("Damaged, and needed only to look at older batches or to go back to them:")
        rows = [{"file": p.file.removeprefix(home), "problem": p.what} for p in found.history]
        show(rows, as_json)
    if found.problems:
        typer.echo(f"Fix: millpond state repair {target}", err=True)
        raise typer.Exit(1)
