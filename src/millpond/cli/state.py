"""The command `millpond state`: parse, call `millpond.admin`, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from millpond import admin
from millpond.cli.loading import is_program, load_application
from millpond.errors import ConfigError, DamagedStateError, shown
from millpond.operations.items import ChangedValue, StateItem
from millpond.operations.session import groups_in
from millpond.record import Record

__all__ = ["state"]

state = typer.Typer(
    help="Look into state, repair, rewind, rescale and move it. TARGET is APP.py or a state "
    "directory.",
    no_args_is_help=True,
)

_out = Console()

# Columns that show values as JSON has them: "8" is a text, 8 a number.
_VALUES = ("value", "before", "after")

Target = Annotated[
    str, typer.Argument(help="APP.py, APP.py:name, pkg.mod:name, or a state directory.")
]
T = TypeVar("T")
Group = Annotated[str | None, typer.Option("--group", help="The consumer group.")]
Store = Annotated[str | None, typer.Option("--store", help="A store, a key scope, or both: a/b.")]
At = Annotated[str | None, typer.Option("--at", help="A batch, 10:05, or 2026-11-15T10:05.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Limit = Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Config = Annotated[
    list[str] | None, typer.Option("-c", help="NAME=VALUE, a setting of Spark; repeatable.")
]


def _open(target: str, group: str | None, config: list[str] | None) -> admin.Admin:
    settings = dict(_pair(text) for text in config or [])
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


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"{shown(text)} is no setting.\nFix: NAME=VALUE.")
    return name, value


# --- looking --------------------------------------------------------------------------------


@state.command("ls")
def list_groups(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """List groups with their stores, keys, bytes, batches and watermark."""
    names = [group]
    if group is None and not is_program(target):
        names = list(groups_in(target, lambda: _open(target, "any", config)._opened.files()))
        if not names:
            typer.echo(f"No groups in {target}.", err=as_json)
            raise typer.Exit(1)
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            info = _open(target, name, config).info()
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
                "last_commit": _time(info.last_commit_ms),
                "watermarks": {name: _time(mark) for name, mark in info.watermarks.items()},
            }
        )
    if as_json:
        _show(rows, as_json)
        return
    for row in rows:
        table = Table(show_header=False)
        for name, value in row.items():
            table.add_row(name.replace("_", " "), _fact(name, value))
        _out.print(table)


def _fact(name: str, value: Any) -> str:
    if name == "keys" and value is None:
        return "not known until the next run"
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if name == "watermarks":
        return "\n".join(f"{source} {mark}" for source, mark in value.items())
    return f"{value:,}" if type(value) is int else _cell(value)


@state.command()
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
    opened = _open(target, group, config)
    found = _by_key(key, lambda k: opened.items(k, store, at))
    if not found:
        _none(f"key {key!r} keeps nothing.", as_json)
    _items(found, as_json)


@state.command()
def scan(
    target: Target,
    prefix: Annotated[str | None, typer.Option(help="Keys that begin with this.")] = None,
    where: Annotated[
        str | None, typer.Option(help="A Python expression of key, name, value, store.")
    ] = None,
    store: Store = None,
    at: At = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show many values."""
    opened = _open(target, group, config)
    found = opened.scan(prefix, None if where is None else _condition(where), store, at)
    _items(_at_most(limit, found), as_json)


@state.command()
def history(
    target: Target,
    key: str,
    store: Store = None,
    records: Annotated[bool, typer.Option(help="Also the records that caused each change.")] = True,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show each change of a key: batch, time, before, after, and the records that caused it."""
    opened = _open(target, group, config)
    found: list[ChangedValue] = _by_key(key, lambda k: opened.history(k, store, records))
    if not found:
        _none(f"No change of {key} is kept.", as_json)
    rows = []
    told: set[int] = set()
    for change in found:
        row = {
            "batch": change.batch,
            "time": _time(change.time_ms) if as_json else _short_time(change.time_ms),
            "store": f"{change.scope}/{change.store}",
            "name": change.name,
            "before": change.before,
            "after": change.after,
        }
        if as_json:
            row["by_hand"] = change.is_by_hand
            row["records"] = [record._asdict() for record in change.records]
        else:  # for people: once a batch
            causes = ["manual"] if change.is_by_hand else [_record(r) for r in change.records]
            row["records"] = "" if change.batch in told else "\n".join(causes)
        told.add(change.batch)
        rows.append(row)
    _show(rows, as_json)


@state.command()
def diff(
    target: Target,
    before: Annotated[str, typer.Argument(help="A batch or a time.")],
    after: Annotated[str | None, typer.Argument(help="Default: the last batch.")] = None,
    store: Store = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what differs between two batches."""
    opened = _open(target, group, config)
    found = _at_most(limit, opened.diff(before, after, store))
    _show((_placed(difference._asdict()) for difference in found), as_json)


@state.command()
def top(
    target: Target,
    by: Annotated[str, typer.Option(help="bytes, values or changes.")] = "bytes",
    limit: Annotated[int, typer.Option(min=1, help="So many keys.")] = 10,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the keys that keep most, or change most often."""
    found = _open(target, group, config).top(limit, by)
    _show((size._asdict() for size in found), as_json)


@state.command()
def timers(
    target: Target,
    at: At = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the timers that wait."""
    found = _at_most(limit, _open(target, group, config).timers(at))
    _show(({**timer._asdict(), "at": _time(timer.at)} for timer in found), as_json)


@state.command()
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
    count = _open(target, group, config).export(path, store, at, format)
    _done(f"{count:,} values written to {path}.", as_json, values=count, path=path)


@state.command()
def audit(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Show what was done to the state manually."""
    entries = _open(target, group, config).audit()
    if as_json:
        _show(entries, as_json)
        return
    named = ("at", "what", "by", "generation", "batch")
    _show(
        (
            {
                **{name: entry.get(name) for name in named},
                "details": "\n".join(
                    f"{name}: {_cell(value)}" for name, value in entry.items() if name not in named
                ),
            }
            for entry in entries
        ),
        as_json,
    )


@state.command()
def verify(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Read every file of the state and say what is damaged."""
    opened = _open(target, group, config)
    found = opened.verify()
    home = f"{opened.folder}/"
    text = f"{found.files:,} files, {found.bytes:,} bytes, {found.values:,} values"
    if as_json:
        _done(text, as_json, **asdict(found))
    elif found.problems:
        typer.echo(f"In {opened.folder}:")
        rows = [{"file": p.file.removeprefix(home), "problem": p.what} for p in found.problems]
        _show(rows, as_json)
    else:
        typer.echo(f"{text}: whole, as of batch {found.batch}.")
    if found.history and not as_json:
        typer.echo("Damaged, and needed only to look at older batches or to go back to them:")
        rows = [{"file": p.file.removeprefix(home), "problem": p.what} for p in found.history]
        _show(rows, as_json)
    if found.problems:
        typer.echo(f"Fix: millpond state repair {target}", err=True)
        raise typer.Exit(1)


@state.command()
def repair(
    target: Target, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Go back to the last batch that is whole; say what will be replayed."""
    done = _open(target, group, config).repair()
    _done(f"{done}.", as_json, **asdict(done))


# --- changing -------------------------------------------------------------------------------


@state.command()
def rewind(
    target: Target,
    to: Annotated[str, typer.Option("--to", help="A batch or a time.")],
    outputs: Annotated[
        str, typer.Option(help="keep: write nothing twice; again: write all of it again.")
    ] = "keep",
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Take state and input back to a batch; the next run goes on from there."""
    opened = _open(target, group, config)
    meant = opened.rewind(to, outputs, dry_run=True)
    opened.check_free("rewind")
    _confirm(f"{meant}.", yes, as_json)
    opened.rewind(meant.batch, outputs)
    _done(f"Rewound to batch {meant.batch}.", as_json, **asdict(meant))


@state.command()
def fork(
    target: Target,
    new_group: str,
    at: At = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Copy the state to another group, which goes on by itself."""
    batch = _open(target, group, config).fork(new_group, at)
    _done(f"Group {new_group} goes on from batch {batch}.", as_json, group=new_group, batch=batch)


@state.command()
def backup(
    target: Target, path: str, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Copy the state to another state directory."""
    batch = _open(target, group, config).backup(path)
    _done(f"{path} holds the state of batch {batch}.", as_json, path=path, batch=batch)


@state.command()
def restore(
    target: Target,
    path: str,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Replace the state with that of a backup."""
    opened = _open(target, group, config)
    kept = opened.restore(path, dry_run=True)
    opened.check_free("restore")
    text = f"The state becomes that of batch {kept} of the backup; records after it give their "
    _confirm(text + "outputs again.", yes, as_json)
    batch = opened.restore(path)
    _done(f"The state is that of batch {batch} of the backup.", as_json, path=path, batch=batch)


@state.command("set")
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
    opened = _open(target, group, config)
    pairs = {name: _value(text) for name, text in map(_pair, values)}
    chosen = _key(opened, key, store)
    kept = {item.name for item in opened.items(chosen, store)}
    new = [name for name in pairs if name not in kept]
    changed = opened.set(chosen, pairs, store)
    more = f" New in {key!r}: {', '.join(new)}." if kept else f" {key!r} is a new key."
    text = f"{changed} value(s) changed." + more * bool(new)
    _done(text, as_json, changed=changed, new=new)


@state.command()
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
    opened = _open(target, group, config)
    chosen = _key(opened, key, store)
    kept = {item.name: item for item in opened.items(chosen, store)}
    if not kept:
        _none(f"key {key!r} keeps nothing, so nothing was changed.", as_json)
    names = [] if name is None else [n for n in kept if n == name or n == _value(name)]
    if name is not None and not names:
        known = ", ".join(map(str, kept))
        _none(f"{key} keeps no {name!r}, so nothing was changed; it keeps {known}.", as_json)
    options = {} if name is None else {"name": names[0]}
    gone = opened.delete(chosen, store=store, **options)
    _done(f"{gone} value(s) deleted.", as_json, deleted=gone)


@state.command()
def clear(
    target: Target,
    reset_offsets: Annotated[
        bool, typer.Option("--reset-offsets", help="Also read the sources from where they begin.")
    ] = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Begin without state; sources go on where they are, or begin again."""
    opened = _open(target, group, config)
    opened.check_free("clear")
    where = "sources begin again" if reset_offsets else "sources go on where they are"
    _confirm(f"All state of {opened.group} goes; {where}.", yes, as_json)
    opened.clear(reset_offsets=reset_offsets)
    _done("The state is empty.", as_json, reset_offsets=reset_offsets)


@state.command("import")
def import_file(
    target: Target,
    path: str,
    store: Store = None,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Set the values of a file, in a new generation."""
    changed = _open(target, group, config).import_file(path, store)
    _done(f"{changed:,} value(s) changed.", as_json, changed=changed)


@state.command()
def drop(
    target: Target,
    stores: Annotated[list[str], typer.Argument(help="Stores (a/b), or a whole key scope (a).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Drop stores: their values and timers go from all keys, in a new generation."""
    opened = _open(target, group, config)
    meant = opened.drop(*stores, dry_run=True)
    if dry_run:
        _done(f"{meant}.", as_json, **asdict(meant))
        return
    opened.check_free("drop")
    _confirm(f"{meant}.", yes, as_json)
    opened.drop(*meant.stores)
    _done(f"{', '.join(meant.stores)} dropped.", as_json, **asdict(meant))


@state.command()
def rename(
    target: Target,
    old: str,
    new: str,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Move state to another name: a store (a/b), a whole key scope (a), or timers (a/f()).

    Timers move from one function of a key scope to another: a/old() a/new().
    """
    opened = _open(target, group, config)
    opened.rename(old, new, dry_run=True)
    opened.check_free("rename")
    _confirm(f"The state of {old} moves to {new}; the program must use that name.", yes, as_json)
    moved = opened.rename(old, new)
    _done(f"{old} is now {new} ({moved:,} written).", as_json, old=old, new=new, written=moved)


@state.command()
def rescale(
    target: Target,
    partitions: int,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Divide the state into more or fewer parts."""
    done = _open(target, group, config).rescale(partitions)
    text = (
        f"{done.partitions_before} -> {done.partitions} parts; {done.blobs:,} pages, "
        f"{done.bytes:,} bytes, checksum {done.checksum} before and after."
    )
    _done(text, as_json, **asdict(done))


# --- how things look ------------------------------------------------------------------------


def _keys(text: str) -> list[Any]:
    """Return what a key on the command line may mean: text, or the value that it reads like."""
    with suppress(ValueError):
        value = json.loads(text)
        return [text, value] if not isinstance(value, str) else [value, text]
    return [text]


def _key(opened: admin.Admin, text: str, store: str | None) -> Any:
    """Return the key that there is; where there is none yet, the first that there could be."""
    possible = []
    for key in _keys(text):
        with suppress(ConfigError):
            if opened.items(key, store):
                return key
            possible.append(key)
    return possible[0] if possible else text


def _by_key(text: str, find: Callable[[Any], Any]) -> Any:
    """Look for a key as text; where there is none, as the number or value that it reads like."""
    keys = _keys(text)
    error: ConfigError | None = None
    found: Any = None
    for key in keys:
        try:
            found = find(key)
        except ConfigError as other:
            error = other
            continue
        if found:
            return found
    if found is None and error is not None:
        raise error
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _condition(text: str) -> Callable[[StateItem], bool]:
    try:
        code = compile(text, "--where", "eval")
    except SyntaxError as error:
        raise ConfigError(f"--where {text!r}: {error}.\nFix: as in 'value > 100'.") from None

    def holds(item: StateItem) -> bool:
        store = _StoreName(item.store)
        store.full = f"{item.scope}/{item.store}"
        names = {"key": item.key, "name": item.name, "value": item.value, "store": store}
        try:
            return bool(eval(code, names))
        except NameError as error:
            msg = f"--where {text!r}: {error}."
            raise ConfigError(msg + "\nFix: it knows key, name, value and store.") from None
        except Exception:
            return False  # a value of another kind is not what is looked for

    return holds


def _at_most(limit: int, found: Iterable[T]) -> Iterator[T]:
    """Yield so many, and say where there are more; 0: all."""
    for number, one in enumerate(found):
        if limit and number == limit:
            typer.echo(f"There are more than {limit:,}; --limit 0 shows all.", err=True)
            return
        yield one


class _StoreName(str):
    """The name of a store; it also equals the name with its key scope, as it is shown."""

    full: str

    def __eq__(self, other: object) -> bool:
        return str(self) == other or self.full == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _items(found: Iterable[StateItem], as_json: bool) -> None:
    rows = ({**_placed(item._asdict()), "expires": _time(item.expires)} for item in found)
    _show(rows, as_json)


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the full name of its store."""
    full = f"{row.pop('scope')}/{row.pop('store')}"
    return {"store": full, **row}


def _none(text: str, as_json: bool) -> NoReturn:
    """Say that there is nothing of what was asked for; programs see it by the exit code."""
    typer.echo(text, err=as_json)
    raise typer.Exit(1)


def _done(text: str, as_json: bool, **fields: Any) -> None:
    """Say what was done: a sentence for people, or a JSON object."""
    typer.echo(json.dumps(fields, default=_cell) if as_json else text)


def _show(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows: a table for people, or one JSON object a line."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, default=_cell))
        return
    whole = list(rows)
    names = list(dict.fromkeys(name for row in whole for name in row))
    table = Table()
    for name in names:
        keeps_line = name in ("batch", "time", "at")
        table.add_column(name.replace("_", " "), no_wrap=keeps_line, overflow="fold")
    for row in whole:
        table.add_row(*(_cell(row.get(name), name) for name in names))
    _out.print(table if names else "Nothing.")


def _cell(value: Any, column: str = "") -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str) and column not in _VALUES:
        return value
    text = json.dumps(value, ensure_ascii=False, default=_cell)
    return text if len(text) <= 200 else text[:199] + "…"


def _record(record: Record) -> str:
    place = f"{record.topic}[{record.partition}] {record.offset}"
    return f"{place}: {shown(record.value, 60)}"


def _time(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        local = datetime.fromtimestamp(time_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):  # before the year 1, or after 9999
        return f"{time_ms} ms"
    # With its offset, so that it can be given back as --at.
    return local.isoformat(timespec="milliseconds")


def _short_time(time_ms: int) -> str:
    """Return a time for people: of today without the day."""
    moment = datetime.fromtimestamp(time_ms / 1000)
    is_today = moment.date() == datetime.now().date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%dT%H:%M:%S")


def _confirm(text: str, yes: bool, as_json: bool) -> None:
    typer.echo(text, err=as_json)
    if not yes:
        typer.confirm("Go on?", abort=True)
