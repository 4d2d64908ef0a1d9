"""The command `millpond`: parse, call, print."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from millpond import __version__
from millpond.app import Application
from millpond.connectors.clients import Consumer, Producer
from millpond.connectors.log import Log
from millpond.errors import ConfigError, MillpondError, shown

__all__ = ["main"]

command = typer.Typer(
    name="millpond",
    help="Stateful stream processing in plain Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
topics = typer.Typer(help="Look at and write to topics of the embedded log.", no_args_is_help=True)
command.add_typer(topics, name="topics")

_out = Console()
AppFile = Annotated[str, typer.Argument(help="APP.py or APP.py:name", show_default=False)]
Folder = Annotated[Path, typer.Option("--topics-dir", help="The folder of the embedded log.")]


@command.command()
def run(
    app: AppFile,
    timeout: Annotated[float, typer.Option(help="Stop after so many quiet seconds.")] = 0.0,
    count: Annotated[int, typer.Option(help="Stop after so many outputs.")] = 0,
    drain: Annotated[
        bool, typer.Option("--drain", help="Process what is there, then stop.")
    ] = False,
) -> None:
    """Run an application."""
    _load(app).run(timeout=timeout, count=count, drain=drain, collect=False)


@command.command()
def explain(app: AppFile) -> None:
    """Show what an application will do, stage by stage."""
    typer.echo(_load(app).explain(), nl=False)


@command.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"millpond {__version__}")


@topics.command("ls")
def list_topics(topics_dir: Folder = Path("topics")) -> None:
    """List topics with their partitions and records."""
    log = Log(topics_dir)
    table = Table("topic", "partitions", "records")
    for name in log.topics():
        count = log.partitions(name)
        ends = sum(log.end(name, p) - log.start(name, p) for p in range(count))
        table.add_row(name, str(count), f"{ends:,}")
    _out.print(table if table.row_count else f"No topics in {topics_dir}.")


@topics.command("read")
def read_topic(
    topic: str,
    topics_dir: Folder = Path("topics"),
    limit: Annotated[int, typer.Option(help="Show so many records at most; 0: all.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more.")] = False,
) -> None:
    """Show the records of a topic, one JSON object a line."""
    consumer = Consumer(Log(topics_dir))
    consumer.subscribe([topic])
    shown = 0
    while not limit or shown < limit:
        record = consumer.poll(1.0 if follow else 0.0)
        if record is None:
            if follow:
                continue
            return
        place = {"partition": record.partition, "offset": record.offset}
        line = {
            "key": _text(record.key),
            "value": _text(record.value),
            "timestamp": record.timestamp,
        }
        headers = {name: _text(value) for name, value in record.headers or []}
        typer.echo(json.dumps({**place, **line, **({"headers": headers} if headers else {})}))
        shown += 1


@topics.command("write")
def write_topic(
    topic: str,
    topics_dir: Folder = Path("topics"),
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_field: Annotated[str | None, typer.Option(help="The JSON field that is the key.")] = None,
) -> None:
    """Write each line of standard input as a record."""
    with Producer(Log(topics_dir)) as producer:
        count = 0
        for number, line in enumerate(sys.stdin, 1):
            text = line.rstrip("\n")
            if text:
                chosen = key if key_field is None else _key_of(text, key_field, number)
                producer.produce(topic, key=chosen, value=text)
                count += 1
    typer.echo(f"{count} record{'s' * (count != 1)} written to {topic}.")


def _key_of(line: str, field: str, number: int) -> str:
    try:
        return str(json.loads(line)[field])
    except (ValueError, KeyError, TypeError) as error:
        msg = (
            f"line {number} of the input has no field {field!r}: {shown(line)} "
            f"({type(error).__name__}: {error}). The lines before it were written.\n"
            "Fix: mend the line, or leave --key-field out."
        )
        raise ConfigError(msg) from None


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "backslashreplace")


def _load(target: str) -> Application:
    """Return the application of a file: the named one, or the only one."""
    file, _, name = target.partition(":")
    path = Path(file)
    if not path.exists():
        msg = f"there is no file {file!r}.\nFix: millpond run path/to/app.py"
        raise ConfigError(msg)
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = {n: v for n, v in vars(module).items() if isinstance(v, Application)}
    if name in found:
        return found[name]
    if len(found) == 1 and not name:
        return next(iter(found.values()))
    names = ", ".join(found) or "none"
    msg = (
        f"{file} has {len(found)} applications ({names}).\n"
        f"Fix: make one at the top of the file, outside of `if __name__`, and name it: {file}:app"
    )
    raise ConfigError(msg)


def main() -> None:
    """Run the command; an error of ours is its text, not a traceback."""
    try:
        command()
    except MillpondError as error:
        Console(stderr=True).print(f"[bold red]{type(error).__name__}[/]: ", end="")
        typer.echo(str(error), err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
