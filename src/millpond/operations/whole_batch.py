"""The last batch that is whole, where something of a group is damaged.

Takes a generation and what is known to be damaged; gives the last batch whose state can be read,
in a copy without what is damaged. Where there is none, the generation before is looked at, too.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from millpond.errors import (
    DamagedStateError,
    EngineError,
    StateError,
    UnsupportedCheckpointError,
)
from millpond.operations.generations import clock_of, journal_of
from millpond.operations.session import Opened
from millpond.operations.verify import count_values, damaged_files, file_of, first_line
from millpond.storage.audit import Reshape
from millpond.storage.checkpoint import Checkpoint, Problem
from millpond.storage.clock_file import KnownTime, read_clock
from millpond.storage.files import Location
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest, read_manifest

__all__ = ["Whole", "seqs_of", "whole", "whole_before"]

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class Whole:
    """A batch that is whole, in a copy of its generation without what is damaged."""

    manifest: Manifest
    """What is said of the state up to that batch, among other things."""
    journal: Journal
    batch: int | None
    seq: int = 0
    clock: KnownTime | None = None
    edits: tuple[int, ...] = ()
    """The batches after it that people have put there."""


def whole(
    opened: Opened,
    manifest: Manifest,
    journal: Journal,
    problems: list[Problem],
    work: Location,
    until: int | None = None,
    now: Manifest | None = None,
) -> Whole:
    """Copy what is not damaged of a generation, and find the last batch that is whole.

    Args:
        opened: The group.
        manifest: That of the generation.
        journal: What is known of batches.
        problems: What is damaged; what is found besides is added.
        work: Where the copy goes.
        until: The last batch that counts. Default: all do.
        now: The current manifest, where the generation is another one.
    """
    directory = opened.directory
    old, new = directory.checkpoint(manifest), Checkpoint(work)
    seqs = seqs_of(old)
    last = max([*old.planned(), *old.committed(), 0]) if until is None else until
    old.copy_to(work, last, leave_out={problem.file for problem in problems})
    _renew_descriptions(opened, manifest, old, new, problems)
    files = [directory.clock_file(one) for one in (manifest, now) if one is not None]
    clocks = {n: _clock(files, journal, seq) for n, seq in seqs.items()}
    batch = _last_whole(opened, manifest, old, new, problems, clocks)
    edits = tuple(n for n in _edits_behind(manifest, old, batch) if until is None or n <= until)
    if batch is None:
        return Whole(manifest, journal, None, edits=edits)
    clock = clocks[batch]
    if clock is None and new.is_by_hand(batch):
        # No program can replay that batch. How late its stream was is in its offsets, too.
        clock = KnownTime.asking(seqs[batch], {}, {})
    return Whole(manifest, journal, batch, seqs[batch], clock, edits)


def whole_before(
    opened: Opened, manifest: Manifest, journal: Journal, work: Location
) -> Whole | None:
    """Find the last whole batch in the generation that a change was made from; None: there is none.

    The two have the same batches up to the change. Those after it are in the journal.
    """
    directory = opened.directory
    made = next((e for e in manifest.audit if e.generation == manifest.generation), None)
    kept = [number for number in directory.generations() if number < manifest.generation]
    if made is None or made.is_copy or not kept:
        return None
    file = directory.folder / f"manifest-{max(kept):04d}.json"
    try:
        before = read_manifest(file.text() or "", str(file))
        about = journal_of(directory, before)
    except (ValueError, KeyError, TypeError, AttributeError, StateError):
        return None
    # A reshape begins to count from 0.
    until = made.last_batch if isinstance(made, Reshape) else manifest.since
    seqs = seqs_of(directory.checkpoint(before))
    shared = max((seq for number, seq in seqs.items() if number <= until), default=0)
    batches = {seq: batch for seq, batch in about.batches.items() if seq <= shared}
    then = manifest.saying(
        before,
        generation=before.generation,
        partitions=before.partitions,
        earlier=before.earlier,
        live_from=max(before.live_from, manifest.live_from),
    )
    journal = Journal(journal.delivered, {**batches, **journal.batches})
    problems = damaged_files(directory.checkpoint(then))
    work.delete()
    found = whole(opened, then, journal, problems, work, until, manifest)
    return None if found.batch is None else found


def _renew_descriptions(
    opened: Opened, manifest: Manifest, old: Checkpoint, new: Checkpoint, problems: list[Problem]
) -> None:
    """Write again what is damaged of what describes the query and its operators."""
    if new.id_file.read() is None:
        gone = str(old.id_file)
        problems += [] if gone in {p.file for p in problems} else [Problem(gone, "it is gone")]
        new.renew_id()
    lost = list(new.operator_problems(manifest.layers))
    for problem in lost:
        file = problem.file.replace(str(new.folder), str(old.folder))
        if file not in {known.file for known in problems}:
            problems.append(Problem(file, problem.what))
    if lost:
        _renew_operators(opened, manifest, new.folder)


def _clock(files: list[Location], journal: Journal, seq: int) -> KnownTime | None:
    """Return what was known about the time after a batch: from its own file, or the next plan."""
    for file in files:
        known = read_clock(file)
        if known is not None and known.seq == seq:
            return known.asked_again()
    return clock_of(journal, seq)


def _edits_behind(manifest: Manifest, checkpoint: Checkpoint, last: int | None) -> list[int]:
    """Return the batches after one that people have put there: by the audit and by the log."""
    found = {number for number in manifest.edits() if last is None or number > last}
    for number in checkpoint.committed():
        with suppress(DamagedStateError):
            batch = checkpoint.batch(number)
            is_behind = batch is not None and (last is None or number > last)
            if batch is not None and is_behind and batch.is_edit:
                found.add(number)
    return sorted(found)


def seqs_of(checkpoint: Checkpoint) -> dict[int, int]:
    """Return the clock of each batch whose offsets can be read."""
    found = {}
    for number in checkpoint.planned():
        with suppress(DamagedStateError):
            batch = checkpoint.batch(number)
            if batch is not None:
                found[number] = batch.clock.seq
    return found


def _renew_operators(opened: Opened, manifest: Manifest, work: Location) -> None:
    """Write the descriptions of the operators again; they depend on nothing but their number."""
    from millpond.spark.edit import write_shape

    write_shape(opened.session, Checkpoint(work), manifest.layers, manifest.partitions)


def _last_whole(
    opened: Opened,
    manifest: Manifest,
    old: Checkpoint,
    new: Checkpoint,
    problems: list[Problem],
    clocks: dict[int, KnownTime | None],
) -> int | None:
    """Return the last batch that can be read whole, in a copy without what is damaged."""
    for number in reversed(new.committed()):
        if number < manifest.live_from:
            break  # the batches after it read files as if they were a topic
        if number and clocks.get(number) is None:
            continue  # it would have to be replayed, from a batch that may not be whole
        try:
            new.check_log(number)
            if number:  # Spark looks at where the batch before ended, too
                new.check_log(number - 1, is_committed=False)
            count_values(opened, manifest, number, new.folder)
        except UnsupportedCheckpointError:  # nothing is damaged
            raise
        except (DamagedStateError, StateError, EngineError) as error:
            file = file_of(error, new).replace(str(new.folder), str(old.folder))
            if file not in {problem.file for problem in problems}:
                problems.append(Problem(file, first_line(error)))
            logger.debug("batch %d is not whole: %s", number, error)
        else:
            return number
    return None
