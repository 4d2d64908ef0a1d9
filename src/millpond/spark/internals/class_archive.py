"""Classes that a JVM has loaded and checked once, in a file that the next one maps.

Spark loads more than ten thousand classes before the first record. A class-data archive of them is
made by `cli.warmup`, in the user's cache folder, and used by every start that finds one. Its name
says for which Java and which jars it is; beyond that the JVM itself compares, and goes without
where anything differs.

Relies on: the folder `jars` in the package pyspark; `-XX:SharedArchiveFile` and
    `-XX:ArchiveClassesAtExit` of Java 17 and newer.
Seen with: 4.3, with Java 17 and 21.
Without it: a start takes some seconds longer.
For Spark 4.4: where the jars are.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from millpond.spark.versions import find_java, release_of

__all__ = ["archive_file", "options_for_use", "options_to_make"]


def archive_file() -> Path | None:
    """Return where the archive for this Java and this Spark is or would be; None: nowhere."""
    java = find_java()
    jars = Path(pyspark.__file__).parent / "jars"
    if java is None or not jars.is_dir() or "SPARK_HOME" in os.environ:
        return None
    about = [str(java), release_of(java), pyspark.__version__]
    with os.scandir(jars) as found:
        about += sorted(
            f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in found
        )
    digest = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return cache / "millpond" / "archive" / f"spark-{pyspark.__version__}-{digest}.jsa"


def options_for_use() -> str:
    """Return the options with which a JVM uses the archive; none where there is no archive."""
    file = archive_file()
    if file is None or not os.access(file, os.R_OK):  # a home may be somebody else's
        return ""
    return f'-XX:SharedArchiveFile="{file}" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr'


def options_to_make(file: Path) -> str:
    """Return the options with which a JVM writes at its end what it has loaded."""
    return f'-XX:ArchiveClassesAtExit="{file}" -Xlog:disable -Xlog:all=error:stderr'
