"""`millpond state ls`: groups with their stores, keys, bytes and batches."""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table

from millpond.cli.loading import is_program
from millpond.cli.state.output import cell, console, show, time_text
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state
from millpond.errors import DamagedStateError
from millpond.operations.session import groups_in

__all__ = ["list_groups"]


def list_groups(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """List groups with their stores, keys, bytes, batches and watermark."""
    names = [group]
    if group is None and not is_program(target):
        names = list(groups_in(target, lambda: open_state(target, "any", config)._opened.files()))
        if not names:
            typer.echo(f"No groups in {target}.", err=as_json)
            raise typer.Exit(1)
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            info = open_state(target, name, config).info()
        except DamagedStateError as error:
            rows.append({"group": name, "damaged": str(error).partition("\n")[0]})
            continue
        rows.append(
            {
                "group": info.group,
                "running": info.running,
                "generation": info.generation,
                "generations": info.generations,
                "stores": info.stores,
                "keys": info.keys,
                "bytes": info.bytes,
                "partitions": info.partitions,
                "first_batch": info.first_batch,
                "last_batch": info.last_batch,
                "last_commit": time_text(info.last_commit_ms),
                "watermarks": {name: time_text(mark) for name, mark in info.watermarks.items()},
            }
        )
    if as_json:
        show(rows, as_json)
        return
    for row in rows:
        table = Table(show_header=False)
        for name, value in row.items():
            table.add_row(name.replace("_", " "), _fact(name, value))
        console.print(table)


def _fact(name: str, value: Any) -> str:
    if name == "keys" and value is None:
        return "not known until the next run"
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if name == "watermarks":
        return "\n".join(f"{source} {mark}" for source, mark in value.items())
    return f"{value:,}" if type(value) is int else cell(value)
