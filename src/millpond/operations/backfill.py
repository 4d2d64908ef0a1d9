"""Processing history before the first run, and its end: the live run begins where history ends.

Takes what is asked and what a group has; gives a plan, which a run carries out. Takes an opened
group whose backfill has read all that it reads, and lets the live run begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from millpond.errors import ConfigError, StateError
from millpond.operations.edit_batch import frame_of, run_rows
from millpond.operations.session import Opened
from millpond.state.edit import encode_edits
from millpond.storage.audit import EndBackfill
from millpond.storage.manifest import BegunBackfill

__all__ = ["BackfillPlan", "check_topics", "end_backfill", "plan_backfill"]

Places = dict[str, dict[str, int]]
"""Offsets by topic and partition."""


@dataclass(frozen=True)
class BackfillPlan:
    """What processing history before the first run means."""

    topics: tuple[str, ...]
    """The topics that are read."""
    files: tuple[str, ...]
    """Those of them whose records are read from files instead."""
    until: Places
    """Up to where topics are read; those that are not named, up to where they end."""
    live: Places
    """Where the live run begins to read the topics for which there are files."""
    outputs: bool
    """Whether what comes out is written; otherwise only state is made."""
    is_continued: bool
    """Whether a backfill that was interrupted goes on."""

    def __str__(self) -> str:
        text = "an interrupted backfill goes on: " if self.is_continued else ""
        text += ", ".join(map(self._reads, self.topics)) or "no topic is read"
        if self.outputs:
            return text + "; what comes out is written"
        return text + "; only state and dead letters are written"

    def _reads(self, topic: str) -> str:
        if topic in self.files:
            begin = ", ".join(f"{p}: {o}" for p, o in self.live.get(topic, {}).items())
            return f"{topic} is read from files, and live from offset {begin or 0}"
        end = ", ".join(f"{p}: {o}" for p, o in self.until.get(topic, {}).items())
        return f"{topic} is read up to {f'offset {end}' if end else 'where it ends'}"

    @property
    def begun(self) -> BegunBackfill:
        """What the manifest says until it has ended."""
        return BegunBackfill(self.until, self.live, self.outputs)


def check_topics(topics: Collection[str], named: Collection[str]) -> None:
    """Refuse names that are no topics of the application."""
    for name in named:
        if name not in topics:
            msg = f"the application reads the topics {[*topics]}, not {name!r}."
            raise ConfigError(msg + "\nFix: name one of these.")


def plan_backfill(
    group: str,
    topics: Collection[str],
    begun: BegunBackfill | None,
    *,
    has_state: bool,
    files: Collection[str],
    until: Mapping[str, Mapping[int, int]],
    live: Callable[[], Places],
    outputs: bool,
) -> BackfillPlan:
    """Return the plan of a backfill, or refuse it.

    Args:
        group: The consumer group.
        topics: The topics that the application reads.
        begun: A backfill that has begun and not ended.
        has_state: Whether the group has committed a batch.
        files: The topics for which there are files.
        until: For a topic, the offset after the last record to be read, by partition.
        live: Gives where the live run begins to read the topics with files; asked for a new one.
        outputs: Whether what comes out is written.
    """
    if has_state and begun is None:
        msg = f"group {group!r} has state already; history comes first."
        raise StateError(msg + "\nFix: another consumer_group, or app.clear_state(True).")
    if begun is not None and sorted(begun.live) != sorted(files):
        msg = f"a backfill was begun with files for {sorted(begun.live) or 'no topic'}."
        raise StateError(msg + "\nFix: give the same; or start over: app.clear_state(True).")
    ends = {name: {str(p): o for p, o in places.items()} for name, places in until.items()}
    if begun is not None and ends not in ({}, begun.until):
        msg = f"a backfill was begun that reads up to {begun.until or 'where topics end'}."
        raise StateError(msg + "\nFix: give the same until=, or start over: clear_state(True).")
    is_continued = begun is not None
    if begun is None:
        begun = BegunBackfill(ends, live(), outputs)
    return BackfillPlan(
        tuple(topics),
        tuple(files),
        begun.until,
        begun.live,
        outputs if begun.outputs is None else begun.outputs,
        is_continued,
    )


def end_backfill(opened: Opened) -> None:
    """Let the live run begin where a backfill ends."""
    manifest = opened.manifest()
    if manifest.backfill is not None and manifest.backfill.live:
        _move_offsets(opened, manifest.backfill.live)
        return
    with opened.directory.held("backfill"):
        manifest.backfill = None
        opened.directory.save(manifest)


def _move_offsets(opened: Opened, offsets: Places) -> None:
    """Let sources go on from other offsets; the state stays as it is."""
    from millpond.spark.edit import EDITS

    rows = [("", 0, EDITS, encode_edits([]))]
    event = EndBackfill(offsets=offsets)
    run_rows(opened, lambda _: frame_of(opened, rows), event, offsets=offsets)
