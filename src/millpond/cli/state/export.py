"""`millpond state export` and `import`: values to a file and from it."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.output import answer
from millpond.cli.state.target import AsJson, At, Config, Group, Store, Target, open_state

__all__ = ["export", "import_file"]


def export(
    target: Target,
    path: Annotated[str, typer.Argument(help="A .parquet, .csv or .jsonl file.")],
    store: Store = None,
    at: At = None,
    format: Annotated[str | None, typer.Option(help="parquet, csv or json.")] = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write all values to a file."""
    count = open_state(target, group, config).export(path, store, at, format)
    answer(f"{count:,} values written to {path}.", as_json, values=count, path=path)


def import_file(
    target: Target,
    path: str,
    store: Store = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Set the values of a file, in a new generation."""
    changed = open_state(target, group, config).import_file(path, store)
    answer(f"{changed:,} value(s) changed.", as_json, changed=changed)
