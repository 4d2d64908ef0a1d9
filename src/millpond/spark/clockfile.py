"""What the driver remembers from batch to batch: the time, what is due, how many keys there are.

Takes what it knows behind each batch; gives it to the source, which decides the next batch in a
process of its own, and to the next run. It is no part of the state: where it is lost, the last
batch is done again. So it is written whole, but nobody waits for the disk.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from millpond.files import Location, local

__all__ = ["ClockFile"]


class ClockFile:
    """The file of one generation."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._folder = None if location.is_local else tempfile.TemporaryDirectory()
        home = Path(location.path) if self._folder is None else Path(self._folder.name, "clock")
        self.path = str(home)
        """Where the source finds it: on this machine."""

    def __str__(self) -> str:
        return str(self._location)

    def load(self) -> dict[str, Any] | None:
        """Return what was written last; None where that is not known."""
        with suppress(OSError, ValueError):
            content = json.loads(self._location.text() or "null")
            if isinstance(content, dict) and isinstance(content.get("seq"), int):
                return content
        return None

    def write(self, content: dict[str, Any]) -> None:
        """Replace it."""
        data = json.dumps(content).encode()
        self._location.put(data)
        if not self._location.is_local:
            local(self.path).put(data)
