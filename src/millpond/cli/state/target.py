"""What the commands have in common: a state directory or a program, and how it is opened."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millpond import admin
from millpond.cli.loading import is_program, load_application
from millpond.errors import ConfigError, shown

__all__ = [
    "AsJson",
    "At",
    "Config",
    "DryRun",
    "Group",
    "Limit",
    "Store",
    "Target",
    "Yes",
    "open_state",
    "pair",
]


Target = Annotated[
    str, typer.Argument(help="APP.py, APP.py:name, pkg.mod:name, or a state directory.")
]
Group = Annotated[str | None, typer.Option("--group", help="The consumer group.")]
Store = Annotated[str | None, typer.Option("--store", help="A store, a key scope, or both: a/b.")]
At = Annotated[str | None, typer.Option("--at", help="A batch, 10:05, or 2026-11-15T10:05.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Limit = Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Config = Annotated[
    list[str] | None, typer.Option("-c", help="NAME=VALUE, a setting of Spark; repeatable.")
]


def open_state(target: str, group: str | None, config: list[str] | None) -> admin.Admin:
    """Return the state that a target names."""
    settings = dict(pair(text) for text in config or [])
    if is_program(target):
        app = load_application(target)
        opened = admin.open(app, group, spark_config=settings or None, plain=True)
    else:
        opened = admin.open(target, group, spark_config=settings or None)
    opened.on_spark(_say_that_it_takes_a_while)
    return opened


def _say_that_it_takes_a_while() -> None:
    if sys.stderr.isatty():
        typer.echo("Spark is starting, which takes some seconds ...", err=True)


def pair(text: str) -> tuple[str, str]:
    """Return the two sides of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"{shown(text)} is no setting.\nFix: NAME=VALUE.")
    return name, value
