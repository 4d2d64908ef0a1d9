"""Is the state whole, and if not, back to where it is.

What is damaged is what the next start cannot go on with: `StateDirectory.damage`, and the state of
the batch that it goes on from. `verify` reads that and every other file, and compares checksums.
`repair` finds the last batch that can be read, makes a generation of it, and lets the batches
after it be replayed as they were: state and outputs are then those of a run that nothing
happened to. What is damaged stays where it is until the next change.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millpond.connectors.file_list import COPY, LIST, parse_list
from millpond.documents import sealed, unsealed
from millpond.errors import (
    DamagedStateError,
    EngineError,
    StateError,
    UnsupportedCheckpointError,
)
from millpond.operations.generations import asking, clock_of, journal_of
from millpond.operations.session import Opened
from millpond.storage.checkpoint import Checkpoint, Problem
from millpond.storage.clock_file import read_clock
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest, read_manifest

__all__ = ["Problem", "Repaired", "Verified", "damaged_files", "repair", "verify"]

logger = logging.getLogger("millpond")

_START_OVER = (
    "Fix: millpond state restore, if there is a backup; or start over: app.clear_state(True)."
)

# Changes whose generation was not made from the one before it.
_OF_ELSEWHERE = ("restore", "clear_state", "fork", "backup")


@dataclass(frozen=True)
class Verified:
    """What was found."""

    batch: int | None
    files: int
    bytes: int
    values: int
    problems: list[Problem] = field(default_factory=list)
    """What the next start cannot go on with."""
    history: list[Problem] = field(default_factory=list)
    """What else is damaged: nobody can look at those batches, or go back to them."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Repaired:
    """What was repaired, and what will be replayed."""

    batch: int | None
    """The state is as of this batch; None: of the beginning."""
    batches: int
    """Batches that are replayed; their outputs are not written again."""
    problems: list[Problem]
    lost_edits: int = 0
    """Manual changes that are lost with what was damaged."""

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


# --- verify ---------------------------------------------------------------------------------


def verify(opened: Opened) -> Verified:
    """Read everything that the next start needs, and everything else that is kept."""
    directory = opened.directory
    problems: list[Problem] = []
    try:
        manifest = opened.manifest()
    except DamagedStateError as error:
        problems.append(Problem(str(directory.folder / "manifest.json"), _first_line(error)))
        manifest = directory.recalled()
    checkpoint = directory.checkpoint(manifest)
    found = checkpoint.folder.walk()
    problems += directory.damage(manifest)
    others = damaged_files(checkpoint) + _beside(directory, manifest)
    batch, values = checkpoint.last(), 0
    if not problems:
        batch = directory.goes_on_from(manifest)
        values, said = _read(opened, manifest, batch)
        if said is not None:  # what Spark says of a damaged file is long and names it seldom
            problems += [p for p in others if p.file.startswith(checkpoint.folder.path)] or [said]
    known = {problem.file: problem for problem in reversed(problems)}
    history = [problem for problem in others if problem.file not in known]
    size = sum(info.size for _, info in found)
    return Verified(batch, len(found), size, values, list(known.values()), history)


def _read(opened: Opened, manifest: Manifest, batch: int | None) -> tuple[int, Problem | None]:
    """Read the state of a batch whole; return how many values it has, and what is damaged."""
    if batch is None:
        return 0, None
    try:
        return _count(opened, manifest, batch), None
    except (DamagedStateError, StateError, EngineError) as error:
        checkpoint = opened.directory.checkpoint(manifest)
        return 0, Problem(_file_of(error, checkpoint), _first_line(error))


def _beside(directory: StateDirectory, manifest: Manifest) -> list[Problem]:
    """Return what is torn of the files beside the checkpoint: a repair needs them."""
    places = [directory.journal_file(manifest), directory.clock_file(manifest)]
    places.append(directory.folder / f"manifest-{manifest.generation:04d}.json")
    problems = _damaged_lists(directory)
    for place in places:
        text = place.text()
        try:
            if text is not None:
                unsealed(text)
        except ValueError as error:
            problems.append(Problem(str(place), str(error)))
    return problems


def _damaged_lists(directory: StateDirectory) -> list[Problem]:
    """Return the lists of files of which the other copy must do."""
    places = [place for place, _ in directory.sources.walk() if place.name.endswith((LIST, COPY))]
    what = "it cannot be read, or its checksum does not fit"
    return [Problem(str(place), what) for place in places if parse_list(place.text()) is None]


def damaged_files(checkpoint: Checkpoint) -> list[Problem]:
    """Return the files whose checksum does not fit, and log files that are missing in between."""
    problems = [Problem(str(place), "its checksum does not fit") for place in checkpoint.unfit()]
    problems += checkpoint.missing_logs()
    committed = checkpoint.committed()
    for number in {*committed, *checkpoint.planned()}:
        problems += checkpoint.log_problems(number, is_committed=number in committed)
    return list({problem.file: problem for problem in reversed(problems)}.values())


def _count(opened: Opened, manifest: Manifest, batch: int, folder: Location | None = None) -> int:
    """Read the state of a batch whole, every page of it; return how many values it has."""
    if not manifest.layers:
        return 0
    from millpond.spark.statestore import telling

    reader = opened.reader(manifest, folder)
    with telling(reader.checkpoint):
        return int(reader.rows(batch).count())


# --- repair ---------------------------------------------------------------------------------


def repair(opened: Opened, lose_edits: bool) -> Repaired:
    """Go back to the last batch that is whole."""
    directory = opened.directory
    with directory.held("repair"):
        problems: list[Problem] = []
        manifest = _manifest(directory, problems)
        checkpoint = directory.checkpoint(manifest)
        problems += directory.damage(manifest)
        for lost in directory.lost_lists(manifest):
            msg = f"{lost.file} and its copy are damaged: {lost.what}."
            fix = "millpond state restore, if there is a backup; or app.clear_state(True)"
            raise StateError(f"{msg}\nFix: {fix}, which starts over.")
        for spool in directory.damaged_spools(manifest):
            # The next start takes the list from the program again, and goes on where it was.
            (directory.sources / Path(spool.file).parent.name).delete()
        if not problems:
            batch = directory.goes_on_from(manifest)
            with suppress(OSError):  # a folder that was moved, and may only be read
                checkpoint.settle()
            _, said = _read(opened, manifest, batch)
            if said is None:
                return Repaired(batch, 0, [])
        known = {problem.file for problem in problems}
        problems += [p for p in damaged_files(checkpoint) if p.file not in known]
        journal = _journal(directory, manifest)
        work = directory.generation_folder(directory.next_generation())
        try:
            return _repair(opened, manifest, journal, problems, work, lose_edits)
        except BaseException:
            directory.abandon(int(work.name))
            raise


@dataclass(frozen=True)
class _Whole:
    """A batch that is whole, in a copy of its generation without what is damaged."""

    manifest: Manifest
    """What is said of the state up to that batch, among other things."""
    journal: Journal
    batch: int | None
    seq: int = 0
    clock: dict[str, Any] | None = None
    edits: tuple[int, ...] = ()
    """The batches after it that people have put there."""


def _repair(
    opened: Opened,
    manifest: Manifest,
    journal: Journal,
    problems: list[Problem],
    work: Location,
    lose_edits: bool,
) -> Repaired:
    directory = opened.directory
    old = directory.checkpoint(manifest)
    found = _whole(opened, manifest, journal, problems, work)
    if found.batch is None:
        found = _before(opened, manifest, journal, work) or found
    if found.batch is None and manifest.live_from:
        msg = f"nothing of {old.folder} is whole, and its first batches are of a backfill of files."
        raise StateError(f"{msg}\n{_START_OVER}")
    done = max(found.seq, journal.delivered + 1, manifest.replay_until, _done(manifest, old))
    batches = found.journal.batches
    gap = set(range(found.seq + 1, max(done, *batches, 0) + 1)) - batches.keys()
    if gap:
        msg = (
            f"{'no batch' if found.batch is None else f'only batch {found.batch}'} of {old.folder} "
            f"is whole, and what {len(gap)} of the later batches read is not known any more."
        )
        raise StateError(f"{msg}\n{_START_OVER}")
    if found.edits and not lose_edits:
        msg = (
            f"with what is damaged, {len(found.edits)} manual change(s) of the state would be "
            f"lost (batches {list(found.edits)}).\nFix: millpond state repair does it; then make "
            "the changes again."
        )
        raise DamagedStateError(msg)
    _go_back(directory, found, done, problems, work)
    directory.drop_others(int(work.name), manifest.generation)
    return Repaired(found.batch, done - found.seq, problems, len(found.edits))


def _go_back(
    directory: StateDirectory,
    found: _Whole,
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
        directory.clock_file(repaired).write(sealed(found.clock))
    kept = Journal(max(found.journal.delivered, done - 1), found.journal.batches)
    directory.journal_file(repaired).write(kept.encode())
    repaired.note("repair", batch=batch, files=[problem.file for problem in problems])
    directory.begin(repaired)


def _whole(
    opened: Opened,
    manifest: Manifest,
    journal: Journal,
    problems: list[Problem],
    work: Location,
    until: int | None = None,
    now: Manifest | None = None,
) -> _Whole:
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
    seqs = _seqs(old)
    last = max([*old.planned(), *old.committed(), 0]) if until is None else until
    old.copy_to(work, last, leave_out={problem.file for problem in problems})
    _renew_descriptions(opened, manifest, old, new, problems)
    files = [directory.clock_file(one) for one in (manifest, now) if one is not None]
    clocks = {n: _clock(files, journal, seq) for n, seq in seqs.items()}
    batch = _last_whole(opened, manifest, old, new, problems, clocks)
    edits = tuple(n for n in _edits_behind(manifest, old, batch) if until is None or n <= until)
    if batch is None:
        return _Whole(manifest, journal, None, edits=edits)
    clock = clocks[batch]
    if clock is None and new.is_by_hand(batch):
        # No program can replay that batch. How late its stream was is in its offsets, too.
        clock = asking({"seen": {}, "arrived": {}}, seqs[batch])
    return _Whole(manifest, journal, batch, seqs[batch], clock, edits)


def _before(opened: Opened, manifest: Manifest, journal: Journal, work: Location) -> _Whole | None:
    """Find the last whole batch in the generation that a change was made from; None: there is none.

    The two have the same batches up to the change. Those after it are in the journal.
    """
    directory = opened.directory
    made = next((e for e in manifest.audit if e.get("generation") == manifest.generation), None)
    kept = [number for number in directory.generations() if number < manifest.generation]
    if made is None or made["what"] in _OF_ELSEWHERE or not kept:
        return None
    file = directory.folder / f"manifest-{max(kept):04d}.json"
    try:
        before = read_manifest(file.text() or "", str(file))
        about = journal_of(directory, before)
    except (ValueError, KeyError, TypeError, AttributeError, StateError):
        return None
    until = made.get("last_batch", manifest.since)  # a reshape begins to count from 0
    seqs = _seqs(directory.checkpoint(before))
    shared = max((seq for number, seq in seqs.items() if number <= until), default=0)
    batches = {seq: batch for seq, batch in about.batches.items() if seq <= shared}
    then = replace(
        manifest,
        **before.claims(),
        generation=before.generation,
        partitions=before.partitions,
        earlier=before.earlier,
        live_from=max(before.live_from, manifest.live_from),
    )
    journal = Journal(journal.delivered, {**batches, **journal.batches})
    problems = damaged_files(directory.checkpoint(then))
    work.delete()
    found = _whole(opened, then, journal, problems, work, until, manifest)
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


def _manifest(directory: StateDirectory, problems: list[Problem]) -> Manifest:
    try:
        manifest = directory.load()
    except DamagedStateError as error:
        problems.append(Problem(str(directory.folder / "manifest.json"), _first_line(error)))
        manifest = directory.recalled()
        directory.save(manifest)
    if manifest is None:
        msg = f"there is no state of group {directory.group!r} in {directory.folder}."
        raise StateError(msg + "\nFix: check the folder.")
    return manifest


def _journal(directory: StateDirectory, manifest: Manifest) -> Journal:
    """Return what is known of batches from every place that says it."""
    journal = journal_of(directory, manifest)
    batches, delivered = dict(journal.batches), journal.delivered
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        planned = (read_clock(directory.clock_file(manifest)) or {})["planned"]
        seq = int(planned["clock"]["seq"])
        batches.setdefault(seq, planned)
        delivered = max(delivered, seq - 1)  # what a batch saw is written after its delivery
    return Journal(delivered, batches)


def _clock(files: list[Location], journal: Journal, seq: int) -> dict[str, Any] | None:
    """Return what was known about the time after a batch: from its own file, or the next plan."""
    for file in files:
        known = read_clock(file)
        if known is not None and known["seq"] == seq and "seen" in known:
            return asking(known, seq)
    return clock_of(journal, seq)


def _edits_behind(manifest: Manifest, checkpoint: Checkpoint, last: int | None) -> list[int]:
    """Return the batches after one that people have put there: by the audit and by the log."""
    found = {number for number in manifest.edits() if last is None or number > last}
    for number in checkpoint.committed():
        with suppress(DamagedStateError):
            batch = checkpoint.batch(number)
            is_behind = batch is not None and (last is None or number > last)
            if batch is not None and is_behind and "edits" in batch.source:
                found.add(number)
    return sorted(found)


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
    if manifest.audit and manifest.audit[-1]["what"] == "rescale":
        by_hand.add(manifest.since)
    seqs = _seqs(checkpoint)
    known = max((number for number in seqs if number <= last), default=-1)
    rest = [number for number in range(known + 1, last + 1) if number not in by_hand]
    is_left = not committed and not planned and run is not None  # of a batch, and no more
    return max(seqs.get(known, 0) + len(rest), int(is_left))


def _seqs(checkpoint: Checkpoint) -> dict[int, int]:
    """Return the clock of each batch whose offsets can be read."""
    found = {}
    for number in checkpoint.planned():
        with suppress(DamagedStateError):
            batch = checkpoint.batch(number)
            if batch is not None:
                found[number] = int(batch.clock.get("seq", 0))
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
    clocks: dict[int, dict[str, Any] | None],
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
            _count(opened, manifest, number, new.folder)
        except UnsupportedCheckpointError:  # nothing is damaged
            raise
        except (DamagedStateError, StateError, EngineError) as error:
            file = _file_of(error, new).replace(str(new.folder), str(old.folder))
            if file not in {problem.file for problem in problems}:
                problems.append(Problem(file, _first_line(error)))
            logger.debug("batch %d is not whole: %s", number, error)
        else:
            return number
    return None


def _file_of(error: BaseException, checkpoint: Checkpoint) -> str:
    """Return the file that an error speaks of."""
    for word in str(error).replace("file:", " ").split():
        name = word.strip(".,:;'\"()[]")
        if name.startswith(checkpoint.folder.path) and name != checkpoint.folder.path:
            return name
    return str(checkpoint.folder)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\nFix:")[0].partition("\n")[0][:300]
