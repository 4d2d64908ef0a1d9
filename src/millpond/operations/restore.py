"""The state of a backup in the place of the group's own.

Takes an opened group that is stopped, damaged or not, and the folder of a backup; makes a new
generation of the state that the backup holds.
"""

from __future__ import annotations

from msgspec.structs import replace

from millpond.errors import DamagedStateError, StateError
from millpond.operations.generations import user_name
from millpond.operations.group_copy import copy_group
from millpond.operations.session import Opened
from millpond.storage.audit import Restore
from millpond.storage.manifest import stream_of

__all__ = ["restore"]


def restore(opened: Opened, path: str, dry_run: bool) -> int:
    """Take the place of the group's state with that of a backup; return its last batch."""
    source = opened.sibling(opened.directory.group, path)
    kept = source.load()
    if kept is None:
        msg = f"there is no backup of group {opened.directory.group!r} in {path}."
        raise StateError(msg + "\nFix: check the folder.")
    number = source.checkpoint(kept).last()
    if number is None:
        msg = f"the backup in {path} holds no batch."
        raise StateError(msg + "\nFix: choose another one.")
    if dry_run:
        return number
    directory = opened.directory
    with directory.held("restore") as hold:
        try:
            before = directory.load()
        except DamagedStateError:  # that is what a backup is for
            before = None
        restored = replace(kept, audit=list(kept.audit if before is None else before.audit))
        restored.generation = directory.next_generation()
        restored.replay_until = 0
        # Batches after the backup may be cut otherwise: what they put out is new.
        restored.stream = stream_of(directory.group, restored)
        restored.note(Restore(batch=number, by=user_name()))
        hold.check()
        copy_group(source, kept, directory, restored, number, share=False)
        directory.drop_others(restored.generation, 0 if before is None else before.generation)
    return number
