"""Every change of a file that a program makes, and what is on the disk before each.

Takes a command and the folder that it writes to; runs it with `file_events.c` preloaded, which
asks before each change. What the folder holds at that moment is what a `kill -9` at that moment
would leave, so it is copied: an image. Nothing else below the folder changes while it is copied.

A power cut leaves less, or what was there before: files that were not synced may be empty, those
whose folder was not synced may be missing, or have their old content, or be there again. What was
synced is seen here too, so an image can be cut down to that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Event", "Image", "Recorder", "SOURCE", "enter"]

SOURCE = Path(__file__).parent / "file_events.c"

# What differs from run to run in the name of a file: random ids first, then numbers.
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")


@dataclass(frozen=True)
class Event:
    """One change of a file, which is about to be made."""

    number: int
    phase: str
    """The folder in which the program works: copies are of that one."""
    what: str
    path: str
    """Relative to the folder that is watched."""
    other: str = ""

    @property
    def kind(self) -> str:
        """What it is, whatever the numbers and random ids in the names of the files are."""
        text = _RANDOM.sub("ID", f"{self.phase} {self.what} {self.other or self.path}")
        return re.sub(r"\d+", "N", text)

    def __str__(self) -> str:
        to = f" to {self.other}" if self.other else ""
        return f"{self.phase or 'run'}, change {self.number}: {self.what} {self.path}{to}"


@dataclass(frozen=True)
class Image:
    """What a kill before a change leaves, or a power cut."""

    before: Event
    folder: Path
    cut: str = ""
    """What became of the files that were not synced; empty: it was no power cut."""

    def __str__(self) -> str:
        return f"{self.before}{self.cut and f', power cut: {self.cut}'}"


class Disk:
    """What is on the disk whatever happens: what was synced, and what came before the rest.

    A file has its content once it was synced, and its name once its folder was. Until then, a name
    may have what it had before: another file, or one that was removed.
    """

    def __init__(self) -> None:
        self._contents: set[str] = set()
        self._names: set[str] = set()
        self._before: dict[str, bytes | None] = {}
        """What names have had since their folder was last synced; None: a folder."""

    def take(self, what: str, path: str, other: str) -> None:
        """Take a change that is about to be made, or a sync."""
        if what == "sync" and Path(path).is_dir():
            self._names |= {f"{path}/{name}" for name in os.listdir(path)}
            for name in [name for name in self._before if name.startswith(f"{path}/")]:
                inner = name.removeprefix(f"{path}/")
                if "/" not in inner or not Path(path, inner.partition("/")[0]).exists():
                    del self._before[name]
        elif what == "sync":
            self._contents.add(path)
        elif what in ("rename", "link"):
            self._remember(other)
            self._contents.discard(other)
            self._contents |= {other} & {other if path in self._contents else ""}
            self._names.discard(other)
        elif what == "unlink":
            if path in self._names:
                self._remember(path)
            self._contents.discard(path)
            self._names.discard(path)
        elif what in ("write", "truncate") or Path(path).exists():
            self._contents.discard(path)
        else:  # a new file or folder
            self._contents.discard(path)
            self._names.discard(path)

    def _remember(self, path: str) -> None:
        """Remember what a name has that is about to have something else, or nothing."""
        with suppress(FileNotFoundError):
            is_folder = Path(path).is_dir()
            self._before.setdefault(path, None if is_folder else Path(path).read_bytes())

    def settle(self, folder: Path) -> None:
        """Take all that is in a folder for synced."""
        found = {str(place) for place in [folder, *folder.rglob("*")]}
        self._contents |= found
        self._names |= found
        self._before = {n: d for n, d in self._before.items() if not n.startswith(f"{folder}/")}

    def cut_down(self, image: Path, of: Path, how: str) -> None:
        """Do to an image what a power cut may do; what a sink stored is not ours.

        "empty": names are there, and no content that was not synced. "missing": nor are names.
        "old": names have what they had before, and what was removed is there again. "mixed" and a
        number: for each file something else of that, or half of its content, or all.
        """
        for place in sorted(image.rglob("*")):
            inner = place.relative_to(image)
            if _is_not_ours(inner) or not place.exists():  # its folder is missing
                continue
            name = str(of / inner)
            fate = self._fate(name, how, place.is_dir())
            data = None if place.is_dir() else place.read_bytes()
            if fate == "missing":
                shutil.rmtree(place) if place.is_dir() else place.unlink()
            elif fate == "old":
                place.write_bytes(self._before[name] or b"")
            elif fate != "kept":
                assert data is not None
                place.write_bytes(data[: len(data) // 2] if fate == "torn" else b"")
        self._bring_back(image, of, how)

    def _fate(self, name: str, how: str, is_folder: bool) -> str:
        """Return what becomes of a file or folder."""
        is_whole = is_folder or name in self._contents
        lost = "old" if self._before.get(name) is not None and how != "missing" else "missing"
        fates = ["kept"]
        fates += [] if is_whole else ["empty", "torn"]
        fates += [] if name in self._names else [lost]
        if how.startswith("mixed"):
            return fates[zlib.crc32(f"{how} {name}".encode()) % len(fates)]
        if how == "empty":
            return "kept" if is_whole else "empty"
        return fates[-1] if lost in fates else "kept" if is_whole else "empty"

    def _bring_back(self, image: Path, of: Path, how: str) -> None:
        """Put files back that were removed, where nobody has synced their folder since."""
        for name in sorted(self._before) if how not in ("empty", "missing") else ():
            data, inner = self._before[name], Path(name)
            if not inner.is_relative_to(of) or _is_not_ours(inner.relative_to(of)):
                continue
            place = image / inner.relative_to(of)
            is_chosen = how == "old" or zlib.crc32(f"{how} back {name}".encode()) % 2
            if is_chosen and not place.exists() and place.parent.is_dir():
                place.mkdir() if data is None else place.write_bytes(data)


def _is_not_ours(inner: Path) -> bool:
    return inner.parts[0].endswith("-sink") or inner.name == "lock"


@dataclass
class Recorder:
    """Listens to a program; makes images where it is asked to.

    Args:
        folder: What the program changes.
        images: Where images are put.
        wanted: Tells which images there are to be before a change: "" is what a kill leaves;
            the others are what becomes of files that were not synced, see `Disk.cut_down`.
    """

    folder: Path
    images: Path
    wanted: Callable[[Event], tuple[str, ...]]
    events: list[Event] = field(default_factory=list)
    made: list[Image] = field(default_factory=list)
    phase: str = ""
    disk: Disk = field(default_factory=lambda: Disk())
    same: int = 0
    """Images that were as one before."""
    _seen: set[tuple[str, str, bool, bool]] = field(default_factory=set)

    def run(self, command: list[str], library: Path, **variables: str) -> int:
        """Run a command to its end, and return its exit code."""
        with self._listening() as place:
            watched = {
                "LD_PRELOAD": str(library),
                "FILE_EVENTS_BELOW": f"{self.folder}/",
                "FILE_EVENTS_SOCKET": place,
            }
            done = subprocess.run(
                command, env={**os.environ, **watched, **variables}, start_new_session=True
            )
        return done.returncode

    @contextmanager
    def _listening(self) -> Iterator[str]:
        # The path of a socket may have 107 bytes.
        place = Path(f"/tmp/file-events-{os.getpid()}-{id(self):x}")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
            server.listen(128)
            thread = threading.Thread(target=self._serve, args=(server,), daemon=True)
            thread.start()
            try:
                yield str(place)
            finally:
                server.shutdown(socket.SHUT_RDWR)
                thread.join()
                place.unlink()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                message = b""
                while not message.endswith(b"\0\0"):
                    part = connection.recv(65_536)
                    if not part:
                        break
                    message += part
                what, path, other, *_ = message.decode().split("\0")
                connection.sendall(self._answer(what, path, other))

    def _answer(self, what: str, path: str, other: str) -> bytes:
        if what == "phase":
            if self.phase:
                self._take("end", "", "")
            self.phase = path
            if path not in ("", "run"):  # all else was done before, and is none of its doing
                self.disk.settle(self.folder / path)
            return b"c"
        if what == "open":
            if Path(path).exists():
                return b"c"
            what = "create"
        self._take(what, path, other)
        self.disk.take(what, path, other)
        return b"c"

    def _take(self, what: str, path: str, other: str) -> None:
        """Make the images that are wanted before a change."""
        home = f"{self.folder}/"
        event = Event(
            len(self.events), self.phase, what, path.removeprefix(home), other.removeprefix(home)
        )
        self.events.append(event)
        changes = what != "sync" and not (what == "mkdir" and Path(path).is_dir())
        for cut in self.wanted(event) if changes else ():
            target = self.images / f"{event.number:05}{cut}" / self.phase
            target.parent.mkdir()
            self._copy(self.folder / self.phase, target)
            if cut:
                self.disk.cut_down(target, self.folder / self.phase, cut)
            shown = (self.phase, _digest(target), bool(cut), what == "end")
            if shown in self._seen:  # what comes of it is known
                shutil.rmtree(target.parent)
                self.same += 1
                continue
            self._seen.add(shown)
            self.made.append(Image(event, target, cut))

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a folder. A change that was allowed just now may be made meanwhile."""
        for _ in range(20):
            try:
                shutil.copytree(source, target)
                return
            except (shutil.Error, FileNotFoundError):
                shutil.rmtree(target)
        raise AssertionError(f"{source} never came to rest")


def _digest(folder: Path) -> str:
    """Return what tells the content of a folder from that of another."""
    found = hashlib.sha256()
    for place in sorted(folder.rglob("*")):
        found.update(f"{place.relative_to(folder)}\0{place.is_dir()}\0".encode())
        if place.is_file():
            found.update(hashlib.sha256(place.read_bytes()).digest())
    return found.hexdigest()


def enter(phase: str) -> None:
    """Say in which folder the program works from here on; called in the program itself."""
    place = os.environ.get("FILE_EVENTS_SOCKET")
    if place is None:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        connection.sendall(b"phase\0" + phase.encode() + b"\0\0\0")
        connection.recv(1)
