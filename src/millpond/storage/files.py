"""Files of a state directory, wherever it lies.

A `Location` is one file or folder: a path, and what can read and write there. `LocalFiles` is
that for this machine; `HadoopFiles` of `spark.internals` for every place that Hadoop knows. A file
appears whole or not at all.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from millpond.errors import StateError
from millpond.folders import make_folder

__all__ = [
    "FileInfo",
    "Files",
    "LocalFiles",
    "Location",
    "is_object_store",
    "is_remote",
    "local",
    "writing",
]

T = TypeVar("T")

# Files of another machine that are worked on at a time.
_AT_ONCE = 8

_OBJECT_STORES = ("s3a", "s3", "abfs", "abfss", "gs", "wasb", "wasbs")


class FileInfo(NamedTuple):
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int


class Files(Protocol):
    """What can be done with files at some kind of place. Paths are text."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None where there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file, with its folders, so that after a crash it is the old one or the new."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a file where there is none; tell whether there was none."""

    def entries(self, path: str) -> list[FileInfo]:
        """Return what a folder holds, by name; nothing where there is no such folder."""

    def copy(self, source: str, target: str, share: bool = True) -> None:
        """Copy a file that will never change; `share`: its bytes may be the same ones."""

    def measured(self, path: str) -> tuple[int, int | None]:
        """Return the size of a file, and the checksum (CRC32C) that Spark takes, where known."""

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all it holds; no error where there is none."""


class Location:
    """One file or folder.

    >>> str(Location(LocalFiles(), "/state") / "group" / "manifest.json")
    '/state/group/manifest.json'
    """

    __slots__ = ("_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def __truediv__(self, name: str) -> Location:
        return Location(self._files, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Location({self.path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        return isinstance(self._files, LocalFiles)

    def beside(self, name: str) -> Location:
        """Return another file of the same folder."""
        return Location(self._files, f"{self.path.rpartition('/')[0]}/{name}")

    def read(self) -> bytes | None:
        """Return what the file holds; None where there is none."""
        return self._files.read(self.path)

    def measured(self) -> tuple[int, int | None]:
        """Return the size of the file, and the checksum that Spark takes, where it is known."""
        return self._files.measured(self.path)

    def text(self) -> str | None:
        """Return what the file holds as text; bytes that are none are marked."""
        data = self.read()
        return None if data is None else data.decode("utf-8", "replace")

    def write(self, data: bytes) -> None:
        """Write the file; after a crash it is whole, the old one or the new one."""
        self._files.write(self.path, data)

    def put(self, data: bytes) -> None:
        """Write the file without waiting for the disk; readers see the old one or the new one."""
        if not self.is_local:
            self.write(data)
            return
        aside = Path(f"{self.path}.tmp")
        aside.write_bytes(data)
        aside.replace(self.path)

    def create(self, data: bytes) -> bool:
        """Write the file where there is none; tell whether there was none."""
        return self._files.create(self.path, data)

    def entries(self) -> list[FileInfo]:
        """Return what the folder holds, by name."""
        return self._files.entries(self.path)

    def exists(self) -> bool:
        """Tell whether there is a file or folder here."""
        parent, _, name = self.path.rpartition("/")
        return any(info.name == name for info in self._files.entries(parent))

    def delete(self) -> None:
        """Remove what is here."""
        self._files.delete(self.path)

    def walk(self) -> list[tuple[Location, FileInfo]]:
        """Return every file below the folder."""
        found: list[tuple[Location, FileInfo]] = []
        for info in self.entries():
            place = self / info.name
            found += place.walk() if info.is_folder else [(place, info)]
        return found

    def each(self, places: Iterable[Location], work: Callable[[Location], T]) -> list[T]:
        """Do something with files below this folder; where each costs a journey, some at once."""
        if self.is_local:
            return [work(place) for place in places]
        with ThreadPoolExecutor(_AT_ONCE, "millpond-files") as pool:
            return list(pool.map(work, places))

    def copy_to(self, target: Location, share: bool = True) -> None:
        """Copy a file that will never change; `share`: on one disk, both may be the same bytes."""
        if target.is_local is self.is_local:
            self._files.copy(self.path, target.path, share)
        else:  # what reaches other places reaches this machine, too
            remote = target._files if self.is_local else self._files
            remote.copy(self._address(), target._address())

    def _address(self) -> str:
        return f"file://{self.path}" if self.is_local else self.path


class LocalFiles:
    """Files of this machine."""

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        with _written_aside(Path(path), data) as aside:
            aside.replace(path)

    def create(self, path: str, data: bytes) -> bool:
        try:
            with _written_aside(Path(path), data) as aside:
                os.link(aside, path)
        except FileExistsError:
            return False
        return True

    def entries(self, path: str) -> list[FileInfo]:
        found = []
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for entry in entries:
            with suppress(FileNotFoundError):  # it may go while we look
                status = entry.stat()
                time_ms = status.st_mtime_ns // 1_000_000
                found.append(FileInfo(entry.name, entry.is_dir(), status.st_size, time_ms))
        return found

    def copy(self, source: str, target: str, share: bool = True) -> None:
        make_folder(Path(target).parent)
        if not share:
            shutil.copyfile(source, target)
            return
        try:
            os.link(source, target)
        except FileExistsError:
            Path(target).unlink()
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # another disk, or one that knows no links
            shutil.copyfile(source, target)

    def measured(self, path: str) -> tuple[int, int | None]:
        return Path(path).stat().st_size, None  # beside files of a disk lie Hadoop's checksums

    def delete(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)


def local(path: str | Path) -> Location:
    """Return a place on this machine."""
    text = str(path)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return Location(LocalFiles(), str(Path(text).absolute()))


def is_remote(path: str | Path) -> bool:
    """Tell whether a path is an address of another file system, such as s3a://bucket/folder."""
    text = str(path)
    return "://" in text and not text.startswith("file:")


def is_object_store(path: str | Path) -> bool:
    """Tell whether files there appear whole or not at all, and a rename is a copy."""
    return str(path).partition("://")[0] in _OBJECT_STORES


# What the system says of a place where nothing can be written, and what to do about it.
_UNWRITABLE = {
    errno.EROFS: "make the folder writable",
    errno.EACCES: "make the folder writable for this user",
    errno.EPERM: "make the folder writable for this user",
    errno.ENOTDIR: "choose a folder as state_dir, not a file",
    errno.EEXIST: "choose a folder as state_dir, not a file",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, the quota of this user is used up",
    **dict.fromkeys((errno.ENODEV, errno.ELOOP, errno.ENAMETOOLONG), "choose another state_dir"),
}


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raise a clear error where the state directory cannot be written.

    Raises:
        StateError: with the path, and what the system says of it.
    """
    try:
        yield
    except OSError as error:
        fix = _UNWRITABLE.get(error.errno or 0)
        if fix is None:
            raise
        msg = f"the state cannot be written: {error.strerror}. It was about {path}."
        raise StateError(f"{msg}\nFix: {fix}, and run again.") from error


@contextmanager
def _written_aside(file: Path, data: bytes) -> Iterator[Path]:
    """Write a file beside its place; the block puts it there."""
    aside = file.with_name(f".{file.name}.{uuid4().hex}.writing")
    try:
        with writing(file):
            make_folder(file.parent)
            with aside.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        yield aside
    finally:
        with suppress(OSError):
            aside.unlink()
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
