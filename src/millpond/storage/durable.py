"""What a batch needs is on the disk before its outputs can be seen.

Takes the folders of a group and of its checkpoint, on a local disk; syncs what is new in them, or
all of it.
Spark writes its files without waiting for the disk, so a power cut could take the plan of a batch
whose outputs are in topics, and the state from which it would be replayed. A file counts as
synced together with the folder that has its name, and each folder above.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from millpond.connectors.segments import sync_above
from millpond.storage.spark_files.state_files import is_temporary

__all__ = ["Disk", "sync_all"]

# Files that are synced at a time: a disk writes many at once as fast as one.
_AT_ONCE = 8

Known = tuple[str, int]


class Disk:
    """Syncs the files of one run.

    Args:
        group: The folder of the group.
        checkpoint: The folder of its generation, below that one.
    """

    def __init__(self, group: str, checkpoint: str) -> None:
        self._group = Path(group)
        self._checkpoint = Path(checkpoint)
        self._synced: set[Known] = set()
        self._is_named = False
        """Whether the folders above the group are synced: they may have been made by this run."""
        self._pool = ThreadPoolExecutor(_AT_ONCE, "millpond-sync")

    def sync(self, *beside: str) -> int:
        """Sync every file of the checkpoint that is new, and these beside it; return how many."""
        found = set(_files(str(self._checkpoint)))
        new = found - self._synced
        files = [path for path, _ in new] + list(beside)
        list(self._pool.map(_sync, files))
        folders = {str(place) for path in files for place in self._folders(Path(path))}
        list(self._pool.map(_sync, folders))
        if not self._is_named:
            sync_above(self._group)
            self._is_named = True
        self._synced = found
        return len(files)

    def _folders(self, file: Path) -> Iterator[Path]:
        """Yield the folders above a file, up to that of the group."""
        for place in file.parents:
            yield place
            if place == self._group:
                return

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def sync_all(*folders: str) -> None:
    """Sync everything below folders, and the names of the folders above them.

    Where one of them is not there, it stays away: its name is removed from the disk, too.
    """
    places = [found for folder in folders for found in _below(folder)]
    with ThreadPoolExecutor(_AT_ONCE, "millpond-sync") as pool:
        list(pool.map(_sync, places))
    for folder in folders:
        sync_above(Path(folder))


def _below(folder: str) -> Iterator[str]:
    """Yield the files below a folder, then itself."""
    for place, _, names in os.walk(folder, topdown=False):
        yield from (f"{place}/{name}" for name in names)
        yield place


def _files(folder: str) -> Iterator[Known]:
    """Yield the files that are in their place, with what shows that one has grown since."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".sst"):  # written in its place, by a thread of Spark's
                yield entry.path, entry.stat().st_size
            elif not is_temporary(entry.name):
                yield entry.path, 0


def _sync(path: str) -> None:
    try:
        place = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # Spark removes files of old batches
        return
    try:
        os.fsync(place)
    finally:
        os.close(place)
