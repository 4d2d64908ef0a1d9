"""`state/<operator>/<partition>/<version>_<id>.zip` and `.changelog`: state itself.

Relies on: the names. Batch 7 writes version 8, a file in every partition, and never changes it
    again; a new id is taken where a batch is run again. What is in them is read by Spark only.
For Spark 4.4: `RocksDBFileManager`, and `CheckpointFileManager` for the names of files that are
    being written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["FOLDER", "is_temporary", "last_batch", "version_of"]

FOLDER = "state"

_VERSIONED = re.compile(r"^\.?(\d+)_[-0-9a-f]+\.(zip|changelog)")


def version_of(name: str) -> int | None:
    """Return the version that a file of state, or its checksum, leads to; None for other files."""
    found = _VERSIONED.match(name)
    return None if found is None else int(found[1])


def last_batch(names: Iterable[str]) -> int | None:
    """Return the last batch that has written one of the files of a partition."""
    versions = [version for name in names if (version := version_of(name)) is not None]
    return max(versions, default=0) - 1 if versions else None


def is_temporary(name: str) -> bool:
    """Tell whether Spark has begun to write a file, or Hadoop its checksum, and not ended."""
    return name.startswith(".") and name.endswith((".tmp", ".tmp.crc"))
