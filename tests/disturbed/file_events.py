"""Every change of a file that a program makes, and what is on the disk before each.

Takes a command and the folder that it writes to; runs it with `file_events.c` preloaded, which
asks before each change. What the folder holds at that moment is what a `kill -9` at that moment
would leave, so it is copied: an image. Nothing else below the folder changes while it is copied.

A power cut leaves less: files that were not synced may be empty, and those whose folder was not
synced may be missing. What was synced is seen here too, so an image can be cut down to that.
"""

from __future__ import annotations

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

__all__ = ["Event", "Image", "Recorder", "enter", "shim"]

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


class Synced:
    """Which files are on the disk whatever happens: they were synced, and so was their folder."""

    def __init__(self) -> None:
        self._contents: set[str] = set()
        self._names: set[str] = set()

    def take(self, what: str, path: str, other: str) -> None:
        """Take a change that is about to be made, or a sync."""
        if what == "sync" and Path(path).is_dir():
            self._names |= {f"{path}/{name}" for name in os.listdir(path)}
        elif what == "sync":
            self._contents.add(path)
        elif what in ("rename", "link"):
            self._contents.discard(other)
            self._contents |= {other} & {other if path in self._contents else ""}
            self._names.discard(other)
        elif what != "mkdir" or not Path(path).is_dir():
            self._contents.discard(path)
            self._names.discard(path)

    def cut_down(self, image: Path, of: Path, how: str) -> None:
        """Take from an image what a power cut takes at worst; what a sink stored is not ours."""
        depth = str(of / "state").count("/")
        for place in sorted(image.rglob("*")):
            inner = place.relative_to(image)
            if place.is_dir() or inner.parts[0].endswith("-sink") or place.name == "lock":
                continue
            name = str(of / inner)
            # The folders above, from that of the group on.
            above = [str(of / f) for f in inner.parents if f.parts[:1] == ("state",)]
            is_named = self._names.issuperset([name, *(f for f in above if f.count("/") > depth)])
            if name in self._contents and is_named:
                continue
            is_left = how == "empty" or (how == "mixed" and zlib.crc32(name.encode()) % 2)
            if is_left or is_named:
                place.write_bytes(b"")
            else:
                place.unlink()


@dataclass
class Recorder:
    """Listens to a program; makes images where it is asked to.

    Args:
        folder: What the program changes.
        images: Where images are put.
        wanted: Tells which images there are to be before a change: "" is what a kill leaves;
            "empty", "missing" and "mixed" are what becomes of files that were not synced.
    """

    folder: Path
    images: Path
    wanted: Callable[[Event], tuple[str, ...]]
    events: list[Event] = field(default_factory=list)
    made: list[Image] = field(default_factory=list)
    phase: str = ""
    synced: Synced = field(default_factory=lambda: Synced())

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
            self.phase = path
            return b"c"
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
                self.synced.cut_down(target, self.folder / self.phase, cut)
            self.made.append(Image(event, target, cut))
        self.synced.take(what, path, other)
        return b"c"

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a folder. A change that was allowed just now may be made meanwhile."""
        for _ in range(20):
            try:
                shutil.copytree(source, target)
                return
            except (shutil.Error, FileNotFoundError):
                shutil.rmtree(target)
        raise AssertionError(f"{source} never came to rest")


def shim(folder: Path) -> Path:
    """Return the library that is preloaded, compiled."""
    library = folder / "file_events.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


def enter(phase: str) -> None:
    """Say in which folder the program works from here on; called in the program itself."""
    place = os.environ.get("FILE_EVENTS_SOCKET")
    if place is None:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        connection.sendall(b"phase\0" + phase.encode() + b"\0\0\0")
        connection.recv(1)
