"""`millpond state audit`: what was done to the state manually."""

from __future__ import annotations

from millpond.cli.state.output import cell, show
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state

__all__ = ["audit"]


def audit(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Show what was done to the state manually."""
    entries = open_state(target, group, config).audit()
    if as_json:
        show(entries, as_json)
        return
    named = ("at", "what", "by", "generation", "batch")
    show(
        (
            {
                **{name: entry.get(name) for name in named},
                "details": "\n".join(
                    f"{name}: {cell(value)}" for name, value in entry.items() if name not in named
                ),
            }
            for entry in entries
        ),
        as_json,
    )
