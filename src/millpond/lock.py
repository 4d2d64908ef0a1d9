"""One application at a time works on a group.

Takes the folder of a group; gives a lock that is free again when its holder dies. On this machine
the system sees to that. Elsewhere the holder says every few seconds that it lives, and one that
has not been heard of for a minute has lost the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from millpond.errors import GroupInUseError
from millpond.files import Location, writing

__all__ = ["Hold", "holder_of", "locked"]

# Which process this is: another one may have its number later, on a machine of the same name.
_PROCESS = uuid4().hex

# Seconds between two signs of life, and after which a holder without one counts as dead.
_BEAT, _DEAD = 10.0, 60.0

# Seconds after which a holder that could not say that it lives takes itself for dead.
_SILENT = 40.0


class Hold:
    """A lock that is held."""

    def __init__(self, group: str, beat: Callable[[], str] | None = None) -> None:
        """Know a lock.

        Args:
            group: What is locked.
            beat: Says that we live; returns who has taken the lock, or nothing. None: nobody has
                to be told.
        """
        self._group = group
        self._beat = beat
        self._heard = time.monotonic()
        self.lost_to = ""
        """Who has taken it, because nobody had heard of us."""

    def beat(self) -> None:
        """Say that we live, unless the lock is another's."""
        if self._beat is not None and not self.lost_to:
            began = time.monotonic()
            with suppress(Exception):  # a store that does not answer may do so next time
                self.lost_to = self._beat()
                self._heard = began

    def check(self) -> None:
        """Refuse to go on where the lock is another's, or may be by now."""
        if self._is_silent():
            self.beat()
        other = self.lost_to
        if not other and self._is_silent():
            other = "another one, for all we know: the store does not answer"
        if other:
            msg = f"group {self._group!r} was taken over by {other}; nothing of this was done."
            raise GroupInUseError(msg + "\nFix: stop one of the two, or run again.")

    def _is_silent(self) -> bool:
        return self._beat is not None and time.monotonic() - self._heard > _SILENT


@contextmanager
def locked(folder: Location, group: str, what: str) -> Iterator[Hold]:
    """Hold the lock of a group, or say who does."""
    if folder.is_local:
        with _system_lock(folder, group, what):
            yield Hold(group)
    else:
        with _leased(folder / "lock", group, what) as hold:
            yield hold


def holder_of(folder: Location) -> str | None:
    """Return who holds the lock; None: nobody."""
    if not folder.is_local:
        lease = _read(folder / "lock")
        return str(lease["who"]) if lease is not None and _lives(lease) else None
    try:
        with Path(folder.path, "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another process"
    except OSError:
        return None
    return None


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
        Path(folder.path).mkdir(parents=True, exist_ok=True)
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
def _leased(file: Location, group: str, what: str) -> Iterator[Hold]:
    owner = uuid4().hex
    _take(file, owner, group, what)
    ended = threading.Event()

    def beat() -> str:
        lease = _read(file)
        if lease is None:  # nobody else removes it but who has taken it over, and is done
            return "another one, which has ended since"
        if lease.get("owner") != owner:
            return str(lease.get("who"))
        file.write(_lease(owner))
        return ""

    def keep() -> None:
        while not ended.wait(_BEAT):
            hold.beat()

    hold = Hold(group, beat)
    thread = threading.Thread(target=keep, name="millpond-lock", daemon=True)
    thread.start()
    try:
        yield hold
    finally:
        ended.set()
        thread.join(_BEAT)
        with suppress(Exception):
            lease = _read(file)
            if lease is not None and lease.get("owner") == owner:
                file.delete()


def _take(file: Location, owner: str, group: str, what: str) -> None:
    if file.create(_lease(owner)):
        return
    lease = _read(file)
    if lease is not None and lease.get("owner") == owner:
        return  # made, and the answer was lost on the way
    if lease is not None and _lives(lease):
        raise _refused(group, str(lease.get("who")), what)
    file.write(_lease(owner))
    time.sleep(1.0)  # of several who take over at once, the last one to write has it
    lease = _read(file)
    if lease is None or lease.get("owner") != owner:
        raise _refused(group, str((lease or {}).get("who", "another process")), what)


def _lease(owner: str) -> bytes:
    now = time.time_ns() // 1_000_000
    content = {"owner": owner, "who": _who(), "process": _PROCESS, "heard_ms": now}
    return json.dumps(content).encode()


def _read(file: Location) -> dict[str, Any] | None:
    try:
        content = json.loads(file.text() or "null")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _lives(lease: dict[str, Any]) -> bool:
    """Tell whether a holder is alive, as far as can be known."""
    if time.time() - float(lease.get("heard_ms", 0)) / 1000 >= _DEAD:
        return False
    who = str(lease.get("who", ""))
    number, _, host = who.removeprefix("process ").partition(" on ")
    if host != socket.gethostname() or not number.isdigit():
        return True
    if int(number) == os.getpid():
        return lease.get("process") == _PROCESS
    return _runs(int(number))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
