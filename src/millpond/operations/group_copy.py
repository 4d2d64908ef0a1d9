"""Copies of a whole group: a generation with its sources, the time and the manifest.

Takes the directory of a group, and the one that is to hold the copy. The manifest is written last,
so a copy that was cut short is no group; it is removed when another one is made.
"""

from __future__ import annotations

from millpond.errors import DamagedStateError
from millpond.operations.generations import clock_after
from millpond.storage.audit import Backup, Fork
from millpond.storage.checkpoint import Checkpoint, damaged
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.manifest import Manifest

__all__ = ["copy_group", "is_taken"]


def copy_group(
    source: StateDirectory,
    manifest: Manifest,
    target: StateDirectory,
    copied: Manifest,
    last: int,
    *,
    share: bool = True,
) -> None:
    """Copy a generation with its sources; the manifest comes last."""
    folder = target.generation_folder(copied.generation)
    copied.since = last
    try:
        if lost := source.lost_commit(manifest):
            raise damaged(lost, "it is gone")
        source.checkpoint(manifest).copy_to(folder, last, share=share)
        Checkpoint(folder).check(manifest.layers)
        for place in Checkpoint(folder).unfit():
            home = source.generation(manifest).path
            bad = Location(place._files, place.path.replace(folder.path, home))
            raise damaged(bad, "its checksum does not fit, and nothing was copied")
        clock = clock_after(source, manifest, last)
        if clock is not None:
            target.clock_file(copied).write(clock.encode())
        for place, info in source.sources.walk():
            relative = place.path.removeprefix(source.sources.path + "/")
            _copy_source(place, target.sources / relative, info.name, share)
        target.begin(copied)
    except BaseException:
        target.abandon(copied.generation)
        raise


def is_taken(target: StateDirectory) -> bool:
    """Tell whether there is a group; what a copy left that was cut short is removed."""
    names = {info.name for info in target.folder.entries()}
    has_run = any(name.startswith(("lock", "journal")) for name in names)
    has_copy = any(name.startswith("manifest-") for name in names)
    if "manifest.json" in names or has_run or (has_copy and not _is_cut_short(target)):
        return True
    target.drop_others()
    return False


def _is_cut_short(target: StateDirectory) -> bool:
    """Tell whether a copy has all but its manifest, which is written last, and never ran."""
    try:
        manifest = target.recalled()
    except DamagedStateError:
        return False
    is_copy = bool(manifest.audit) and isinstance(manifest.audit[-1], Fork | Backup)
    return is_copy and max(target.checkpoint(manifest).planned(), default=-1) == manifest.since


def _copy_source(place: Location, target: Location, name: str, share: bool) -> None:
    """Segments never change, so their bytes may be shared; nothing else may: locks above all."""
    if name.endswith(".arrow"):
        place.copy_to(target, share)
    elif not name.endswith("lock"):
        target.write(place.read() or b"")
