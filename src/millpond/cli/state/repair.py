"""`millpond state repair`: back to the last batch that is whole."""

from __future__ import annotations

from dataclasses import asdict

from millpond.cli.state.output import answer
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state

__all__ = ["repair"]


def repair(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Go back to the last batch that is whole; say what will be replayed."""
    done = open_state(target, group, config).repair()
    answer(f"{done}.", as_json, **asdict(done))
