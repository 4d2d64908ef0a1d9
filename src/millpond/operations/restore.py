"""The state of a backup in the place of the group's own.

Takes an opened group that is stopped, damaged or not, and the folder of a backup; gives a plan.
Where the plan is applied, a new generation is made of the state that the backup holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from millpond.errors import DamagedStateError, StateError
from millpond.operations.basis import Basis, basis_of, check_basis
from millpond.operations.generations import user_name
from millpond.operations.group_copy import copy_group
from millpond.operations.session import Opened
from millpond.storage.audit import Restore
from millpond.storage.manifest import Manifest, stream_of

__all__ = ["RestorePlan", "apply_restore", "plan_restore", "prepare_restore"]


@dataclass(frozen=True)
class RestorePlan:
    """What taking the state of a backup means."""

    path: str
    """The state directory of the backup."""
    batch: int
    """The last batch that the backup holds."""
    basis: Basis | None
    """None: the manifest of the group is damaged."""

    def __str__(self) -> str:
        return (
            f"The state becomes that of batch {self.batch} of the backup; records after it give "
            "their outputs again"
        )


def prepare_restore(opened: Opened, path: str) -> RestorePlan:
    """Return the plan of taking the state of a backup; nothing is changed."""
    source = opened.sibling(opened.directory.group, path)
    kept = source.load()
    last = None if kept is None else source.checkpoint(kept).last()
    before = _before(opened)
    basis = None if before is None else basis_of(opened.directory, before)
    return plan_restore(opened.directory.group, path, kept, last, basis)


def plan_restore(
    group: str, path: str, kept: Manifest | None, last: int | None, basis: Basis | None
) -> RestorePlan:
    """Return the plan of taking the state of a backup.

    Args:
        group: The consumer group.
        path: The state directory of the backup.
        kept: The manifest of the backup, where there is one.
        last: The last batch that the backup holds.
        basis: The state as it is.
    """
    if kept is None:
        msg = f"there is no backup of group {group!r} in {path}."
        raise StateError(msg + "\nFix: check the folder.")
    if last is None:
        msg = f"the backup in {path} holds no batch."
        raise StateError(msg + "\nFix: choose another one.")
    return RestorePlan(path, last, basis)


def apply_restore(opened: Opened, plan: RestorePlan) -> None:
    """Replace the state as planned.

    Raises:
        StateError: where the state, or the backup, is not the one that the plan was made from.
    """
    directory, number = opened.directory, plan.batch
    source = opened.sibling(directory.group, plan.path)
    with directory.held("restore") as hold:
        before = _before(opened)
        if before is not None and plan.basis is not None:
            check_basis(directory, before, plan.basis)
        kept = source.load()
        if kept is None or number not in source.checkpoint(kept).committed():
            msg = f"the backup in {plan.path} no longer holds batch {number}; nothing was changed."
            raise StateError(msg + "\nFix: make the plan again, and look at it again.")
        restored = replace(kept, audit=list(kept.audit if before is None else before.audit))
        restored.generation = directory.next_generation()
        restored.replay_until = 0
        # Batches after the backup may be cut otherwise: what they put out is new.
        restored.stream = stream_of(directory.group, restored)
        restored.note(Restore(batch=number, by=user_name()))
        hold.check()
        copy_group(source, kept, directory, restored, number, share=False)
        directory.drop_others(restored.generation, 0 if before is None else before.generation)


def _before(opened: Opened) -> Manifest | None:
    try:
        return opened.directory.load()
    except DamagedStateError:  # that is what a backup is for
        return None
