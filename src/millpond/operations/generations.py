"""New generations: how a checkpoint is changed without touching the one that is there.

Takes a group that is stopped; copies its checkpoint as it was after a batch, lets somebody work
on the copy, and makes it the current one when all is done. Where anything fails, everything is
as it was. The generation before is kept until the next change.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from msgspec.structs import replace

from millpond.errors import DamagedStateError, StateError
from millpond.operations.basis import Basis, check_basis
from millpond.operations.session import Opened
from millpond.storage.batch_source import Planned, clock_in, rename_scope_in
from millpond.storage.checkpoint import Batch, Checkpoint
from millpond.storage.clock_file import KnownTime, read_clock
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal, read_journal
from millpond.storage.manifest import Manifest

__all__ = [
    "NewGeneration",
    "check_not_of_files",
    "clock_after",
    "clock_of",
    "journal_of",
    "new_generation",
    "recorded",
    "user_name",
]


@dataclass
class NewGeneration:
    """A copy of a checkpoint that is about to become the current one."""

    old: Manifest
    manifest: Manifest
    checkpoint: Checkpoint
    journal: Journal
    clock: KnownTime | None
    """What is known about the time after the last batch; None: that batch looks again."""

    def rename_scope(self, old: str, name: str) -> None:
        """Let batches that are replayed wake the groups of a scope under its other name."""
        for batch in self.journal.batches.values():
            rename_scope_in(batch, old, name)


@contextmanager
def new_generation(
    opened: Opened,
    what: str,
    last: int | None = None,
    *,
    copies: bool = True,
    basis: Basis | None = None,
) -> Iterator[NewGeneration]:
    """Give a copy of the checkpoint as of a batch; on leaving, it becomes the current one.

    Without `copies` the checkpoint is empty. With a `basis`, the state must still be as it was.
    """
    directory = opened.directory
    with opened.held(what):
        old = opened.manifest()
        if basis is not None:
            check_basis(directory, old, basis)
        checkpoint = directory.checkpoint(old)
        last = opened.batch(last, old)
        number = directory.next_generation()
        folder = directory.generation_folder(number)
        manifest = replace(old.at(last), generation=number, audit=list(old.audit))
        new = NewGeneration(
            old,
            manifest,
            Checkpoint(folder),
            journal_of(directory, old),
            clock_after(directory, old, last),
        )
        try:
            if copies:
                checkpoint.copy_to(folder, last)
            yield new
            if new.clock is not None:
                directory.clock_file(manifest).write(new.clock.encode())
            directory.journal_file(manifest).write(new.journal.encode())
            done = new.checkpoint.last()
            manifest.since = -1 if done is None else done
            directory.begin(manifest)
        except BaseException:
            directory.abandon(number)
            raise
        directory.drop_others(number, old.generation)


def journal_of(directory: StateDirectory, manifest: Manifest) -> Journal:
    """Return what is known of batches that were begun: from the journal and from Spark's own log.

    One that was planned and is not committed may have its outputs where they belong already, so
    it is done as it was begun.
    """
    checkpoint = directory.checkpoint(manifest)
    journal = read_journal(directory.journal_file(manifest))
    last = checkpoint.last()
    batches = []
    for number in checkpoint.planned():
        with suppress(DamagedStateError):
            batch = checkpoint.batch(number)
            if batch is not None:
                batches.append(batch)
    begun = [batch for batch in batches if last is not None and batch.number > last]
    if any(batch.foreign for batch in begun):
        msg = (
            f"batch {begun[0].number} of group {directory.group!r} was begun and is not done, and "
            "the offsets of Spark's own sources cannot be kept apart from it.\n"
            "Fix: run the application once more until it has caught up (drain=True)."
        )
        raise StateError(msg)
    return Journal(journal.delivered, {**recorded(batches), **journal.batches})


def recorded(batches: list[Batch]) -> dict[int, Planned]:
    """Return what our source wrote down for batches, by the number of their clock.

    A batch that people put in between has the clock of the one before it and is left out.
    """
    found: dict[int, Planned] = {}
    for batch in batches:
        if batch.clock.seq and not batch.is_edit:
            found.setdefault(batch.clock.seq, batch.source)
    return found


def clock_after(directory: StateDirectory, manifest: Manifest, number: int) -> KnownTime | None:
    """Return what was known about the time after a batch, as a clock file has it."""
    batch = directory.checkpoint(manifest).batch(number)
    seq = 0 if batch is None else batch.clock.seq
    known = read_clock(directory.clock_file(manifest))
    if known is not None and known.seq == seq:
        return known.asked_again()
    return clock_of(journal_of(directory, manifest), seq)


def clock_of(journal: Journal, seq: int) -> KnownTime | None:
    """Return what was known about the time after a batch; the next one was planned with it."""
    clock = clock_in(journal.batches.get(seq + 1, {}))
    return None if clock.seen is None else KnownTime.asking(seq, clock.seen, clock.arrived)


def check_not_of_files(manifest: Manifest, batch: int) -> None:
    """Refuse to go on from a batch whose next ones would read files as if they were a topic."""
    if batch < manifest.live_from:
        msg = f"batch {batch} is of a backfill from files, which ended with {manifest.live_from}."
        raise StateError(msg + f"\nFix: choose batch {manifest.live_from} or a later one.")


def user_name() -> str:
    """Return who changes the state, for the audit."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
