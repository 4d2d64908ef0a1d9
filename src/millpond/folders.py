"""Folders on this machine that are safe from its other users: for one run, and to stay.

Takes what their names begin with, or a path; gives a folder. A temporary one is locked as long as
it is in use, so a later start knows which ones nobody has any more, and removes those of runs that
were killed; systemd, too, leaves what is locked alone when it removes old temporary files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["Scratch", "is_locked", "java_folder", "make_folder"]

# Nobody else's folders are called like this.
_SUFFIX = ".scratch"

# Everybody may write to the folder of temporary files: what has such a name may be a link, or a
# pipe that would block who opens it.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK


class Scratch:
    """A temporary folder in use, of mode 0700. A `with` block gives its path, and removes it.

    Args:
        prefix: What its name begins with; folders of that name which nobody uses are removed.
        place: Where it is made. Default: where temporary files are.
        kept: How many of those that nobody uses stay, the newest.
    """

    def __init__(self, prefix: str, place: Path | None = None, kept: int = 0) -> None:
        self._place = Path(tempfile.gettempdir()) if place is None else place
        _remove_left_over(self._place, prefix, kept)
        while (lock := self._make(prefix)) is None:
            pass  # another start came before our lock, and took the folder for left over
        self._lock: int | None = lock

    def _make(self, prefix: str) -> int | None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=self._place))
        with suppress(FileNotFoundError):
            lock = os.open(self.path, _FOLDER)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self.path.exists():
                return lock
            os.close(lock)
        return None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def fileno(self) -> int:
        """Return the lock: a process that gets it keeps the folder in use as long as it lives."""
        assert self._lock is not None
        return self._lock

    def clear(self) -> None:
        """Remove the files in it; who has one open may read it to its end."""
        with suppress(FileNotFoundError):
            for file in self.path.iterdir():
                file.unlink(missing_ok=True)

    def hand_over(self) -> None:
        """Leave the folder to the process that got its lock."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def remove(self) -> None:
        """Remove the folder; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def _remove_left_over(place: Path, prefix: str, kept: int) -> None:
    """Remove the folders of runs that were killed."""
    found = sorted(place.glob(f"{prefix}*{_SUFFIX}"), key=_age)
    for folder in found[kept:]:
        with suppress(OSError):
            lock = os.open(folder, _FOLDER)
            try:
                if os.fstat(lock).st_uid != os.geteuid():
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _age(path: Path) -> float:
    with suppress(OSError):
        return -path.lstat().st_mtime
    return 0.0


def java_folder() -> Scratch | None:
    """Return the folder for Java's temporary files; None where there can be none.

    Java unpacks libraries of RocksDB and others there and executes them. Where temporary files are
    mounted noexec, the user's cache folder takes their place.
    """
    with suppress(OSError, RuntimeError):  # no room, or a user without a home
        place = Path(tempfile.gettempdir())
        if _is_noexec(place):
            place = _in_cache()
        return None if _is_noexec(place) else Scratch("millpond-java-", place)
    return None


def _in_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return make_folder(cache / "millpond" / "tmp")


def _is_noexec(folder: Path) -> bool:
    """Tell whether programs in a folder cannot be executed."""
    flag = getattr(os, "ST_NOEXEC", 0)
    return sys.platform == "linux" and bool(os.statvfs(folder).f_flag & flag)


def make_folder(path: str | Path) -> Path:
    """Make a folder, and those above it that are missing, as the umask says; return its path.

    Where the umask would let everybody write (000), other users do not even get in: they could
    write to the files inside, too.
    """
    path = Path(path)
    if path.is_dir():
        return path
    if path.parent != path:
        make_folder(path.parent)
    with suppress(FileExistsError):  # another process may be as far
        path.mkdir()
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IWOTH:
            path.chmod(mode & ~stat.S_IRWXO)
        return path
    if not path.is_dir():
        path.mkdir()  # raises what is in the way
    return path


def is_locked(file: Path) -> bool:
    """Tell whether a process has a lock on a file; the lock is gone when the process is."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
