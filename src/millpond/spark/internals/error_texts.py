"""What is recognised by the text of an error: damage, another version, a full disk, a lost worker.

Relies on: the English texts and error classes of Spark, RocksDB, Hadoop, Java and the system; the
    marks between a message and the JVM's stack; the name of an error of ours in a traceback that
    comes from a worker.
Seen with: 4.3.
Without it: the error is reported as it came, with `Fix: correct what Spark reports`; damage that is
    not recognised is not repaired by itself. What is wrongly taken for damage is not repaired
    either, as long as checksums fit.
For Spark 4.4: `error-conditions.json` for the conditions named here; `PythonWorker` for "exited
    unexpectedly".
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from millpond.storage.checkpoint import Checkpoint

__all__ = [
    "JVM_LOST",
    "SPARK_ERRORS",
    "disk_trouble",
    "file_in",
    "is_damage",
    "is_of_reader",
    "is_of_spark",
    "is_unsupported",
    "lost_task",
    "missing_module",
    "named_error",
    "python_part",
    "said",
    "what_is_damaged",
]

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a call of Spark raises, where it says something about a file, a query or a task."""

JVM_LOST = (ConnectionError, Py4JError)
"""What a call raises whose JVM is gone."""

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


def is_of_reader(text: str) -> bool:
    """Tell whether Spark's reader of state stores reports it."""
    return "STDS_" in text


def is_of_spark(error: BaseException) -> bool:
    """Tell whether it is an error of Spark or of the way to it, and not of a function."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def file_in(text: str) -> str:
    """Return the file that a text names; "" where it names none."""
    found = re.search(r"(?:file:)?(/[^\s'\",:\]]+)", text)
    return "" if found is None else found[1]


def named_error(text: str) -> tuple[str, str]:
    """Return the class of an error of ours that a worker raised, and its text; "" without one."""
    found = re.search(r"^millpond\.errors\.(\w+): (.*)", text, re.MULTILINE | re.DOTALL)
    return ("", "") if found is None else (found[1], found[2].strip())


def missing_module(text: str) -> str:
    """Return the module that a worker could not import; "" where it is not about one."""
    found = re.search(r"ModuleNotFoundError: No module named '([^']+)'", text)
    return "" if found is None else found[1]


def python_part(text: str) -> str:
    """Return the last traceback of a text, and what comes after it; all of it without one."""
    return text[max(text.rfind("Traceback (most recent call last)"), 0) :]


_LOST = re.compile(r"\(TID (\d+)\).*?Python worker exited unexpectedly", re.DOTALL)


def lost_task(text: str) -> int | None:
    """Return the task whose Python worker was lost, if that is what Spark says."""
    found = _LOST.search(text)
    return None if found is None else int(found[1])
