"""The journal of a generation: what the latest batches read, and how far outputs were delivered."""

from __future__ import annotations

from typing import Any

import msgspec

from millpond.documents import sealed, unsealed
from millpond.storage.batch_source import Planned
from millpond.storage.files import Location
from millpond.storage.formats import check_format

__all__ = ["Journal", "read_journal"]

# 1: as version 0.1.0 wrote it, without the number.
_FORMAT = 1


class Journal(msgspec.Struct, frozen=True):
    """What the latest batches read: a second copy of Spark's own log, and more than that.

    A batch that is replayed is cut as it is written here, so what it puts out is the same.
    """

    delivered: int = -1
    """Up to this number, outputs are where they belong."""
    batches: dict[int, Planned] = msgspec.field(default_factory=dict)
    """What our source planned for each, by the number of its clock."""
    manifest: dict[str, Any] = msgspec.field(default_factory=dict)
    """A copy of the manifest, as it is on disk."""
    format: int = _FORMAT

    def after(self, seq: int) -> dict[int, Planned]:
        """Return the batches after a clock."""
        return {number: batch for number, batch in self.batches.items() if number > seq}

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return sealed(msgspec.to_builtins(self, str_keys=True))


def read_journal(file: Location) -> Journal:
    """Return the journal of a file; an empty one where it is not there, or torn.

    Raises:
        StateError: a newer version wrote it.
    """
    try:
        content = unsealed(file.text())
        check_format(content, _FORMAT, file)
        return _journal_of(content)
    except (ValueError, TypeError):
        return Journal()


def _journal_of(content: dict[str, Any]) -> Journal:
    required = {"delivered", "batches"} - content.keys()
    if required:
        msg = f"it has no {sorted(required)}"
        raise ValueError(msg)
    return msgspec.convert(content, Journal, str_keys=True)
