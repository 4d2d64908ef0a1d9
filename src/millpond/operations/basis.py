"""What a plan of a change was made from.

Dangerous changes are planned first and applied later: somebody may look at the plan in between. A
plan is applied only where the state is still the one that it was made from.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.errors import StateError
from millpond.storage.directory import StateDirectory
from millpond.storage.manifest import Manifest

__all__ = ["Basis", "basis_of", "check_basis"]


@dataclass(frozen=True)
class Basis:
    """The state from which a plan was made."""

    generation: int
    batch: int | None
    """Its last committed batch."""
    removes: tuple[int, ...] = ()
    """The generations that are removed when the plan is applied: all but the last two."""

    def __str__(self) -> str:
        where = "no batch" if self.batch is None else f"batch {self.batch}"
        return f"generation {self.generation} with {where}"


def basis_of(directory: StateDirectory, manifest: Manifest, copy: int | None = None) -> Basis:
    """Return the state as it is now; `copy` is the generation that is being made."""
    stay = (manifest.generation, copy)
    others = [number for number in directory.generations() if number not in stay]
    return Basis(manifest.generation, directory.checkpoint(manifest).last(), tuple(others))


def check_basis(directory: StateDirectory, manifest: Manifest, basis: Basis) -> None:
    """Refuse a plan that was made from another state."""
    now = basis_of(directory, manifest)
    if (now.generation, now.batch) != (basis.generation, basis.batch):
        msg = f"the plan was made from {basis}, and the state is now {now}; nothing was changed."
        raise StateError(msg + "\nFix: make the plan again, and look at it again.")
