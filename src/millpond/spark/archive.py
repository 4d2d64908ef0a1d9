"""Classes that a JVM has loaded and checked once, in a file that the next one maps.

Spark loads more than ten thousand classes before the first record. A class-data archive of them is
made by `millpond.warmup`, in the user's cache folder, and used by every start that finds one. Its
name says for which Java and which jars it is; beyond that the JVM itself compares, and goes without
where anything differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

import pyspark

__all__ = ["archive_file", "find_java", "java_version", "options_for_use", "options_to_make"]


def archive_file() -> Path | None:
    """Return where the archive for this Java and this Spark is or would be; None: nowhere."""
    java = find_java()
    jars = Path(pyspark.__file__).parent / "jars"
    if java is None or not jars.is_dir() or "SPARK_HOME" in os.environ:
        return None
    about = [str(java), _release(java), pyspark.__version__]
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


def find_java() -> Path | None:
    """Return the Java that Spark will start; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def java_version(java: Path) -> int | None:
    """Return the main version of a Java; None where it does not say."""
    found = re.search(r'^JAVA_VERSION="(\d+)', _release(java), re.MULTILINE)
    return int(found[1]) if found else None


def _release(java: Path) -> str:
    """Return what tells one Java from another in the same place."""
    release = java.parent.parent / "release"
    if release.exists():
        return release.read_text()
    status = java.stat()
    return f"{status.st_size} {status.st_mtime_ns}"
