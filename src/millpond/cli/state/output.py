"""How things look: tables and sentences for people, JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from millpond.operations.items import StateItem

__all__ = [
    "at_most",
    "cell",
    "confirm",
    "answer",
    "nothing",
    "placed",
    "short_time",
    "show",
    "show_items",
    "time_text",
]


console = Console()

# Columns that show values as JSON has them: "8" is a text, 8 a number.
_VALUES = ("value", "before", "after")

T = TypeVar("T")


def show_items(found: Iterable[StateItem], as_json: bool) -> None:
    """Print values with the full names of their stores."""
    rows = ({**placed(item._asdict()), "expires": time_text(item.expires)} for item in found)
    show(rows, as_json)


def placed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the full name of its store."""
    full = f"{row.pop('scope')}/{row.pop('store')}"
    return {"store": full, **row}


def at_most(limit: int, found: Iterable[T]) -> Iterator[T]:
    """Yield so many, and say where there are more; 0: all."""
    for number, one in enumerate(found):
        if limit and number == limit:
            typer.echo(f"There are more than {limit:,}; --limit 0 shows all.", err=True)
            return
        yield one


def nothing(text: str, as_json: bool) -> NoReturn:
    """Say that there is nothing of what was asked for; programs see it by the exit code."""
    typer.echo(text, err=as_json)
    raise typer.Exit(1)


def answer(text: str, as_json: bool, **fields: Any) -> None:
    """Say what was done: a sentence for people, or a JSON object."""
    typer.echo(json.dumps(fields, default=cell) if as_json else text)


def show(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows: a table for people, or one JSON object a line."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, default=cell))
        return
    whole = list(rows)
    names = list(dict.fromkeys(name for row in whole for name in row))
    table = Table()
    for name in names:
        keeps_line = name in ("batch", "time", "at")
        table.add_column(name.replace("_", " "), no_wrap=keeps_line, overflow="fold")
    for row in whole:
        table.add_row(*(cell(row.get(name), name) for name in names))
    console.print(table if names else "Nothing.")


def cell(value: Any, column: str = "") -> str:
    """Return the text of a value in a table."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str) and column not in _VALUES:
        return value
    text = json.dumps(value, ensure_ascii=False, default=cell)
    return text if len(text) <= 200 else text[:199] + "…"


def time_text(time_ms: int | None) -> str | None:
    """Return a time with its offset, so that it can be given back as --at."""
    if time_ms is None:
        return None
    try:
        local = datetime.fromtimestamp(time_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):  # before the year 1, or after 9999
        return f"{time_ms} ms"
    return local.isoformat(timespec="milliseconds")


def short_time(time_ms: int) -> str:
    """Return a time for people: of today without the day."""
    moment = datetime.fromtimestamp(time_ms / 1000)
    is_today = moment.date() == datetime.now().date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%dT%H:%M:%S")


def confirm(text: str, yes: bool, as_json: bool) -> None:
    """Show what would be done, and end the command unless the user agrees."""
    typer.echo(text, err=as_json)
    if not yes:
        typer.confirm("Go on?", abort=True)
