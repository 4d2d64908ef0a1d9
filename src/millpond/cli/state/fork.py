"""`millpond state fork`: a copy that goes on under another name."""

from __future__ import annotations

from millpond.cli.state.output import answer
from millpond.cli.state.target import AsJson, At, Config, Group, Target, open_state

__all__ = ["fork"]


def fork(
    target: Target,
    new_group: str,
    at: At = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Copy the state to another group, which goes on by itself."""
    batch = open_state(target, group, config).fork(new_group, at)
    answer(f"Group {new_group} goes on from batch {batch}.", as_json, group=new_group, batch=batch)
