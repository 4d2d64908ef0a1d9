"""`millpond state set` and `delete`: values of one key."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.keys import key_of, value_of
from millpond.cli.state.output import answer, nothing
from millpond.cli.state.target import AsJson, Config, Group, Store, Target, open_state, pair

__all__ = ["delete", "set_values"]


def set_values(
    target: Target,
    key: str,
    values: Annotated[list[str], typer.Argument(help="NAME=VALUE, the value as JSON or text.")],
    store: Store = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Set values of a key, in a new generation."""
    opened = open_state(target, group, config)
    pairs = {name: value_of(text) for name, text in map(pair, values)}
    chosen = key_of(opened, key, store)
    kept = {item.name for item in opened.items(chosen, store)}
    new = [name for name in pairs if name not in kept]
    changed = opened.set(chosen, pairs, store)
    more = f" New in {key!r}: {', '.join(new)}." if kept else f" {key!r} is a new key."
    text = f"{changed} value(s) changed." + more * bool(new)
    answer(text, as_json, changed=changed, new=new)


def delete(
    target: Target,
    key: str,
    name: Annotated[str | None, typer.Option(help="Only this name.")] = None,
    store: Store = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Delete a key, or one name of it, in a new generation."""
    opened = open_state(target, group, config)
    chosen = key_of(opened, key, store)
    kept = {item.name: item for item in opened.items(chosen, store)}
    if not kept:
        nothing(f"key {key!r} keeps nothing, so nothing was changed.", as_json)
    names = [] if name is None else [n for n in kept if n == name or n == value_of(name)]
    if name is not None and not names:
        known = ", ".join(map(str, kept))
        nothing(f"{key} keeps no {name!r}, so nothing was changed; it keeps {known}.", as_json)
    options = {} if name is None else {"name": names[0]}
    gone = opened.delete(chosen, store=store, **options)
    answer(f"{gone} value(s) deleted.", as_json, deleted=gone)
