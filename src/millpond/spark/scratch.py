"""Temporary folders of one run that the next one removes where the run was killed.

Takes what their names begin with, gives a folder. It is locked as long as it is in use, so a later
start knows which ones nobody has any more; systemd, too, leaves what is locked alone when it
removes old temporary files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["Scratch", "java_temp"]

# Nobody else's folders are called like this.
_SUFFIX = ".scratch"

# Everybody may write to the folder of temporary files: what has such a name may be a link, or a
# pipe that would block who opens it.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK


class Scratch:
    """A temporary folder in use.

    Args:
        prefix: What its name begins with; folders of that name which nobody uses are removed.
    """

    def __init__(self, prefix: str) -> None:
        _remove_left_over(prefix)
        while (lock := self._make(prefix)) is None:
            pass  # another start came before our lock, and took the folder for left over
        self._lock: int | None = lock

    def _make(self, prefix: str) -> int | None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX))
        with suppress(FileNotFoundError):
            lock = os.open(self.path, _FOLDER)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self.path.exists():
                return lock
            os.close(lock)
        return None

    def clear(self) -> None:
        """Remove the files in it; who has one open may read it to its end."""
        with suppress(FileNotFoundError):
            for file in self.path.iterdir():
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def java_temp(usual: str = "/tmp") -> str:
    """Return the option that gives Java another temporary folder, where it needs one.

    Java unpacks libraries of RocksDB and others there and executes them. Where it is mounted
    noexec, the user's cache folder takes its place.
    """
    if not _is_noexec(usual):
        return ""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "millpond" / "tmp"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no room, or a user without a home
        return ""
    return "" if _is_noexec(str(folder)) else f'-Djava.io.tmpdir="{folder}"'


def _is_noexec(folder: str) -> bool:
    """Tell whether programs in a folder cannot be executed; on Linux, where Java has one /tmp."""
    flag = getattr(os, "ST_NOEXEC", 0)
    return sys.platform == "linux" and bool(os.statvfs(folder).f_flag & flag)


def _remove_left_over(prefix: str) -> None:
    """Remove the folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*{_SUFFIX}"):
        with suppress(OSError):
            lock = os.open(folder, _FOLDER)
            try:
                if os.fstat(lock).st_uid != os.geteuid():
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
