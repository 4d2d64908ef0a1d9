"""The journal of a generation: what the latest batches read, and how far outputs were delivered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.documents import sealed, unsealed
from millpond.storage.files import Location

__all__ = ["Journal", "read_journal"]


@dataclass(frozen=True)
class Journal:
    """What the latest batches read: a second copy of Spark's own log, and more than that.

    A batch that is replayed is cut as it is written here, so what it puts out is the same.
    """

    delivered: int = -1
    """Up to this number, outputs are where they belong."""
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What our source planned for each, by the number of its clock."""
    manifest: dict[str, Any] = field(default_factory=dict)
    """A copy of the manifest."""

    def after(self, seq: int) -> dict[int, dict[str, Any]]:
        """Return the batches after a clock."""
        return {number: batch for number, batch in self.batches.items() if number > seq}

    def encode(self) -> bytes:
        batches = {str(seq): batch for seq, batch in self.batches.items()}
        content = {"delivered": self.delivered, "batches": batches, "manifest": self.manifest}
        return sealed(content)


def read_journal(file: Location) -> Journal:
    """Return the journal of a file; an empty one where it is not there, or torn."""
    try:
        content = unsealed(file.text())
        batches = {int(seq): batch for seq, batch in content["batches"].items()}
        return Journal(int(content["delivered"]), batches, content.get("manifest", {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Journal()
