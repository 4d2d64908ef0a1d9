"""A backfill: history is processed before the first run, up to where topics end now.

Takes an application and where history is; gives how many records were read. What was asked is in
the manifest until the backfill has ended, so an interrupted one continues with the same.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.app.runner import Runner
from millpond.connectors.sources import FileSource
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, StateError, shown
from millpond.storage.manifest import BegunBackfill

if TYPE_CHECKING:
    from millpond.app.application import Application
    from millpond.spark.request import Backfill

__all__ = ["History", "run_backfill"]

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class History:
    """What is asked of a backfill; see `Application.backfill`."""

    files: dict[str, FileSource]
    until: dict[str, dict[int, int]]
    live_from: str
    outputs: bool


def run_backfill(app: Application, runner: Runner, asked: History) -> int:
    """Process history; return how many records were read."""
    from millpond.operations.backfill import end_backfill

    _check(app, asked)
    runner.is_long = True  # before a state directory far away starts Spark
    backfill = _begun(app, runner, asked)
    runner.backfill(backfill)
    if backfill.dead:
        logger.warning(
            "%s record(s) of the backfill failed and were written to topic %r",
            f"{backfill.dead:,}",
            f"{app.config.consumer_group}.dead-letters",
        )
    end_backfill(runner.opened())
    return backfill.read


def _check(app: Application, asked: History) -> None:
    if asked.live_from not in ("earliest", "latest"):
        msg = f"live_from must be 'earliest' or 'latest', got {shown(asked.live_from)}."
        raise ConfigError(msg + "\nFix: live_from='earliest': the files end where it begins.")
    topics = [name for name, s in app.graph.sources.items() if isinstance(s, Topic)]
    for name in {**asked.files, **asked.until}:
        if name not in topics:
            msg = f"the application reads the topics {topics}, not {name!r}."
            raise ConfigError(msg + "\nFix: name one of these.")
    if app.config.persistence == "none":
        msg = "a backfill makes state, and persistence='none' keeps none."
        raise ConfigError(msg + "\nFix: leave persistence= out.")


def _begun(app: Application, runner: Runner, asked: History) -> Backfill:
    """Return the backfill that was begun, or a new one.

    Raises:
        StateError: the group has state, or the backfill was begun with something else.
    """
    from millpond.spark.request import Backfill

    directory = runner.directory(ExitStack())
    manifest = directory.load()
    begun = None if manifest is None else manifest.backfill
    is_new = manifest is None or directory.checkpoint(manifest).last() is None
    if not is_new and begun is None:
        msg = f"group {app.config.consumer_group!r} has state already; history comes first."
        raise StateError(msg + "\nFix: another consumer_group, or app.clear_state(True).")
    if begun is not None and sorted(begun.live) != sorted(asked.files):
        msg = f"a backfill was begun with files for {sorted(begun.live) or 'no topic'}."
        raise StateError(msg + "\nFix: give the same; or start over: app.clear_state(True).")
    ends = {name: {str(p): o for p, o in found.items()} for name, found in asked.until.items()}
    if begun is not None and ends not in ({}, begun.until):
        msg = f"a backfill was begun that reads up to {begun.until or 'where topics end'}."
        raise StateError(msg + "\nFix: give the same until=, or start over: clear_state(True).")
    if begun is None:
        begun = BegunBackfill(ends, _live(app, asked), asked.outputs)
    outputs = asked.outputs if begun.outputs is None else begun.outputs
    return Backfill(asked.files, begun.until, outputs, begun)


def _live(app: Application, asked: History) -> dict[str, dict[str, int]]:
    """Return where the live run begins to read the topics for which there are files."""
    app.broker.connect()
    topics = {name: app.topics[name] for name in asked.files}
    for topic in topics.values():
        app.broker.prepare(topic, reads=True)
    return {n: app.broker.reader(t).initial(asked.live_from) for n, t in topics.items()}
