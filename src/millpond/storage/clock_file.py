"""What the driver remembers from batch to batch: the time, what is due, how many keys there are.

Takes what it knows after each batch; gives it to the source, which decides the next batch in a
process of its own, and to the next run. It is no part of the state: where it is lost, the last
batch is replayed. So it is written whole, but nobody waits for the disk.
"""

from __future__ import annotations

import weakref
from typing import Any

from millpond.documents import sealed, unsealed
from millpond.folders import Scratch
from millpond.storage.files import Location, local

__all__ = ["ClockFile", "read_clock"]


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

    def load(self) -> dict[str, Any] | None:
        """Return what was written last; None where that is not known."""
        return read_clock(self._location)

    def write(self, content: dict[str, Any]) -> None:
        """Replace it."""
        data = sealed(content)
        self._location.put(data)
        if not self._location.is_local:
            local(self.path).put(data)


def read_clock(file: Location) -> dict[str, Any] | None:
    """Return what a file of the clock says; None where it is not there, or damaged."""
    try:
        content = unsealed(file.text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content.get("seq"), int) else None
