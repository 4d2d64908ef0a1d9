"""Back to where the state is whole.

Takes an opened group that is stopped; gives a plan. Where the plan is applied, a generation is made
of the last batch that can be read, and the batches after it are replayed as they were: state and
outputs are then those of a run that nothing happened to. What is damaged stays where it is until
the next change.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from millpond.errors import DamagedStateError, StateError
from millpond.operations.basis import Basis, basis_of
from millpond.operations.generations import journal_of
from millpond.operations.session import Opened
from millpond.operations.verify import damaged_files, first_line, read_state
from millpond.operations.whole_batch import Whole, seqs_of, whole, whole_before
from millpond.storage.audit import Repair, Rescale
from millpond.storage.batch_source import clock_in, has_clock
from millpond.storage.checkpoint import Checkpoint, Problem
from millpond.storage.clock_file import read_clock
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest

__all__ = ["Findings", "RepairPlan", "plan_repair", "repair"]

_START_OVER = (
    "Fix: millpond state restore, if there is a backup; or start over: app.clear_state(True)."
)


@dataclass(frozen=True)
class RepairPlan:
    """What is damaged, and what going back to where the state is whole means."""

    batch: int | None
    """The state is as of this batch; None: of the beginning."""
    batches: int
    """Batches that are replayed; their outputs are not written again."""
    problems: list[Problem]
    basis: Basis
    lost_edits: int = 0
    """Manual changes that are lost with what was damaged."""
    removes: tuple[str, ...] = ()
    """Damaged spools of lists: the next start takes these lists from the program again."""

    def __str__(self) -> str:
        if not self.problems:
            return "nothing is damaged that the next start needs"
        files = ", ".join(problem.file for problem in self.problems)
        where = "the beginning" if self.batch is None else f"batch {self.batch}"
        text = f"damaged: {files}; the state is as of {where}"
        if self.batches:
            text += f", {self.batches} batch(es) are replayed and their outputs not written again"
        if self.lost_edits:
            text += f"; {self.lost_edits} manual change(s) after it are lost: see the audit"
        return text

    def does_as(self, other: RepairPlan) -> bool:
        """Tell whether another plan does the same: an error may be worded in more than one way."""
        return self._does() == other._does()

    def _does(self) -> tuple[object, ...]:
        files = {problem.file for problem in self.problems}
        return self.batch, self.batches, files, self.lost_edits, self.removes


@dataclass(frozen=True)
class Findings:
    """What is known of a group of which something is damaged."""

    manifest: Manifest
    problems: list[Problem]
    journal: Journal
    whole: Whole | None
    """The last batch that is whole; None: nothing is damaged."""
    done: int
    """The clock of the last batch that is known to be done."""
    goes_on_from: int | None
    """The batch from which the next start goes on, where nothing is damaged."""
    folder: str
    """That of the generation, for messages."""
    spools: tuple[str, ...] = ()
    """Damaged spools of lists."""

    @property
    def replay_until(self) -> int:
        """The clock up to which batches must be done as they were."""
        seq = 0 if self.whole is None else self.whole.seq
        return max(seq, self.journal.delivered + 1, self.manifest.replay_until, self.done)


def plan_repair(found: Findings, basis: Basis, *, lose_edits: bool) -> RepairPlan:
    """Return the plan of going back to the last batch that is whole.

    Args:
        found: What is damaged, and what is whole.
        basis: The state as it is.
        lose_edits: Whether manual changes may be lost that come after that batch.

    Raises:
        StateError: where nobody could go on from there.
        DamagedStateError: where manual changes would be lost.
    """
    last = found.whole
    if last is None:
        return RepairPlan(found.goes_on_from, 0, [], basis)
    if last.batch is None and found.manifest.live_from:
        msg = f"nothing of {found.folder} is whole, and its first batches are of a backfill of "
        raise StateError(f"{msg}files.\n{_START_OVER}")
    done, batches = found.replay_until, last.journal.batches
    gap = set(range(last.seq + 1, max(done, *batches, 0) + 1)) - batches.keys()
    if gap:
        msg = (
            f"{'no batch' if last.batch is None else f'only batch {last.batch}'} of "
            f"{found.folder} is whole, and what {len(gap)} of the later batches read is not known "
            "any more."
        )
        raise StateError(f"{msg}\n{_START_OVER}")
    if last.edits and not lose_edits:
        msg = (
            f"with what is damaged, {len(last.edits)} manual change(s) of the state would be "
            f"lost (batches {list(last.edits)}).\nFix: millpond state repair does it; then make "
            "the changes again."
        )
        raise DamagedStateError(msg)
    return RepairPlan(
        last.batch, done - last.seq, found.problems, basis, len(last.edits), found.spools
    )


def repair(
    opened: Opened,
    *,
    lose_edits: bool,
    dry_run: bool = False,
    planned: RepairPlan | None = None,
) -> RepairPlan:
    """Go back to the last batch that is whole.

    Args:
        opened: The group.
        lose_edits: Whether manual changes may be lost that come after that batch.
        dry_run: Only make the plan.
        planned: The plan that somebody has looked at: nothing else is done.
    """
    directory = opened.directory
    with directory.held("repair") as hold:
        work = directory.generation_folder(directory.next_generation())
        is_applied = False
        try:
            found = _look(opened, work)
            basis = basis_of(directory, found.manifest, int(work.name))
            plan = plan_repair(found, basis, lose_edits=lose_edits)
            if planned is not None and not plan.does_as(planned):
                msg = f"what is damaged has changed since the plan was made: {plan}. Nothing was"
                raise StateError(f"{msg} changed.\nFix: look at the new plan, and repair again.")
            is_applied = bool(plan.problems) and not dry_run
            if is_applied:
                _apply(directory, plan, found, work)
        except BaseException:
            if is_applied:
                directory.abandon(int(work.name))
            raise
        finally:
            # A copy to look at, which never was current. Who took over may have one of its number.
            if not is_applied and not hold.lost_to:
                directory.drop_generation(int(work.name))
    return plan


def _look(opened: Opened, work: Location) -> Findings:
    """Find what is damaged, and the last batch that is whole; `work` is where it is copied to."""
    directory = opened.directory
    problems: list[Problem] = []
    manifest = _manifest(directory, problems)
    checkpoint = directory.checkpoint(manifest)
    problems += directory.damage(manifest)
    for lost in directory.lost_lists(manifest):
        msg = f"{lost.file} and its copy are damaged: {lost.what}."
        fix = "millpond state restore, if there is a backup; or app.clear_state(True)"
        raise StateError(f"{msg}\nFix: {fix}, which starts over.")
    spools = tuple(Path(spool.file).parent.name for spool in directory.damaged_spools(manifest))
    journal, folder = Journal(), str(checkpoint.folder)
    if not problems:
        batch = directory.goes_on_from(manifest)
        with suppress(OSError):  # a folder that was moved, and may only be read
            checkpoint.settle()
        _, said = read_state(opened, manifest, batch)
        if said is None:
            return Findings(manifest, [], journal, None, 0, batch, folder)
    known = {problem.file for problem in problems}
    problems += [p for p in damaged_files(checkpoint) if p.file not in known]
    journal = _journal(directory, manifest)
    found = whole(opened, manifest, journal, problems, work)
    if found.batch is None:
        found = whole_before(opened, manifest, journal, work) or found
    done = _done(manifest, checkpoint)
    return Findings(manifest, problems, journal, found, done, None, folder, spools)


def _apply(directory: StateDirectory, plan: RepairPlan, found: Findings, work: Location) -> None:
    """Make the copy of what is whole the current generation."""
    assert found.whole is not None
    for name in plan.removes:
        (directory.sources / name).delete()
    _go_back(directory, found.whole, found.replay_until, plan.problems, work)
    directory.drop_others(int(work.name), found.manifest.generation)


def _go_back(
    directory: StateDirectory,
    found: Whole,
    done: int,
    problems: list[Problem],
    work: Location,
) -> None:
    """Make the copy the current generation, as of the batch that is whole."""
    batch, new = found.batch, Checkpoint(work)
    if batch is None:
        work.delete()
    else:
        new.cut(batch)
    repaired = replace(found.manifest.at(batch), generation=int(work.name))
    repaired.audit = list(found.manifest.audit)
    repaired.replay_until, repaired.since = done, -1 if batch is None else batch
    planned = None if batch is None else new.batch(batch)
    if planned is not None and planned.partitions:
        repaired.partitions = planned.partitions
    if found.clock is not None:
        directory.clock_file(repaired).write(found.clock.encode())
    kept = Journal(max(found.journal.delivered, done - 1), found.journal.batches)
    directory.journal_file(repaired).write(kept.encode())
    repaired.note(Repair(batch=batch, files=[problem.file for problem in problems]))
    directory.begin(repaired)


def _manifest(directory: StateDirectory, problems: list[Problem]) -> Manifest:
    try:
        manifest = directory.load()
    except DamagedStateError as error:
        problems.append(Problem(str(directory.folder / "manifest.json"), first_line(error)))
        manifest = directory.recalled()
    if manifest is None:
        msg = f"there is no state of group {directory.group!r} in {directory.folder}."
        raise StateError(msg + "\nFix: check the folder.")
    return manifest


def _journal(directory: StateDirectory, manifest: Manifest) -> Journal:
    """Return what is known of batches from every place that says it."""
    journal = journal_of(directory, manifest)
    batches, delivered = dict(journal.batches), journal.delivered
    known = read_clock(directory.clock_file(manifest))
    if known is not None and known.planned and has_clock(known.planned):
        seq = clock_in(known.planned).seq
        batches.setdefault(seq, known.planned)
        delivered = max(delivered, seq - 1)  # what a batch saw is written after its delivery
    return Journal(delivered, batches)


def _done(manifest: Manifest, checkpoint: Checkpoint) -> int:
    """Return the clock of the last batch that is known to be done, whatever is left of its files.

    A batch was committed where the next one is planned. Where the clock of a batch cannot be read,
    it is one more than that of the batch before, unless the batch was made manually.
    """
    committed, planned = checkpoint.committed(), checkpoint.planned()
    run = checkpoint.last_run()
    begun = max(planned, default=0)
    last = max([*committed, begun - 1, manifest.since, -1 if run is None else run - 1])
    by_hand = set(manifest.edits())
    if manifest.audit and isinstance(manifest.audit[-1], Rescale):
        by_hand.add(manifest.since)
    seqs = seqs_of(checkpoint)
    known = max((number for number in seqs if number <= last), default=-1)
    rest = [number for number in range(known + 1, last + 1) if number not in by_hand]
    is_left = not committed and not planned and run is not None  # of a batch, and no more
    return max(seqs.get(known, 0) + len(rest), int(is_left))
