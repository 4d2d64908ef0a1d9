"""`millpond state clear`: begin without state."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.output import answer, confirm
from millpond.cli.state.target import AsJson, Config, Group, Target, Yes, open_state

__all__ = ["clear"]


def clear(
    target: Target,
    reset_offsets: Annotated[
        bool, typer.Option("--reset-offsets", help="Also read the sources from where they begin.")
    ] = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Begin without state; sources go on where they are, or begin again."""
    opened = open_state(target, group, config)
    opened.check_free("clear")
    where = "sources begin again" if reset_offsets else "sources go on where they are"
    confirm(f"All state of {opened.group} goes; {where}.", yes, as_json)
    opened.clear(reset_offsets=reset_offsets)
    answer("The state is empty.", as_json, reset_offsets=reset_offsets)
