"""The lease of a group, where no system keeps a lock: numbered files, and the highest number holds.

Takes the folder of a group and who asks; gives a `Lease` to renew, to check and to let go of. A
file `lock-<n>` is created on condition that there is none, which every store decides for one of
several, and only who created it writes it again. A holder that was paused finds a higher number
when it wakes up, so it cannot take itself for the holder. The highest file is never removed: a
number is never used twice.

Whether a holder lives is decided by the clock of the store: the age of its file is the distance to
the time of one that is written now. So clocks of machines that differ do no harm.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple
from uuid import uuid4

from millpond.documents import parsed
from millpond.errors import StateError
from millpond.storage.files import Location

__all__ = ["Lease", "Owner", "holder", "new_owner", "take"]

# Which process this is: another one may have its number later, on a machine of the same name.
_PROCESS = uuid4().hex

# Seconds after which a holder that has not renewed its lease counts as dead.
_DEAD = 60.0

# How often a lease is asked for while others take it and let it go.
_TRIES = 20

_PREFIX = "lock-"

# Written to learn what time it is for the store.
_NOW = "lock-now"

# What version 0.1.0 writes, in the place of numbered files.
_OLD = "lock"


class Owner(NamedTuple):
    """Who asks for a lease."""

    id: str
    """Tells this hold from all others."""
    process: int
    host: str
    process_id: str
    """Tells this process from a later one of the same number."""


def new_owner() -> Owner:
    """Return a name for one hold by this process."""
    return Owner(uuid4().hex, os.getpid(), socket.gethostname(), _PROCESS)


@dataclass(frozen=True)
class Lease:
    """A lease that was taken. It is another's as soon as there is a higher number."""

    folder: Location
    number: int
    owner: Owner

    def renew(self) -> None:
        """Say that the holder lives."""
        self._write(free=False)

    def let_go(self) -> None:
        """Say that the holder is done. The file stays, so that its number is not used again."""
        self._write(free=True)

    def lost_to(self) -> str:
        """Return who has taken the lease over; nothing where nobody has."""
        numbers, is_old_there = _look(self.folder)
        highest = max(numbers, default=0)
        if highest == self.number and not is_old_there:
            return ""
        if highest < self.number:
            return "somebody who has removed its lock file"
        return _who(_read(self.folder / (_OLD if is_old_there else _name(highest))))

    def _write(self, *, free: bool) -> None:
        content = _encoded(self.owner, free=free)
        (self.folder / _name(self.number)).write(content)


def take(
    folder: Location, owner: Owner, refused: Callable[[str], Exception], above: int = 0
) -> Lease:
    """Return the lease of a folder, or raise what `refused` makes of its holder.

    Args:
        folder: The folder of a group.
        owner: Who asks.
        refused: Gives the error, for the name of a holder that lives.
        above: A number that was used already, even if no file says so.
    """
    for _ in range(_TRIES):
        numbers, leases = _standing(folder)
        highest = max(numbers, default=0)
        # Looked at after a `create`, too: its answer may be lost, and of those below the highest
        # number nobody knows whether one was removed meanwhile.
        if leases.get(_name(highest), {}).get("owner") == owner.id:
            break
        found = _alive(folder, leases)
        if found is not None:
            raise refused(found)
        (folder / _name(max(highest, above) + 1)).create(_encoded(owner, free=False))
    else:
        raise refused("another process, which takes it now")
    for name in [*(_name(n) for n in numbers if n < highest), *leases.keys() & {_OLD}]:
        with suppress(StateError, OSError):  # the next one to take it does so
            (folder / name).delete()
    return Lease(folder, highest, owner)


def holder(folder: Location) -> str | None:
    """Return who holds the lease of a folder; None: nobody."""
    return _alive(folder, _standing(folder)[1])


def _standing(folder: Location) -> tuple[list[int], dict[str, dict[str, Any]]]:
    """Return all numbers, and by its name the lease that holds, or did, and an older version's."""
    numbers, is_old_there = _look(folder)
    names = [*([_name(max(numbers))] if numbers else []), *([_OLD] if is_old_there else [])]
    return numbers, {name: _read(folder / name) for name in names}


def _alive(folder: Location, leases: dict[str, dict[str, Any]]) -> str | None:
    for name, lease in leases.items():
        if not lease.get("free") and _lives(folder, name, lease):
            return _who(lease)
    return None


def _name(number: int) -> str:
    return f"{_PREFIX}{number}"


def _look(folder: Location) -> tuple[list[int], bool]:
    """Return the numbers of all leases, and whether there is one of an earlier version."""
    names = [info.name for info in folder.entries()]
    ends = [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]
    return [int(end) for end in ends if end.isdigit()], _OLD in names


def _read(file: Location) -> dict[str, Any]:
    try:
        content = parsed(file.text())
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _encoded(owner: Owner, *, free: bool) -> bytes:
    who = f"process {owner.process} on {owner.host}"
    content = {"owner": owner.id, "who": who, "process": owner.process_id, "free": free}
    return json.dumps(content).encode()


def _who(lease: dict[str, Any]) -> str:
    return str(lease.get("who", "another process"))


def _lives(folder: Location, name: str, lease: dict[str, Any]) -> bool:
    """Tell whether a holder is alive, as far as can be known."""
    number, _, host = _who(lease).removeprefix("process ").partition(" on ")
    if host == socket.gethostname() and number.isdigit():
        is_ours = int(number) == os.getpid()
        if not _runs(int(number)) or (is_ours and lease.get("process") != _PROCESS):
            return False
    return _age(folder, name) < _DEAD


def _age(folder: Location, name: str) -> float:
    """Return how many seconds ago a file was written, by the clock of the store."""
    try:
        (folder / _NOW).write(b"now")
        times = {info.name: info.modified_ms for info in folder.entries()}
        now = times.get(_NOW, _now_ms())
    except (StateError, OSError):  # who may only read goes by the clock of this machine
        times, now = {info.name: info.modified_ms for info in folder.entries()}, _now_ms()
    return (now - times[name]) / 1000 if name in times else inf  # of one that is gone, no matter


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
