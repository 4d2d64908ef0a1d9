"""What Spark says when something fails, without the JVM's stack."""

from __future__ import annotations

import re

__all__ = ["is_damage", "said", "shortened"]

# What Spark says when files of a checkpoint are torn, changed or gone.
_DAMAGE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|CHECKSUM_VERIFICATION|ChecksumException|Checksum error|Corruption:"
    r"|STATE_STORE_\w*(CORRUPT|INVALID|FAIL|MISS)|FileNotFoundException|RocksDBException"
    r"|ZipException|CheckpointException|log file is corrupt|Incomplete log file|malformed"
    r"|file does not exist|Unsupported log version|INVALID_(LOG|CHANGE_LOG)",
    re.IGNORECASE,
)


def said(error: BaseException) -> str:
    """Return the lines of an error, and of what caused it, that are not of a stack."""
    whole = str(error).split("=== Streaming Query ===")[0].split("JVM stacktrace")[0]
    lines = [line for line in whole.splitlines() if not line.startswith(("\tat ", "\t..."))]
    return "\n".join(lines).replace(" SQLSTATE: 38000", "").strip()


def is_damage(text: str) -> bool:
    """Tell whether it is about files that are not as they were written."""
    return _DAMAGE.search(text) is not None


def shortened(text: str) -> str:
    """Return the lines that say what is wrong with which file."""
    telling = [line.strip() for line in text.splitlines() if is_damage(line) or "/" in line]
    return " / ".join(dict.fromkeys(telling))[:1500] or text[:1500]
