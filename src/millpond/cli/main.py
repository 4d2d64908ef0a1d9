"""The command `millpond`: parse, call, print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from millpond import __version__
from millpond.app import Application
from millpond.app.backfill import History, apply_backfill, plan_of
from millpond.cli.loading import act_on_application, load_application
from millpond.cli.state import state
from millpond.cli.warmup import is_warm, warm_up
from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.log import Log
from millpond.connectors.sources import FileSource
from millpond.connectors.topic import TopicConfig
from millpond.errors import ConfigError, MillpondError, shown, with_program
from millpond.record import Record

__all__ = ["main"]

command = typer.Typer(
    name="millpond",
    help="Stateful stream processing in plain Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
topics = typer.Typer(
    help="Look at and write to topics, of Kafka or of the embedded log.", no_args_is_help=True
)
command.add_typer(topics, name="topics")
command.add_typer(state, name="state")

_out = Console()
AppFile = Annotated[
    str, typer.Argument(help="APP.py, APP.py:name or pkg.mod:name", show_default=False)
]
Folder = Annotated[Path, typer.Option("--topics-dir", help="The folder of the embedded log.")]
Address = Annotated[str | None, typer.Option("--broker", help="host:port of a Kafka broker.")]
Setting = Annotated[
    list[str] | None, typer.Option("-X", help="NAME=VALUE, a setting of librdkafka; repeatable.")
]
_TOPICS = Path("topics")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"millpond {__version__}")
        raise typer.Exit


@command.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that go without a command."""


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
    if sys.stderr.isatty() and not is_warm():
        typer.echo("Once: `millpond warmup` makes Spark start in less time.", err=True)

    def act(program: Application) -> None:
        program.run(timeout=timeout, count=count, drain=drain, collect=False)

    act_on_application(app, act, "run")


@command.command()
def backfill(
    app: AppFile,
    files: Annotated[
        list[str] | None,
        typer.Option(help="TOPIC=PATH, files with its records from before it begins; repeatable."),
    ] = None,
    format: Annotated[str, typer.Option(help="Of the files: json, csv or parquet.")] = "json",
    key: Annotated[str | None, typer.Option(help="The column that is the key.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="The column that is the time.")] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(help="TOPIC:PARTITION=OFFSET, after the last record; repeatable."),
    ] = None,
    live_from: Annotated[
        str, typer.Option(help="Where a topic with files is read on: earliest or latest.")
    ] = "earliest",
    outputs: Annotated[bool, typer.Option("--outputs", help="Also write what comes out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Process history before the first run; the next run goes on at the next offset.

    Asks only at a terminal.
    """
    named = _pairs(files)
    sources = {
        topic: FileSource(path, format, key=key, timestamp=timestamp, name=f"{topic}-history")
        for topic, path in named.items()
    }
    ends: dict[str, dict[int, int]] = {}
    for place, offset in _pairs(until).items():
        topic, _, partition = place.rpartition(":")
        if not offset.isdigit() or (topic and not partition.isdigit()):
            msg = f"--until {place}={offset} names no offset."
            raise ConfigError(msg + "\nFix: TOPIC:PARTITION=OFFSET, as in clicks:0=1000.")
        ends.setdefault(topic or place, {})[int(partition) if topic else 0] = int(offset)

    asked = History(sources, ends, live_from, outputs)

    def act(program: Application) -> None:
        plan = plan_of(program, program._runner, asked)
        typer.echo(f"{plan}.")
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            typer.confirm("Go on?", abort=True)
        count = apply_backfill(program, program._runner, asked, plan)
        typer.echo(f"{count:,} records of history; the next run goes on after them.")

    act_on_application(app, act, "backfill")


@command.command()
def explain(app: AppFile) -> None:
    """Show what an application will do, stage by stage."""
    typer.echo(load_application(app).explain(), nl=False)


@command.command()
def check(
    app: AppFile,
    accept: Annotated[
        bool, typer.Option("--accept", help="Let the next run make exactly this change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Compare an application with the state it will meet; what is refused here cannot run."""
    program = load_application(app)
    verdicts = program.check(accept)
    for verdict in verdicts:
        if as_json:
            more = {"fix": with_program(verdict.fix), "can_accept": verdict.can_accept}
            typer.echo(json.dumps({**asdict(verdict), "store": verdict.name, **more}))
        else:
            typer.echo(f"{verdict.says:<9} {verdict.name}")  # somebody may want to copy the name
            for line in verdict.why.splitlines():
                typer.echo(f"{'':<9} {line}")
    if not verdicts and not as_json:
        typer.echo("The application keeps no state.")
    refused = [verdict for verdict in verdicts if verdict.says == "refuse"]
    if refused:
        first = min(refused, key=lambda verdict: verdict.can_accept)  # as `run` has it
        typer.echo(f"Fix: {with_program(first.fix)}", err=True)
        raise typer.Exit(1)


@command.command()
def warmup(
    force: Annotated[bool, typer.Option("--force", help="Make it again.")] = False,
) -> None:
    """Make every start of Spark faster: keep the classes that it loads in a file, once."""
    began = time.monotonic()
    with _out.status("Running a small program and keeping what it loads ..."):
        file = warm_up(force)
    size = file.stat().st_size / 1e6
    typer.echo(f"{file}: {size:.0f} MB, made in {time.monotonic() - began:.0f} s.")


@command.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"millpond {__version__}")


@topics.command("ls")
def list_topics(
    broker: Address = None, setting: Setting = None, topics_dir: Folder = _TOPICS
) -> None:
    """List topics with their partitions and records."""
    table = Table("topic", "partitions", "records")
    for name, partitions, records in _topics(broker, setting, topics_dir).broker.listed():
        table.add_row(name, str(partitions), f"{records:,}")
    if broker:
        table.caption = "Marks of transactions count as records."
    _out.print(table if table.row_count else f"No topics in {broker or topics_dir}.")


@topics.command("create")
def create_topic(
    topic: str,
    partitions: Annotated[int, typer.Option(help="How many partitions it has.")] = 1,
    replication: Annotated[
        int | None, typer.Option(help="On how many brokers each is kept; default: theirs.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, a setting of the topic itself.")
    ] = None,
    broker: Address = None,
    setting: Setting = None,
    topics_dir: Folder = _TOPICS,
) -> None:
    """Make a topic; one that is there already stays as it is."""
    app = _topics(broker, setting, topics_dir)
    made = TopicConfig(partitions, replication, _pairs(config))
    app.broker.prepare(app.topic(topic, config=made))
    listed = {name: count for name, count, _ in app.broker.listed()}
    typer.echo(f"{topic} has {listed[topic]} partition{'s' * (listed[topic] != 1)}.")


@topics.command("delete")
def delete_topic(
    topic: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    broker: Address = None,
    setting: Setting = None,
    topics_dir: Folder = _TOPICS,
) -> None:
    """Delete a topic with its records; groups that have read it must start over."""
    where = _topics(broker, setting, topics_dir).broker
    if not yes:
        typer.confirm(f"Delete topic {topic} with all its records?", abort=True)
    where.delete(topic)
    typer.echo(f"{topic} is deleted. Groups that have read it start over with")
    typer.echo("  millpond state clear APP.py --reset-offsets")


@topics.command("read")
def read_topic(
    topic: str,
    limit: Annotated[int, typer.Option(help="Show so many records at most; 0: all.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more.")] = False,
    broker: Address = None,
    setting: Setting = None,
    topics_dir: Folder = _TOPICS,
) -> None:
    """Show the records of a topic, one JSON object a line."""
    with _topics(broker, setting, topics_dir).get_consumer() as consumer:
        consumer.subscribe([topic])
        records = _followed(consumer) if follow else consumer.read(topic)
        for record in islice(records, limit or None):
            place = {"partition": record.partition, "offset": record.offset}
            line = {
                "key": _text(record.key),
                "value": _text(record.value),
                "timestamp": record.timestamp,
            }
            headers = {name: _text(value) for name, value in record.headers or []}
            typer.echo(json.dumps({**place, **line, **({"headers": headers} if headers else {})}))


def _followed(consumer: Any) -> Iterator[Record]:
    while True:
        record = consumer.poll(1.0)
        if record is not None:
            yield record


@topics.command("verify")
def verify_topics(
    topic: Annotated[str | None, typer.Argument(help="Default: every topic.")] = None,
    topics_dir: Folder = _TOPICS,
) -> None:
    """Read all of a topic of the embedded log and compare it with its checksums."""
    log = Log(topics_dir.absolute())
    is_damaged = False
    for name in [topic] if topic else log.topics():
        damaged, unsummed = log.verify(name)
        is_damaged = is_damaged or bool(damaged)
        for error in damaged:
            typer.echo(str(error).partition("\n")[0])
        state = f"{len(damaged)} damaged" if damaged else "whole"
        old = f" ({unsummed} without a checksum, of version 0.1)" * bool(unsummed)
        typer.echo(f"{name}: {state}{old}")
    if is_damaged:
        typer.echo("Fix: restore these files from a copy, and verify again.", err=True)
        raise typer.Exit(1)


@topics.command("repair")
def repair_topic(
    topic: str,
    topics_dir: Folder = _TOPICS,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Give up records that are damaged or gone: readers and writers go on without them.

    A damaged file is kept beside the others, under another name.
    """
    log = Log(topics_dir.absolute())
    damaged, _ = log.verify(topic)
    for error in damaged:
        typer.echo(str(error).partition("\n")[0])
    if damaged and not yes and sys.stdin.isatty():
        typer.confirm("Give them up?", abort=True)
    given_up = log.repair(topic)
    for number, start, end in given_up:
        typer.echo(f"{topic}, partition {number}: offsets {start} to {end - 1} are given up.")
    if not given_up:
        typer.echo(f"{topic}: nothing is damaged or gone.")


@topics.command("write")
def write_topic(
    topic: str,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_field: Annotated[str | None, typer.Option(help="The JSON field that is the key.")] = None,
    broker: Address = None,
    setting: Setting = None,
    topics_dir: Folder = _TOPICS,
) -> None:
    """Write each line of standard input as a record."""
    with _topics(broker, setting, topics_dir).get_producer() as producer:
        count = 0
        for number, line in enumerate(sys.stdin, 1):
            text = line.rstrip("\n")
            if text:
                chosen = key if key_field is None else _key_of(text, key_field, number)
                producer.produce(topic, key=chosen, value=text)
                count += 1
    typer.echo(f"{count} record{'s' * (count != 1)} written to {topic}.")


def _topics(broker: str | None, settings: list[str] | None, folder: Path) -> Application:
    """Return an application that only stands for the place where topics live."""
    connection = None
    if broker is not None:
        named = {"bootstrap.servers": broker, **_pairs(settings)}
        connection = ConnectionConfig.from_librdkafka_dict(named)
    app = Application(connection, topics_dir=folder, loglevel=None)
    app.broker.connect()
    return app


def _pairs(texts: list[str] | None) -> dict[str, str]:
    for text in texts or []:
        if "=" not in text:
            msg = f"{shown(text)} is no setting.\nFix: NAME=VALUE, as in retention.ms=-1."
            raise ConfigError(msg)
    return dict(text.split("=", 1) for text in texts or [])


def _key_of(line: str, field: str, number: int) -> str:
    try:
        return str(json.loads(line)[field])
    except (ValueError, KeyError, TypeError) as error:
        msg = (
            f"line {number} of the input has no field {field!r}: {shown(line)} "
            f"({type(error).__name__}: {error}). The lines before it were written.\n"
            "Fix: correct the line, or leave --key-field out."
        )
        raise ConfigError(msg) from None


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "backslashreplace")


def main() -> None:
    """Run the command; an error of ours is its text, not a traceback."""
    try:
        command()
    except MillpondError as error:
        Console(stderr=True).print(f"[bold red]{type(error).__name__}[/]: ", end="")
        typer.echo(str(error), err=True)
        raise SystemExit(1) from None
    except OSError as error:
        typer.echo(
            f"{error}\nFix: check the path, the room on the disk and the rights of this user.",
            err=True,
        )
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
