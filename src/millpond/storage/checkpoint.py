"""The log files of a Spark checkpoint: which batches there are, and what each of them read.

    generations/0001/
      metadata                 the id of the query
      offsets/<batch>          what a batch reads: settings, then one line a source
      commits/<batch>          written when it is done; names the state files that belong to it
      state/<layer>/           schema of the state; a folder of files for each partition

Takes the folder of a generation. State itself is read by `spark.statestore`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from millpond.documents import parsed
from millpond.errors import DamagedStateError, UnsupportedCheckpointError
from millpond.storage.files import Location

__all__ = ["Batch", "Checkpoint", "Problem"]

All = dict[str, dict[str, int]]

# The versions of the files of a checkpoint that Spark 4.3 writes with our settings.
_VERSIONS = {"offsets": ("v1",), "commits": ("v1", "v2"), "_metadata": ("v2",)}

# State files are named by the version that they lead to: batch 7 writes version 8.
_VERSIONED = re.compile(r"^\.?(\d+)_[-0-9a-f]+\.(zip|changelog)")


@dataclass(frozen=True)
class Batch:
    """What is written down about a batch before it runs."""

    number: int
    time_ms: int
    """When it was planned, by the wall clock."""
    partitions: int
    """Into how many parts its state is divided."""
    source: dict[str, Any] = field(default_factory=dict)
    """What our own source wrote: `millpond` (offsets) and `clock`."""
    foreign: tuple[str, ...] = ()
    """What the sources of Spark itself wrote."""

    @property
    def offsets(self) -> All:
        """Up to where it reads each source."""
        return dict(self.source.get("millpond", {}))

    @property
    def clock(self) -> dict[str, Any]:
        """What time it is in it."""
        return dict(self.source.get("clock", {}))

    @property
    def now(self) -> int:
        """The wall clock of the batch; the same whenever it is replayed."""
        return int(self.clock.get("now") or self.time_ms)

    @property
    def reads(self) -> list[Any]:
        """What it reads and when it was planned: the same whenever it is replayed."""
        if self.foreign:
            return [self.offsets, self.time_ms, *self.foreign]
        return [self.offsets, self.clock.get("now", 0)]


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
        return self._numbers("commits")

    def planned(self) -> list[int]:
        """Return the numbers of the batches whose offsets are written down."""
        return self._numbers("offsets")

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
        file = self.folder / "offsets" / str(number)
        text = file.text()
        if text is None:
            return None
        if file.is_local and not checksum_fits(file):  # elsewhere the system looks at its own
            raise damaged(file, "its checksum does not fit")
        _check_version(file, "offsets", text)
        try:
            return _parsed(number, text)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
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
        query = self.folder / "metadata"
        text = query.text()
        if text is None or not checksum_fits(query) or not _is_json(text):
            what = "it is gone" if text is None else "its checksum does not fit"
            yield Problem(str(query), what)
        last, latest = max(committed, default=-1), max(planned, default=-1)
        # Spark asks where the latest batch begins, which is where the one before it ended.
        needed = {n for n in (latest - 1, last) if n >= 0}
        for number in sorted(needed | ({last - 1, last + 1} & set(planned))):
            yield from self.log_problems(number, is_committed=number in committed)
        if latest > last + 1:
            yield Problem(str(self.folder / "commits" / str(last + 1)), "it is gone")
        if (run := self.last_run()) is not None and run > latest:
            yield Problem(str(self.folder / "offsets" / str(run)), "it is gone")
        if committed:
            yield from self.operator_problems(layers)

    def last_run(self) -> int | None:
        """Return the last batch that has written state, where there is state.

        One partition is enough: each batch writes a file in all of them.
        """
        names = [info.name for info in (self.folder / "state" / "0" / "0").entries()]
        versions = [int(found[1]) for name in names if (found := _VERSIONED.match(name))]
        return max(versions, default=0) - 1 if versions else None

    def check_log(self, number: int, *, is_committed: bool = True) -> None:
        """Refuse a batch whose log files are torn, changed or gone."""
        for problem in self.log_problems(number, is_committed=is_committed):
            raise damaged(problem.file, problem.what)

    def log_problems(self, number: int, *, is_committed: bool = True) -> Iterator[Problem]:
        """Yield the log files of a batch that are torn, changed or gone."""
        for folder in ("offsets", "commits") if is_committed else ("offsets",):
            file = self.folder / folder / str(number)
            text = file.text()
            if text is None:
                yield Problem(str(file), "it is gone")
            elif not checksum_fits(file):
                yield Problem(str(file), "its checksum does not fit")
            else:
                _check_version(file, folder, text)
                if not _is_log(folder, number, text):
                    yield Problem(str(file), "it is torn")

    def operator_problems(self, layers: int) -> Iterator[Problem]:
        """Yield descriptions of operators that are torn, changed or gone."""
        for layer in range(layers):
            home = self.folder / "state" / str(layer)
            about = [i.name for i in (home / "_metadata" / "v2").entries() if i.name.isdigit()]
            others = {info.name for info in (home / "_metadata").entries()} - {"v1", "v2"}
            if not about and others:
                raise unsupported(home / "_metadata", min(others))
            if not about:
                yield Problem(str(home / "_metadata" / "v2" / "0"), "it is gone")
            for name in about:
                file = home / "_metadata" / "v2" / name
                text = file.text() or ""
                if checksum_fits(file):
                    _check_version(file, "_metadata", text)
                if not checksum_fits(file) or not _is_json(text.partition("\n")[2]):
                    yield Problem(str(file), "its checksum does not fit")
                for schema in re.findall(r"/_stateSchema/([^\"]*)", text):
                    place = home / "_stateSchema" / schema
                    if place.read() is None:
                        yield Problem(str(place), "it is gone")
                    elif not checksum_fits(place):
                        yield Problem(str(place), "its checksum does not fit")

    def take_back(self, number: int) -> None:
        """Forget that a batch was done.

        The checksum goes first: one that is left would not fit the commit that comes later.
        """
        (self.folder / "commits" / f".{number}.crc").delete()
        (self.folder / "commits" / str(number)).delete()

    def remove_leftovers(self) -> None:
        """Remove the temporary files of a process that died before it planned its first batch.

        Spark refuses to plan a first batch beside them. Later ones do no harm: Spark ignores them.
        """
        if self.planned() or self.committed():
            return
        for place, _ in self.folder.walk():
            if is_temporary(place.name):
                place.delete()

    def settle(self) -> None:
        """Make sure that the checkpoint refers to itself, wherever its folder was before.

        Spark writes down the whole path of the schema of the state.
        """
        for layer in (self.folder / "state").entries():
            about = self.folder / "state" / layer.name / "_metadata" / "v2"
            for info in about.entries():
                text = (about / info.name).text() if info.name.isdigit() else None
                if text is not None and relocated(text, self.folder) != text:
                    (about / f".{info.name}.crc").delete()
                    (about / info.name).write(relocated(text, self.folder).encode())

    # --- copies -----------------------------------------------------------------------------

    def is_by_hand(self, number: int) -> bool:
        """Tell whether a batch was put in by people: no time passes between it and the last."""
        batch, before = self.batch(number), self.batch(number - 1)
        if batch is not None and "edits" in batch.source:
            return True  # also where it is the first of all, see `admin.reshape`
        if batch is None or before is None:
            return False
        seq = batch.clock.get("seq")
        return seq is not None and seq == before.clock.get("seq")

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
            if "/_metadata/" in f"/{relative}" and place.name.isdigit():
                self._copy_metadata(place, target, relative)
            elif not ("/_metadata/" in f"/{relative}" and relative.endswith(".crc")):
                # Of one that runs, files of old batches may go while we look at them.
                with suppress(FileNotFoundError):
                    place.copy_to(target / relative, share)

        wanted = [
            place
            for place, info in self.folder.walk()
            if place.path not in leave_out
            and not info.name.endswith(".tmp")
            and (last is None or not _is_behind(self._relative(place), last))
        ]
        self.folder.each(wanted, copy)

    def _relative(self, place: Location) -> str:
        return place.path.removeprefix(self.folder.path + "/")

    def unfit(self) -> list[Location]:
        """Return the files that are not as they were written, by the checksums beside them."""
        files = [place for place, _ in self.folder.walk()]
        known = {place.path for place in files}
        told = [
            place
            for place in files
            if not place.name.startswith(".")
            and any(sums.path in known for sums in _sums_of(place))
        ]
        fit = self.folder.each(told, checksum_fits)
        return [place for place, is_fit in zip(told, fit, strict=True) if not is_fit]

    def cut(self, last: int) -> None:
        """Remove what belongs to batches after one."""
        files = [place for place, _ in self.folder.walk()]
        self.folder.each((p for p in files if _is_behind(self._relative(p), last)), Location.delete)

    def _copy_metadata(self, place: Location, target: Location, relative: str) -> None:
        """Copy the description of an operator; it names its schema file by its whole path."""
        text = place.text() or ""
        (target / relative).write(relocated(text, target).encode())


def is_temporary(name: str) -> bool:
    """Tell whether Spark has begun to write a file, or Hadoop its checksum, and not ended."""
    return name.startswith(".") and name.endswith((".tmp", ".tmp.crc"))


def _is_log(folder: str, number: int, text: str) -> bool:
    """Tell whether a text is what Spark writes about a batch in a folder of its log."""
    if folder == "commits":
        return _is_json(text.partition("\n")[2])
    try:
        _parsed(number, text)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False
    return True


def _check_version(file: Location, kind: str, text: str) -> None:
    """Refuse a file that is whole, and of a version that is not known here."""
    version = text.partition("\n")[0]
    is_version = re.fullmatch(r"v\d+", version) is not None
    if is_version and version not in _VERSIONS[kind] and checksum_fits(file):
        raise unsupported(file, version)


def unsupported(file: Location, version: str) -> UnsupportedCheckpointError:
    """Return the error for a file that another version of Spark wrote."""
    msg = (
        f"{file} is in the form {version}, which Spark 4.3 does not write with the settings of "
        "Millpond. Another version of Spark or Millpond wrote it; it is not damaged.\n"
        "Fix: run the application with the versions of pyspark and millpond that wrote it."
    )
    return UnsupportedCheckpointError(msg)


def _is_json(text: str) -> bool:
    try:
        parsed(text)
    except ValueError:
        return False
    return True


def relocated(text: str, folder: Location) -> str:
    """Return the description of an operator with its schema file in another checkpoint."""
    home = folder.path if not folder.is_local else f"file:{folder.path}"
    return re.sub(r'"[^"]*?(/state/\d+/_stateSchema/[^"]*)"', rf'"{home}\1"', text)


def _is_behind(relative: str, last: int) -> bool:
    """Tell whether a file belongs to batches after the last one wanted."""
    folder, _, name = relative.rpartition("/")
    if folder in ("offsets", "commits"):
        number = name.removeprefix(".").removesuffix(".crc")
        return number.isdigit() and int(number) > last
    if folder.startswith("state/"):
        found = _VERSIONED.match(name)
        if found:
            return int(found[1]) > last + 1
        if folder.endswith("/_metadata/v2"):
            number = name.removeprefix(".").removesuffix(".crc")
            return number.isdigit() and int(number) > max(last, 0)
    return folder == "" and not name.lstrip(".").startswith("metadata")


def _parsed(number: int, text: str) -> Batch:
    # Line 0 is the version, line 1 the batch's settings, then one line a source.
    version, settings, *sources = text.splitlines()
    if version != "v1":
        msg = f"its version is {version[:20]!r}"
        raise ValueError(msg)
    if not sources:
        msg = "it is cut off before the first source"
        raise ValueError(msg)
    about = parsed(settings)
    own: dict[str, Any] = {}
    foreign = []
    for line in sources:
        offsets = parsed(line) if line.startswith("{") else None
        if isinstance(offsets, dict) and "millpond" in offsets:
            own = offsets
        else:
            foreign.append(line)
    partitions = int(about.get("conf", {}).get("spark.sql.shuffle.partitions", 0))
    return Batch(number, int(about.get("batchTimestampMs", 0)), partitions, own, tuple(foreign))


def damaged(file: Location | str, error: object) -> DamagedStateError:
    """Return the error for a file that cannot be read."""
    msg = (
        f"{file} is damaged: {error}.\n"
        "Fix: millpond state repair APP.py goes back to the last batch that is whole; "
        'Application(recover="auto") does so at the start.'
    )
    return DamagedStateError(msg)


def _sums_of(file: Location) -> tuple[Location, Location]:
    """Return where checksums of a file may lie.

    On a disk Hadoop puts some beside every file; elsewhere there are those of Spark, which it has
    for the files of state.
    """
    return file.beside(f".{file.name}.crc"), file.beside(f"{file.name}.crc")


def checksum_fits(file: Location) -> bool:
    """Tell whether a file is as it was written, by the checksums that lie beside it."""
    of_hadoop, of_spark = _sums_of(file)
    sums = of_hadoop.read()
    if sums is None:
        return _fits_spark(file, of_spark.text())
    data = file.read()
    if data is None or sums[:4] != b"crc\x00":
        return False
    step = int.from_bytes(sums[4:8], "big")
    pieces = [data[low : low + step] for low in range(0, len(data), step)] if step else []
    return sums[8:] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)


def _fits_spark(file: Location, written: str | None) -> bool:
    """Tell whether a file is what Spark wrote down when it made it."""
    if written is None:
        return True
    try:
        about = parsed(written)
        size, found = file.measured()
        return size == about["mainFileSize"] and found in (None, about["value"] & 0xFFFFFFFF)
    except (ValueError, KeyError, TypeError):
        return False
