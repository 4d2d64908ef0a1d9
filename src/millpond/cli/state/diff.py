"""`millpond state diff`: what differs between two batches."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.output import at_most, placed, show
from millpond.cli.state.target import AsJson, Config, Group, Limit, Store, Target, open_state

__all__ = ["diff"]


def diff(
    target: Target,
    before: Annotated[str, typer.Argument(help="A batch or a time.")],
    after: Annotated[str | None, typer.Argument(help="Default: the last batch.")] = None,
    store: Store = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what differs between two batches."""
    opened = open_state(target, group, config)
    found = at_most(limit, opened.diff(before, after, store))
    show((placed(difference._asdict()) for difference in found), as_json)
