"""The log files of a Spark checkpoint: which batches there are, and what each of them read.

    generations/0001/
      metadata                 the id of the query
      offsets/<batch>          what a batch reads: settings, then one line a source
      commits/<batch>          written when it is done; names the state files that belong to it
      state/<layer>/           schema of the state; a folder of files for each partition

Takes the folder of a generation. The formats are in `spark_files`, one module a kind of file.
State itself is read by `spark.statestore`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from millpond.errors import DamagedStateError
from millpond.storage.files import Location
from millpond.storage.spark_files import (
    commit_log,
    offset_log,
    operator_metadata,
    query_id,
    state_files,
)
from millpond.storage.spark_files.checksums import checksum_fits, sums_of
from millpond.storage.spark_files.offset_log import Batch
from millpond.storage.spark_files.versions import check_version, unsupported

__all__ = ["Batch", "Checkpoint", "Problem", "damaged"]

_LOGS = {offset_log.FOLDER: offset_log.VERSIONS, commit_log.FOLDER: commit_log.VERSIONS}


@dataclass(frozen=True)
class Problem:
    """A file that is not as it was written."""

    file: str
    what: str


class Checkpoint:
    """The checkpoint of one generation."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    # --- batches ----------------------------------------------------------------------------

    def committed(self) -> list[int]:
        """Return the numbers of the batches that are done, as far as they are kept."""
        return self._numbers(commit_log.FOLDER)

    def planned(self) -> list[int]:
        """Return the numbers of the batches whose offsets are written down."""
        return self._numbers(offset_log.FOLDER)

    def committed_ms(self) -> dict[int, int]:
        """Return when each batch was done, as far as they are kept."""
        found = (self.folder / commit_log.FOLDER).entries()
        return {int(info.name): info.modified_ms for info in found if info.name.isdigit()}

    @property
    def id_file(self) -> Location:
        """The id of the query."""
        return self.folder / query_id.FILE

    def planned_file(self, number: int) -> Location:
        """Return where it is written down what a batch reads."""
        return self.folder / offset_log.FOLDER / str(number)

    def committed_file(self, number: int) -> Location:
        """Return the file that is there where a batch is done."""
        return self.folder / commit_log.FOLDER / str(number)

    def last(self) -> int | None:
        """Return the last batch that is done."""
        return max(self.committed(), default=None)

    def _numbers(self, folder: str) -> list[int]:
        found = (self.folder / folder).entries()
        return sorted(int(info.name) for info in found if info.name.isdigit())

    def batch(self, number: int) -> Batch | None:
        """Return what is written down about a batch; None where it is not kept.

        Raises:
            DamagedStateError: where the file is damaged.
            UnsupportedCheckpointError: where another version of Spark wrote it.
        """
        file = self.planned_file(number)
        text = file.text()
        if text is None:
            return None
        if file.is_local and not checksum_fits(file):  # elsewhere the system looks at its own
            raise damaged(file, "its checksum does not fit")
        check_version(file, offset_log.VERSIONS, text)
        try:
            return offset_log.batch_in(number, text)
        except offset_log.ERRORS as error:
            raise damaged(file, error) from error

    def check(self, layers: int) -> None:
        """Refuse what a start would stumble over.

        Args:
            layers: How many operators keep state.

        Raises:
            DamagedStateError: where one of the small files is torn, changed or gone.
        """
        for problem in self.problems(layers):
            raise damaged(problem.file, problem.what)

    def problems(self, layers: int) -> Iterator[Problem]:
        """Yield what is damaged of the small files that the next start needs.

        Files of state are not read here: Spark checks them when it loads them.
        """
        planned, committed = self.planned(), self.committed()
        if not planned and not committed:
            if self.last_run() is not None:
                yield Problem(str(self.folder), "its batches are gone")
            return
        query = self.id_file
        text = query.text()
        if text is None or not checksum_fits(query) or not query_id.is_whole(text):
            what = "it is gone" if text is None else "its checksum does not fit"
            yield Problem(str(query), what)
        last, latest = max(committed, default=-1), max(planned, default=-1)
        # Spark asks where the latest batch begins, which is where the one before it ended.
        needed = {n for n in (latest - 1, last) if n >= 0}
        for number in sorted(needed | ({last - 1, last + 1} & set(planned))):
            yield from self.log_problems(number, is_committed=number in committed)
        if latest > last + 1:
            yield Problem(str(self.committed_file(last + 1)), "it is gone")
        if (run := self.last_run()) is not None and run > latest:
            yield Problem(str(self.planned_file(run)), "it is gone")
        if committed:
            yield from self.operator_problems(layers)

    def last_run(self) -> int | None:
        """Return the last batch that has written state, where there is state.

        One partition is enough: each batch writes a file in all of them.
        """
        partition = self.folder / state_files.FOLDER / "0" / "0"
        return state_files.last_batch(info.name for info in partition.entries())

    def missing_logs(self) -> Iterator[Problem]:
        """Yield the log files that are gone from between two others."""
        for folder in _LOGS:
            numbers = self._numbers(folder)
            missing = set(range(min(numbers), max(numbers))) - set(numbers) if numbers else set()
            for number in sorted(missing):
                yield Problem(str(self.folder / folder / str(number)), "it is gone")

    def check_log(self, number: int, *, is_committed: bool = True) -> None:
        """Refuse a batch whose log files are torn, changed or gone."""
        for problem in self.log_problems(number, is_committed=is_committed):
            raise damaged(problem.file, problem.what)

    def log_problems(self, number: int, *, is_committed: bool = True) -> Iterator[Problem]:
        """Yield the log files of a batch that are torn, changed or gone."""
        for folder in _LOGS if is_committed else (offset_log.FOLDER,):
            file = self.folder / folder / str(number)
            text = file.text()
            if text is None:
                yield Problem(str(file), "it is gone")
            elif not checksum_fits(file):
                yield Problem(str(file), "its checksum does not fit")
            else:
                check_version(file, _LOGS[folder], text)
                if not _is_log(folder, number, text):
                    yield Problem(str(file), "it is torn")

    def operator_problems(self, layers: int) -> Iterator[Problem]:
        """Yield descriptions of operators that are torn, changed or gone."""
        for layer in range(layers):
            home = self.folder / state_files.FOLDER / str(layer)
            folder = operator_metadata.folder_of(home)
            about = [info.name for info in folder.entries() if info.name.isdigit()]
            others = {info.name for info in (home / operator_metadata.FOLDER).entries()}
            others -= {operator_metadata.VERSION, *operator_metadata.OTHERS}
            if not about and others:
                raise unsupported(home / operator_metadata.FOLDER, min(others))
            if not about:
                yield Problem(str(folder / "0"), "it is gone")
            for name in about:
                file = folder / name
                text = file.text() or ""
                if checksum_fits(file):
                    check_version(file, operator_metadata.VERSIONS, text)
                if not checksum_fits(file) or not operator_metadata.is_whole(text):
                    yield Problem(str(file), "its checksum does not fit")
                for schema in operator_metadata.schemas_in(text):
                    place = home / operator_metadata.SCHEMAS / schema
                    if place.read() is None:
                        yield Problem(str(place), "it is gone")
                    elif not checksum_fits(place):
                        yield Problem(str(place), "its checksum does not fit")

    def take_back(self, number: int) -> None:
        """Forget that a batch was done.

        The checksum goes first: one that is left would not fit the commit that comes later.
        """
        self.committed_file(number).beside(f".{number}.crc").delete()
        self.committed_file(number).delete()

    def remove_leftovers(self) -> None:
        """Remove the temporary files of a process that died before it planned its first batch.

        Spark refuses to plan a first batch beside them. Later ones do no harm: Spark ignores them.
        """
        if self.planned() or self.committed():
            return
        for place, _ in self.folder.walk():
            if state_files.is_temporary(place.name):
                place.delete()

    def renew_id(self) -> None:
        """Write the id of the query again; nothing depends on which one it is."""
        self.id_file.write(query_id.new_id())
        (self.folder / f".{query_id.FILE}.crc").delete()

    def settle(self) -> None:
        """Make sure that the checkpoint refers to itself, wherever its folder was before.

        Spark writes down the whole path of the schema of the state.
        """
        state = self.folder / state_files.FOLDER
        for layer in state.entries():
            about = operator_metadata.folder_of(state / layer.name)
            for info in about.entries():
                text = (about / info.name).text() if info.name.isdigit() else None
                here = "" if text is None else operator_metadata.relocated(text, self.folder)
                if text is not None and here != text:
                    (about / f".{info.name}.crc").delete()
                    (about / info.name).write(here.encode())

    def take_shape(self, other: Checkpoint, layers: int) -> None:
        """Take the id of the query and what describes its operators from another checkpoint."""
        for layer in range(layers):
            for part in (operator_metadata.FOLDER, operator_metadata.SCHEMAS):
                (self.folder / state_files.FOLDER / str(layer) / part).delete()
        (self.folder / f".{query_id.FILE}.crc").delete()
        for place, _ in other.folder.walk():
            relative = other._relative(place)
            is_shape = operator_metadata.is_shape(relative) and not place.name.endswith(".crc")
            if relative == query_id.FILE or is_shape:
                (self.folder / relative).write(place.read() or b"")
        self.settle()

    # --- copies -----------------------------------------------------------------------------

    def is_by_hand(self, number: int) -> bool:
        """Tell whether a batch was put in by people: no time passes between it and the last."""
        batch, before = self.batch(number), self.batch(number - 1)
        if batch is not None and batch.is_edit:
            return True  # also where it is the first of all, see `admin.reshape`
        if batch is None or before is None:
            return False
        return batch.has_clock and before.has_clock and batch.clock.seq == before.clock.seq

    def copy_to(
        self,
        target: Location,
        last: int | None = None,
        leave_out: Collection[str] = (),
        share: bool = True,
    ) -> None:
        """Copy the checkpoint as it was after a batch; the copy goes on by itself.

        State files never change once they are there, so on one disk their bytes may be shared.
        """
        last = self.last() if last is None else last

        def copy(place: Location) -> None:
            relative = self._relative(place)
            is_description = operator_metadata.is_description(relative)
            if is_description and place.name.isdigit():
                text = operator_metadata.relocated(place.text() or "", target)
                (target / relative).write(text.encode())
            elif not (is_description and relative.endswith(".crc")):
                # Of one that runs, files of old batches may go while we look at them.
                with suppress(FileNotFoundError):
                    place.copy_to(target / relative, share)

        wanted = [
            place
            for place, info in self.folder.walk()
            if place.path not in leave_out
            and not info.name.endswith(".tmp")
            and (last is None or not _is_after(self._relative(place), last))
        ]
        self.folder.each(wanted, copy)

    def _relative(self, place: Location) -> str:
        return place.path.removeprefix(self.folder.path + "/")

    def unfit(self) -> list[Location]:
        """Return the files that are not as they were written, by the checksums beside them."""
        files = [place for place, _ in self.folder.walk()]
        known = {place.path for place in files}
        summed = [
            place
            for place in files
            if not place.name.startswith(".") and any(sums.path in known for sums in sums_of(place))
        ]
        fit = self.folder.each(summed, checksum_fits)
        return [place for place, is_fit in zip(summed, fit, strict=True) if not is_fit]

    def cut(self, last: int) -> None:
        """Remove what belongs to batches after one."""
        files = [place for place, _ in self.folder.walk()]
        self.folder.each((p for p in files if _is_after(self._relative(p), last)), Location.delete)


def _is_log(folder: str, number: int, text: str) -> bool:
    """Tell whether a text is what Spark writes about a batch in a folder of its log."""
    if folder == commit_log.FOLDER:
        return commit_log.is_whole(text)
    return offset_log.is_whole(number, text)


def _is_after(relative: str, last: int) -> bool:
    """Tell whether a file belongs to batches after the last one wanted."""
    folder, _, name = relative.rpartition("/")
    number = name.removeprefix(".").removesuffix(".crc")
    if folder in _LOGS:
        return number.isdigit() and int(number) > last
    if folder.startswith(f"{state_files.FOLDER}/"):
        if (version := state_files.version_of(name)) is not None:
            return version > last + 1
        if folder.endswith(f"/{operator_metadata.FOLDER}/{operator_metadata.VERSION}"):
            return number.isdigit() and int(number) > max(last, 0)
    return folder == "" and not name.lstrip(".").startswith(query_id.FILE)


def damaged(file: Location | str, error: object) -> DamagedStateError:
    """Return the error for a file that cannot be read."""
    msg = (
        f"{file} is damaged: {error}.\n"
        "Fix: millpond state repair APP.py goes back to the last batch that is whole; "
        'Application(recover="auto") does so at the start.'
    )
    return DamagedStateError(msg)
