"""One application at a time works on a group.

Takes the folder of a group; gives a lock that is free again when its holder dies. On this machine
the system sees to that. Elsewhere the holder has a lease (`lease`): it renews it every few seconds,
and loses it to the next one when it has not done so for a minute.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from millpond.errors import GroupInUseError
from millpond.folders import make_folder
from millpond.storage.files import Location, writing
from millpond.storage.lease import Lease, holder, new_owner, take

__all__ = ["Hold", "holder_of", "locked", "taken_over"]

# Seconds between two renewals of a lease, and after which a check renews it first: who could not
# renew it may be replaced right after the check.
_BEAT, _SILENT = 10.0, 40.0


class Hold:
    """A lock that is held."""

    def __init__(self, group: str, lease: Lease | None = None) -> None:
        """Know a lock.

        Args:
            group: What is locked.
            lease: What is renewed and checked; None: the system keeps the lock.
        """
        self._group = group
        self._lease = lease
        self._renewed = time.monotonic()
        self.number = 0 if lease is None else lease.number
        """What tells it from earlier and later holders; 0 where the system keeps the lock."""
        self.lost_to = ""
        """Who has taken it, because it was not renewed."""

    def renew(self) -> None:
        """Say that the holder lives, unless the lock is another's."""
        self._look()
        if self._lease is not None and not self.lost_to:
            began = time.monotonic()
            self._lease.renew()
            self._renewed = began

    def check(self) -> None:
        """Refuse to go on where the lock is another's; the store is asked.

        Raises:
            GroupInUseError: where it is.
            StateError: where the store does not answer, so nobody knows.
        """
        if time.monotonic() - self._renewed > _SILENT:
            self.renew()
        self._look()
        if self.lost_to:
            raise taken_over(self._group, self.lost_to)

    def _look(self) -> None:
        if self._lease is not None and not self.lost_to:
            self.lost_to = self._lease.lost_to()


@contextmanager
def locked(folder: Location, group: str, what: str, above: int = 0) -> Iterator[Hold]:
    """Hold the lock of a group, or say who does; `above`: a number that an earlier holder had."""
    if folder.is_local:
        with _system_lock(folder, group, what):
            yield Hold(group)
    else:
        with _leased(folder, group, what, above) as hold:
            yield hold


def holder_of(folder: Location) -> str | None:
    """Return who holds the lock; None: nobody."""
    if not folder.is_local:
        return holder(folder)
    try:
        with Path(folder.path, "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another process"
    except OSError:
        return None
    return None


def taken_over(group: str, who: str) -> GroupInUseError:
    """Return that a lock is another's by now."""
    return GroupInUseError(
        f"group {group!r} was taken over by {who}; what was begun here is not committed.\n"
        "Fix: stop one of the two, or run again."
    )


def _refused(group: str, holder: str, what: str) -> GroupInUseError:
    return GroupInUseError(
        f"consumer group {group!r} is in use by {holder}; {what} was refused.\n"
        "Fix: stop the other application, or choose another consumer_group."
    )


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


# --- this machine ---------------------------------------------------------------------------


@contextmanager
def _system_lock(folder: Location, group: str, what: str) -> Iterator[None]:
    with writing(folder.path):
        make_folder(folder.path)
        Path(folder.path, "lock").touch()
    with Path(folder.path, "lock").open("a+") as file:
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            raise _refused(group, file.read().strip() or "another process", what) from None
        with writing(folder.path):
            file.truncate(0)
            file.write(_who())
            file.flush()
        yield


def _lock(file: IO[str]) -> None:
    """Lock a file; who only looks whether it is locked has it for a moment, too."""
    for tries_left in reversed(range(5)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not tries_left:
                raise
            time.sleep(0.02)


# --- elsewhere ------------------------------------------------------------------------------


@contextmanager
def _leased(folder: Location, group: str, what: str, above: int) -> Iterator[Hold]:
    lease = take(folder, new_owner(), lambda who: _refused(group, who, what), above)
    hold, ended = Hold(group, lease), threading.Event()

    def keep() -> None:
        while not ended.wait(_BEAT):
            with suppress(Exception):  # a store that does not answer may do so next time
                hold.renew()

    thread = threading.Thread(target=keep, name="millpond-lock", daemon=True)
    thread.start()
    try:
        yield hold
    finally:
        ended.set()
        thread.join(_BEAT)
        with suppress(Exception):
            if not lease.lost_to():
                lease.let_go()
