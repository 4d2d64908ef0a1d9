"""Is the state whole.

What is damaged is what the next start cannot go on with: `StateDirectory.damage`, and the state of
the batch that it goes on from. Takes an opened group; reads that and every other file, and
compares checksums.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.connectors.file_list import COPY, LIST, parse_list
from millpond.documents import unsealed
from millpond.errors import DamagedStateError, EngineError, StateError
from millpond.operations.session import Opened
from millpond.storage.checkpoint import Checkpoint, Problem
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.manifest import Manifest

__all__ = [
    "Problem",
    "Verified",
    "count_values",
    "damaged_files",
    "file_of",
    "first_line",
    "read_state",
    "verify",
]


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


def verify(opened: Opened) -> Verified:
    """Read everything that the next start needs, and everything else that is kept."""
    directory = opened.directory
    problems: list[Problem] = []
    try:
        manifest = opened.manifest()
    except DamagedStateError as error:
        problems.append(Problem(str(directory.folder / "manifest.json"), first_line(error)))
        manifest = directory.recalled()
    checkpoint = directory.checkpoint(manifest)
    found = checkpoint.folder.walk()
    problems += directory.damage(manifest)
    others = damaged_files(checkpoint) + _beside(directory, manifest)
    batch, values = checkpoint.last(), 0
    if not problems:
        batch = directory.goes_on_from(manifest)
        values, said = read_state(opened, manifest, batch)
        if said is not None:  # what Spark says of a damaged file is long and names it seldom
            problems += [p for p in others if p.file.startswith(checkpoint.folder.path)] or [said]
    known = {problem.file: problem for problem in reversed(problems)}
    history = [problem for problem in others if problem.file not in known]
    size = sum(info.size for _, info in found)
    return Verified(batch, len(found), size, values, list(known.values()), history)


def read_state(opened: Opened, manifest: Manifest, batch: int | None) -> tuple[int, Problem | None]:
    """Read the state of a batch whole; return how many values it has, and what is damaged."""
    if batch is None:
        return 0, None
    try:
        return count_values(opened, manifest, batch), None
    except (DamagedStateError, StateError, EngineError) as error:
        checkpoint = opened.directory.checkpoint(manifest)
        return 0, Problem(file_of(error, checkpoint), first_line(error))


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


def count_values(
    opened: Opened, manifest: Manifest, batch: int, folder: Location | None = None
) -> int:
    """Read the state of a batch whole, every page of it; return how many values it has."""
    if not manifest.layers:
        return 0
    from millpond.spark.statestore import telling

    reader = opened.reader(manifest, folder)
    with telling(reader.checkpoint):
        return int(reader.rows(batch).count())


def file_of(error: BaseException, checkpoint: Checkpoint) -> str:
    """Return the file that an error speaks of."""
    for word in str(error).replace("file:", " ").split():
        name = word.strip(".,:;'\"()[]")
        if name.startswith(checkpoint.folder.path) and name != checkpoint.folder.path:
            return name
    return str(checkpoint.folder)


def first_line(error: BaseException) -> str:
    return str(error).partition("\nFix:")[0].partition("\n")[0][:300]
