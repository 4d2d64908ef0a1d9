"""A copy of a group under another name, which goes on by itself.

Takes an opened group, which may run; gives the batch from which the copy goes on.
"""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from millpond.connectors.topic import check_name
from millpond.errors import StateError
from millpond.operations.generations import check_not_of_files, user_name
from millpond.operations.group_copy import copy_group, is_taken
from millpond.operations.session import At, Opened
from millpond.storage.audit import Fork
from millpond.storage.manifest import stream_of

__all__ = ["fork"]


def fork(opened: Opened, group: str, at: At, state_dir: str | None) -> int:
    """Copy the group under another name; return the batch from which it goes on."""
    manifest = opened.manifest()
    number = opened.batch(at, manifest)
    check_name(group, "consumer group")
    target = opened.sibling(group, state_dir)
    check_not_of_files(manifest, number)
    if is_taken(target):
        msg = f"there is a group {group!r} already in {target.folder}."
        raise StateError(msg + "\nFix: choose another name.")
    copied = replace(manifest.at(number), id=uuid4().hex, generation=1, audit=list(manifest.audit))
    copied.stream = stream_of(group, copied)
    copied.replay_until = 0
    batch = opened.directory.checkpoint(manifest).batch(number)
    copied.partitions = (batch.partitions if batch else 0) or copied.partitions
    copied.note(Fork(of=opened.directory.group, batch=number, by=user_name()))
    copy_group(opened.directory, manifest, target, copied, number)
    return number
