"""`millpond state top`: the keys that keep most, or change most often."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.output import show
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state

__all__ = ["top"]


def top(
    target: Target,
    by: Annotated[str, typer.Option(help="bytes, values or changes.")] = "bytes",
    limit: Annotated[int, typer.Option(min=1, help="So many keys.")] = 10,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the keys that keep most, or change most often."""
    found = open_state(target, group, config).top(limit, by)
    show((size._asdict() for size in found), as_json)
