"""`millpond state get`: what one key keeps."""

from __future__ import annotations

from millpond.cli.state.keys import by_key
from millpond.cli.state.output import nothing, show_items
from millpond.cli.state.target import AsJson, At, Config, Group, Store, Target, open_state

__all__ = ["get"]


def get(
    target: Target,
    key: str,
    store: Store = None,
    at: At = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what one key keeps, now or at a past batch."""
    opened = open_state(target, group, config)
    found = by_key(key, lambda k: opened.items(k, store, at))
    if not found:
        nothing(f"key {key!r} keeps nothing.", as_json)
    show_items(found, as_json)
