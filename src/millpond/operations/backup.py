"""A backup of a group, in another state directory.

Takes an opened group, which may run, and a folder; gives the batch that the backup holds.
"""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from millpond.errors import StateError
from millpond.operations.generations import user_name
from millpond.operations.group_copy import copy_group, is_taken
from millpond.operations.session import Opened
from millpond.storage.audit import Backup
from millpond.storage.manifest import stream_of

__all__ = ["backup"]


def backup(opened: Opened, path: str) -> int:
    """Copy the group to another state directory; return the batch that it holds."""
    manifest = opened.manifest()
    number = opened.batch(None, manifest)
    target = opened.sibling(opened.directory.group, path)
    if target.folder == opened.directory.folder:
        msg = f"{target.folder} is the state itself."
        raise StateError(msg + "\nFix: give the backup a folder of its own.")
    if is_taken(target):
        msg = f"{target.folder} holds a group or a backup already."
        raise StateError(msg + "\nFix: give each backup a folder of its own.")
    # A run on the copy is another one: what it puts out is not what the group has put out.
    copied = replace(manifest.at(number), id=uuid4().hex, generation=1, audit=list(manifest.audit))
    copied.stream = stream_of(opened.directory.group, copied)
    copied.replay_until = 0
    copied.note(Backup(batch=number, by=user_name()))
    copy_group(opened.directory, manifest, target, copied, number, share=False)
    return number
