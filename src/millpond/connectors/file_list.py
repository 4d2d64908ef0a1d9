"""The files of a `FileSource`, in the order in which they were first seen.

Takes a folder and patterns; keeps the list in the spool, so a file has the same number in every
run, and a copy of it, as nothing else has that order. Regular files only: a folder, a pipe or a
device is refused, and so is a link that leaves the folder.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from millpond.connectors.topic_file import durable_write
from millpond.documents import parsed, sealed, unsealed
from millpond.errors import DamagedStateError, TopicError
from millpond.folders import make_folder

__all__ = ["COPY", "LIST", "FileList", "kind_of", "open_regular", "parse_list"]

# How the names of a list and of its copy end.
LIST, COPY = ".files.json", ".files-copy.json"

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


@dataclass(frozen=True)
class FileList:
    """The files below a path, and where they are noted."""

    path: Path
    """A folder, or one file."""
    patterns: tuple[str, ...]
    listing: Path

    def known(self) -> list[str]:
        """Return the files that have been seen.

        Raises:
            DamagedStateError: neither the list nor its copy can be read.
        """
        return self._known()[0]

    def _known(self) -> tuple[list[str], bool]:
        """Return the files that have been seen, and whether the list itself says so."""
        for place in (self.listing, self._copy):
            if (found := _parsed(place)) is not None:
                return found, place == self.listing
        if not self.listing.exists() and not self._copy.exists():
            return [], True
        msg = (
            f"{self.listing} and its copy are damaged: which files of {self.path} were read is not "
            "known any more."
        )
        fix = "restore one of them from a backup, or start over: app.clear_state(True)."
        raise DamagedStateError(f"{msg}\nFix: {fix}")

    def refresh(self, *, checks_copy: bool = False) -> list[str]:
        """Look for new files and note them; return all that have been seen.

        Args:
            checks_copy: Whether the copy is read, too, and written again where it is damaged.

        Raises:
            TopicError: there is something else than files among them.
        """
        known, is_whole = self._known()
        is_whole = is_whole and not (checks_copy and known and _parsed(self._copy) is None)
        seen = set(known)
        new = [file for file in self._there() if str(file) not in seen]
        for file in new:
            self.check(file)
        if new:
            make_folder(self.listing.parent)
            known += map(str, new)
        if new or not is_whole or (known and _size(self.listing) != _size(self._copy)):
            data = sealed({"files": known}, indent=2)
            durable_write(self._copy, data)  # first, so it never lacks what the list has
            durable_write(self.listing, data)
        return known

    @property
    def _copy(self) -> Path:
        return self.listing.with_name(self.listing.name.removesuffix(LIST) + COPY)

    def _there(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path] if self.path.exists() else []
        return sorted(file for p in self.patterns for file in self.path.glob(p))

    def check(self, file: Path) -> None:
        """Refuse what is no regular file of the folder."""
        if file == self.path:  # the user named it
            return
        folder, real = self.path.resolve(), file.resolve()
        if not real.is_relative_to(folder):
            msg = f"{file} is a link to {real}, which is not in the folder {self.path}."
            raise TopicError(msg + "\nFix: copy the file into the folder, or remove the link.")
        if not file.is_file():
            msg = f"{file} is {kind_of(real)}, not a file, and its name is that of a file to read."
            raise TopicError(msg + "\nFix: move it out of the folder, or rename it.")


def parse_list(text: str | None) -> list[str] | None:
    """Return the files of a list; None where it is not there, or damaged."""
    try:
        found = parsed(text)
        if isinstance(found, dict):  # before, it was a list without a checksum
            found = unsealed(text)["files"]
    except (ValueError, KeyError):
        return None
    is_list = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return found if is_list else None


def _parsed(place: Path) -> list[str] | None:
    try:
        return parse_list(place.read_text())
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _size(place: Path) -> int:
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return -1


def kind_of(path: Path) -> str:
    """Return what is there under a path."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a link to nothing"
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")


def open_regular(file: Path) -> BinaryIO:
    """Open a file to read it; never waits for a pipe.

    Raises:
        FileNotFoundError: there is none.
        TopicError: it is no regular file, or cannot be opened.
    """
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        msg = f"file {file} cannot be opened: {error.strerror}."
        fix = 'make it readable, or remove it and go on without it: FileSource(on_missing="skip")'
        raise TopicError(f"{msg}\nFix: {fix}.") from error
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        msg = f"{file} was listed as a file, and is {kind_of(file)} now."
        fix = 'put the file back, or remove it and go on without it: FileSource(on_missing="skip")'
        raise TopicError(f"{msg}\nFix: {fix}.")
    return os.fdopen(opened, "rb")
