"""What the driver remembers from batch to batch: the time, what is due, how many keys there are.

Takes what it knows after each batch; gives it to the source, which decides the next batch in a
process of its own, and to the next run. It is no part of the state: where it is lost, the last
batch is replayed. So it is written whole, but nobody waits for the disk.
"""

from __future__ import annotations

import weakref
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from millpond.documents import sealed, unsealed
from millpond.folders import Scratch
from millpond.storage.batch_source import Planned
from millpond.storage.files import Location, local
from millpond.storage.formats import check_format

__all__ = ["ClockFile", "KnownTime", "known_time_in", "read_clock"]

# 1: as version 0.1.0 wrote it, without the number.
_FORMAT = 1


class KnownTime(msgspec.Struct, kw_only=True):
    """What is known after a batch, as `driver.timekeeper` and `spark.batch_handler` give it."""

    seq: int
    """The clock of the batch."""
    seen: dict[str, int]
    """The largest timestamp at each clock point."""
    arrived: dict[str, int]
    """When something last came by each point, by the wall clock."""
    due: dict[str, dict[str, dict[str, int]]]
    """For each scope and group the next moment of each of its clocks."""
    is_sure: bool
    """Whether `due` is complete; if not, every group is woken once."""
    keys: list[tuple[str, int, int]] | UnsetType = UNSET
    """How many keys each group of a scope has."""
    planned: Planned | UnsetType = UNSET
    """What was planned for the batch."""
    room: int | UnsetType | None = UNSET
    """How many records the next batch may read; None: as many as there are."""
    format: int = _FORMAT

    @classmethod
    def asking(cls, seq: int, seen: dict[str, int], arrived: dict[str, int]) -> KnownTime:
        """Return what is known where every group is to be asked what it waits for."""
        return cls(seq=seq, seen=seen, arrived=arrived, due={}, is_sure=False)

    def asked_again(self) -> KnownTime:
        """Return the same where every group is to be asked; its keys may be others now."""
        return msgspec.structs.replace(self, due={}, is_sure=False, keys=UNSET)

    def of_timekeeper(self) -> dict[str, Any]:
        """Return what a `Timekeeper` takes."""
        names = ("seq", "seen", "arrived", "due", "is_sure")
        return {name: getattr(self, name) for name in names}

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return sealed(msgspec.to_builtins(self))


class ClockFile:
    """The file of one generation."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self.path = str(location.path)
        """Where the source finds it: on this machine."""
        if not location.is_local:
            folder = Scratch("millpond-clock-")
            weakref.finalize(self, folder.remove)
            self.path = str(folder.path / "clock")

    def __str__(self) -> str:
        return str(self._location)

    def load(self) -> KnownTime | None:
        """Return what was written last; None where that is not known."""
        return read_clock(self._location)

    def write(self, known: KnownTime) -> None:
        """Replace it."""
        data = known.encode()
        self._location.put(data)
        if not self._location.is_local:
            local(self.path).put(data)


def read_clock(file: Location) -> KnownTime | None:
    """Return what a file of the clock says; None where it is not there, or damaged.

    Raises:
        StateError: a newer version wrote it.
    """
    try:
        return known_time_in(file.text(), file)
    except (OSError, ValueError, TypeError):
        return None


def known_time_in(text: str | bytes | None, file: object) -> KnownTime:
    """Return what is known, from the text of a file.

    Raises:
        ValueError: it is damaged.
        StateError: a newer version wrote it.
    """
    content = unsealed(text)
    check_format(content, _FORMAT, file)
    return msgspec.convert(content, KnownTime)
