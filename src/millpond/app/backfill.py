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
from millpond.errors import ConfigError, shown

if TYPE_CHECKING:
    from millpond.app.application import Application
    from millpond.operations.backfill import BackfillPlan

__all__ = ["History", "apply_backfill", "plan_of"]

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class History:
    """What is asked of a backfill; see `Application.backfill`."""

    files: dict[str, FileSource]
    until: dict[str, dict[int, int]]
    live_from: str
    outputs: bool


def plan_of(app: Application, runner: Runner, asked: History) -> BackfillPlan:
    """Return the plan of a backfill, or refuse it; nothing is changed."""
    from millpond.operations.backfill import check_topics, plan_backfill

    if asked.live_from not in ("earliest", "latest"):
        msg = f"live_from must be 'earliest' or 'latest', got {shown(asked.live_from)}."
        raise ConfigError(msg + "\nFix: live_from='earliest': the files end where it begins.")
    topics = [name for name, s in app.graph.sources.items() if isinstance(s, Topic)]
    check_topics(topics, [*asked.files, *asked.until])
    if app.config.persistence == "none":
        msg = "a backfill makes state, and persistence='none' keeps none."
        raise ConfigError(msg + "\nFix: leave persistence= out.")
    runner.is_long = True  # before a state directory far away starts Spark
    directory = runner.directory(ExitStack())
    manifest = directory.load()
    return plan_backfill(
        app.config.consumer_group,
        topics,
        None if manifest is None else manifest.backfill,
        has_state=manifest is not None and directory.checkpoint(manifest).last() is not None,
        files=asked.files,
        until=asked.until,
        live=lambda: _live(app, asked),
        outputs=asked.outputs,
    )


def apply_backfill(app: Application, runner: Runner, asked: History, plan: BackfillPlan) -> int:
    """Process history as planned; return how many records were read."""
    from millpond.operations.backfill import end_backfill
    from millpond.spark.request import Backfill

    backfill = Backfill(asked.files, plan.until, plan.outputs, plan.begun)
    runner.backfill(backfill)
    if backfill.dead:
        logger.warning(
            "%s record(s) of the backfill failed and were written to topic %r",
            f"{backfill.dead:,}",
            f"{app.config.consumer_group}.dead-letters",
        )
    end_backfill(runner.opened())
    return backfill.read


def _live(app: Application, asked: History) -> dict[str, dict[str, int]]:
    """Return where the live run begins to read the topics for which there are files."""
    app.broker.connect()
    topics = {name: app.topics[name] for name in asked.files}
    for topic in topics.values():
        app.broker.prepare(topic, reads=True)
    return {n: app.broker.reader(t).initial(asked.live_from) for n, t in topics.items()}
