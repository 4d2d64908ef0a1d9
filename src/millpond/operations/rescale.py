"""The state divided into more or fewer parts.

Takes an opened group that is stopped; makes a new generation whose last batch has the same state
in other partitions, and compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.errors import ConfigError, StateError
from millpond.operations.generations import new_generation, user_name
from millpond.operations.session import Opened
from millpond.storage.audit import Rescale

__all__ = ["Rescaled", "rescale"]


@dataclass(frozen=True)
class Rescaled:
    """State before and after it was divided again."""

    partitions_before: int
    partitions: int
    blobs: int
    bytes: int
    checksum: str


def rescale(opened: Opened, partitions: int) -> Rescaled:
    """Divide the state into so many parts."""
    manifest = opened.manifest()
    if type(partitions) is not int or not 1 <= partitions <= manifest.groups:
        msg = f"partitions must be 1 to {manifest.groups}, got {partitions!r}."
        raise ConfigError(msg + "\nFix: the number of key groups is the most there can be.")
    if partitions == manifest.partitions:
        msg = f"the state has {partitions} partition(s) already; nothing was changed."
        raise ConfigError(msg + "\nFix: give another number, or leave the state as it is.")
    from millpond.spark.rescale import fingerprint, repartition

    before = opened.reader(manifest)
    with new_generation(opened, "rescale") as new:
        last = opened.batch(None, new.old)
        expected = fingerprint(before.blobs(last))
        repartition(opened.session, new.checkpoint, partitions)
        new.manifest.partitions = partitions
        after = opened.reader(new.manifest)
        found = fingerprint(after.blobs(new.checkpoint.last() or 0))
        if found != expected:
            msg = (
                f"after the rescale the state has {found}, before it had {expected}; nothing was "
                "changed.\nFix: millpond state verify."
            )
            raise StateError(msg)
        before_it = new.old.partitions
        new.manifest.note(
            Rescale(before=before_it, partitions=partitions, by=user_name(), state=found)
        )
    count, size, checksum = expected
    return Rescaled(new.old.partitions, partitions, count, size, checksum)
