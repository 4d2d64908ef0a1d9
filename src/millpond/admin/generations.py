"""New generations: how a checkpoint is changed without touching the one that is there.

Takes a group that is stopped; copies its checkpoint as it was behind a batch, lets somebody work
on the copy, and makes it the current one when all is done. Where anything fails, everything is
as it was. The generation before is kept until the next change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from millpond.admin.opened import Opened
from millpond.checkpoint import Batch, Checkpoint
from millpond.directory import Manifest, Replay, StateDirectory
from millpond.errors import StateError

__all__ = ["NewGeneration", "clock_behind", "new_generation", "pending", "recorded"]


@dataclass
class NewGeneration:
    """A copy of a checkpoint that is about to become the current one."""

    old: Manifest
    manifest: Manifest
    checkpoint: Checkpoint
    replay: Replay
    clock: dict[str, Any] | None
    """What is known about the time behind the last batch; None: that batch looks again."""


@contextmanager
def new_generation(opened: Opened, what: str, last: int | None = None) -> Iterator[NewGeneration]:
    """Give a copy of the checkpoint as of a batch; on leaving, it becomes the current one."""
    directory = opened.directory
    with directory.held(what):
        old = opened.manifest()
        checkpoint = directory.checkpoint(old)
        last = opened.batch(last, old)
        number = directory.next_generation()
        folder = directory.generation_folder(number)
        manifest = replace(old, generation=number, audit=list(old.audit))
        new = NewGeneration(
            old,
            manifest,
            Checkpoint(folder),
            pending(directory, old),
            clock_behind(directory, old, last),
        )
        try:
            checkpoint.copy_to(folder, last)
            yield new
            if new.clock is not None:
                directory.clock_file(manifest).write(json.dumps(new.clock).encode())
            if new.replay.batches:
                directory.save_replay(manifest, new.replay)
            directory.save(manifest)
        except BaseException:
            directory.drop_generation(number)
            raise
        for other in directory.generations():
            if other not in (number, old.generation):
                directory.drop_generation(other)


def pending(directory: StateDirectory, manifest: Manifest) -> Replay:
    """Return what must be done as it was begun: a batch that was planned and is not committed.

    It may be that its outputs are where they belong already.
    """
    checkpoint = directory.checkpoint(manifest)
    before = directory.replay(manifest)
    last = checkpoint.last()
    if last is None:
        return before
    begun = checkpoint.batch(last + 1)
    done = checkpoint.batch(last)
    seq = 0 if done is None else int(done.clock.get("seq", 0))
    batches = {n: offsets for n, offsets in before.batches.items() if n > seq}
    if begun is not None:
        if begun.foreign:
            msg = (
                f"batch {last + 1} of group {directory.group!r} was begun and is not done, and the "
                "offsets of Spark's own sources cannot be kept apart from it.\n"
                "Fix: run the application once more until it has caught up (drain=True)."
            )
            raise StateError(msg)
        batches.update(recorded([begun]))
    return Replay(before.delivered, batches)


def recorded(batches: list[Batch]) -> dict[int, dict[str, Any]]:
    """Return what our source wrote down for batches, by the number of their clock.

    A batch that people put in between has the clock of the one before it and is left out.
    """
    found: dict[int, dict[str, Any]] = {}
    for batch in batches:
        seq = int(batch.clock.get("seq", 0))
        if seq and "edits" not in batch.source:
            found.setdefault(seq, batch.source)
    return found


def clock_behind(
    directory: StateDirectory, manifest: Manifest, number: int
) -> dict[str, Any] | None:
    """Return what was known about the time behind a batch, as a clock file has it."""
    checkpoint = directory.checkpoint(manifest)
    batch, following = checkpoint.batch(number), checkpoint.batch(number + 1)
    seq = 0 if batch is None else int(batch.clock.get("seq", 0))
    known: dict[str, Any] | None = None
    try:
        known = json.loads(directory.clock_file(manifest).text() or "null")
    except ValueError:
        known = None
    if known is None or known.get("seq") != seq:
        clock = {} if following is None else following.clock
        if "seen" not in clock:
            return None
        known = {"seen": clock["seen"], "arrived": clock["arrived"]}
    # Every group is asked what it waits for.
    return {"keys": [], **known, "seq": seq, "due": {}, "is_sure": False}
