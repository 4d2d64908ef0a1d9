"""`millpond state audit`: what was done to the state manually."""

from __future__ import annotations

from millpond.cli.state.output import show
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state
from millpond.storage.audit import event_of

__all__ = ["audit"]

_COLUMNS = ("at", "what", "by", "generation", "batch")


def audit(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Show what was done to the state manually."""
    entries = open_state(target, group, config).audit()
    if not as_json:
        entries = [
            {**{name: entry.get(name) for name in _COLUMNS}, "details": event_of(entry).text}
            for entry in entries
        ]
    show(entries, as_json)
