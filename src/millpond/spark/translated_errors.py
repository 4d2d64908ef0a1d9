"""What Spark says when something fails, without the JVM's stack."""

from __future__ import annotations

import re

from millpond.storage.checkpoint import Checkpoint

__all__ = ["disk_trouble", "is_damage", "is_unsupported", "said", "what_is_damaged"]

# What Spark says when files of a checkpoint are torn, changed or gone.
_DAMAGE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|CHECKSUM_VERIFICATION|Corruption:|RocksDBException"
    r"|STATE_STORE_\w*(CORRUPT|INVALID|FAIL|MISS)|CheckpointException|log file is corrupt"
    r"|Incomplete log file|Unsupported log version|INVALID_(LOG|CHANGE_LOG)",
    re.IGNORECASE,
)

# What Spark says when another version of it wrote a file.
_OTHER_VERSION = re.compile(
    r"INVALID_LOG_VERSION|INVALID_CHANGE_LOG_(READER|WRITER)_VERSION|Unsupported log version"
    r"|maximum supported log version|produced by a newer version of Spark",
    re.IGNORECASE,
)

# What is said of any file; it is damage where the file is one of the checkpoint.
_OF_A_FILE = re.compile(
    r"FileNotFoundException|ChecksumException|Checksum error|ZipException|malformed"
    r"|file does not exist|NoSuchFile",
    re.IGNORECASE,
)


# What the system says when a file cannot be written.
_DISK = re.compile(
    r"No space left on device|Read-only file system|Permission denied|Disk quota exceeded"
    r"|Input/output error|File too large"
)


def said(error: BaseException) -> str:
    """Return the lines of an error, and of what caused it, that are not of a stack."""
    whole = str(error).split("=== Streaming Query ===")[0].split("JVM stacktrace")[0]
    lines = [line for line in whole.splitlines() if not line.startswith(("\tat ", "\t..."))]
    return "\n".join(lines).replace(" SQLSTATE: 38000", "").strip()


def is_unsupported(text: str, checkpoint: Checkpoint) -> bool:
    """Tell whether it is about a file of another version, and no file is torn."""
    return _OTHER_VERSION.search(text) is not None and not checkpoint.unfit()


def is_damage(text: str, folder: str) -> bool:
    """Tell whether it is about files of a checkpoint that are not as they were written."""
    if _DAMAGE.search(text) is not None:
        return True
    return folder in text and _OF_A_FILE.search(text) is not None


def disk_trouble(text: str) -> str | None:
    """Return what the system said about a disk that cannot be written, if it did."""
    found = _DISK.search(text)
    return None if found is None else found[0]


def what_is_damaged(text: str, checkpoint: Checkpoint) -> str:
    """Return which files of a checkpoint are not as they were written, and how that showed.

    What Spark says is long and does not always name the file.
    """
    bad = [str(place) for place in checkpoint.unfit()]
    if bad:
        return f"{', '.join(bad[:5])} {'is' if len(bad) == 1 else 'are'} not as it was written"
    lines = [line.strip().removeprefix(": ") for line in text.splitlines()]
    about = [line for line in lines if checkpoint.folder.path in line]
    said = next(iter(about or [line for line in lines if _DAMAGE.search(line)] or lines), "")
    return said[-500:] if checkpoint.folder.path in said else f"{said[-500:]} ({checkpoint.folder})"
