"""What figures were measured on: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pyspark

import millpond
from millpond.spark.internals.class_archive import find_java
from millpond.spark.versions import java_version

__all__ = ["machine"]


def machine() -> dict[str, str]:
    java = find_java()
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": str(java_version(java) if java else None),
        "spark": pyspark.__version__,
        "millpond": f"{millpond.__version__} ({commit()})",
    }


def processor() -> str:
    """Return what the system calls its processor."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit() -> str:
    """Return the commit that is measured, or that it is not known."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        is_changed = git("status", "--porcelain", "--untracked-files=no", "../src", ".")
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if is_changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "commit not known"
