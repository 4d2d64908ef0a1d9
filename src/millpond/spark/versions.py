"""Which Spark, Java and Python this package runs with, checked before anything is started.

Takes what is installed, the environment and the user's session; raises what does not fit, with
what to do about it. Imports no pyspark: another version of it might not even load.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from millpond.errors import ConfigError, EngineError

__all__ = [
    "check_connect",
    "check_environment",
    "check_installed",
    "check_java",
    "check_python",
    "check_session",
    "find_java",
    "java_version",
    "judge",
    "release_of",
]

SUPPORTED = (4, 3)
INSTALL = "pip install 'pyspark>=4.3,<4.4'"

# The oldest Java that Spark 4 runs on.
JAVA = 17

# Files that a program may have open: jars, sockets, state. Java did not start with 256.
OPEN_FILES = 1024

GET_JAVA = (
    "Fix: install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew "
    "install openjdk@17) or point JAVA_HOME at it."
)

# What makes PySpark a client of Spark Connect.
_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

# Asks an interpreter for its version, and whether it finds this package.
_PROBE = (
    "import importlib.util as u, sys; print(*sys.version_info[:2], bool(u.find_spec('millpond')))"
)


# --- Spark ----------------------------------------------------------------------------------


def judge(version: str, what: str) -> str | None:
    """Return what is wrong with a version of Spark; None where it is supported."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) == SUPPORTED:
        return None
    return f"{what} {version}, and this version of Millpond runs with 4.3 only."


def check_installed() -> None:
    """Refuse a pyspark that is missing or of another version.

    Raises:
        EngineError: before any of it is imported.
    """
    version = _installed()
    if version is None:
        msg = "pyspark is not installed, or it is the client of Spark Connect only."
        raise EngineError(f"{msg}\nFix: {INSTALL}")
    if wrong := judge(version, "the installed pyspark is"):
        raise EngineError(f"{wrong}\nFix: {INSTALL}")


def _installed() -> str | None:
    """Return the version of the pyspark that an import finds."""
    if loaded := sys.modules.get("pyspark"):
        return str(loaded.__version__)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    if not folder.is_dir():  # it is in an archive
        import pyspark

        return str(pyspark.__version__)
    if not (folder / "core").is_dir() and (folder / "sql" / "connect").is_dir():
        file = folder / "version.py"
        return _version_in(file) if judge(_version_in(file), "") else None
    return _version_in(folder / "version.py")


def _version_in(file: Path) -> str:
    found = re.search(r"""__version__[^=]*=\s*["']([^"']+)""", file.read_text())
    return found[1] if found else "of no known version"


def check_session(spark: Any) -> None:
    """Refuse a session of the user's that cannot be used.

    Raises:
        ConfigError: where it is no session, or one of Spark Connect, or of another version.
    """
    modules = {kind.__module__ for kind in type(spark).__mro__}
    if any(module.startswith("pyspark.sql.connect") for module in modules):
        msg = "spark= is a session of Spark Connect, and Millpond needs one with a Spark context."
        raise ConfigError(
            f"{msg}\nFix: SparkSession.builder.master(...).getOrCreate(), or leave spark= out."
        )
    if not {"pyspark.sql.session"} & modules:
        msg = f"spark= takes a SparkSession, got {type(spark).__name__}."
        raise ConfigError(f"{msg}\nFix: SparkSession.builder.getOrCreate(), or leave it out.")


def check_environment(master: str | None) -> None:
    """Refuse an environment in which Spark cannot be started, or not as it is needed.

    Raises:
        EngineError: where Spark, Java or the Python of the workers does not fit.
    """
    _check_spark_home()
    check_java()
    _check_open_files()
    is_local = (master or "local").startswith("local")
    for name in ("PYSPARK_DRIVER_PYTHON", *(["PYSPARK_PYTHON"] if is_local else [])):
        if name in os.environ:
            check_python(os.environ[name], f"{name} is set", f"unset {name}")


def check_connect(master: str | None, config: Mapping[str, str]) -> None:
    """Refuse settings that make PySpark a client of Spark Connect.

    Raises:
        ConfigError: with the setting.
    """
    why = "Millpond needs a Spark context, which Spark Connect does not have"
    for name in _CONNECT:
        if name in os.environ:
            msg = f"{name} is set, so PySpark is a client of Spark Connect. {why}."
            raise ConfigError(f"{msg}\nFix: unset {name}, and name the cluster with master=.")
    if os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        msg = f"SPARK_API_MODE is connect. {why}."
        raise ConfigError(f"{msg}\nFix: unset SPARK_API_MODE.")
    if "spark.remote" in config or config.get("spark.api.mode", "") == "connect":
        raise ConfigError(f"spark_config asks for Spark Connect. {why}.\nFix: use master=.")
    if (master or "").startswith("sc://"):
        msg = f"{master} is the address of a server of Spark Connect. {why}."
        raise ConfigError(f"{msg}\nFix: master='spark://host:7077', the address of the cluster.")


def _check_open_files() -> None:
    if os.name != "posix":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # Java takes all it may have
    if most != resource.RLIM_INFINITY and most < OPEN_FILES:
        msg = f"this process may open {most} files, and Spark needs {OPEN_FILES} or more."
        raise EngineError(f"{msg}\nFix: ulimit -n 4096, in the shell that starts the program.")


def _check_spark_home() -> None:
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return
    found = sorted((Path(home) / "jars").glob("spark-core_*.jar"))
    if not found:
        msg = f"SPARK_HOME is {home}, and there is no Spark in it."
        raise EngineError(f"{msg}\nFix: unset SPARK_HOME; pyspark brings its own Spark.")
    version = found[0].stem.rpartition("_")[2].partition("-")[2]
    if wrong := judge(version, f"the Spark in SPARK_HOME ({home}) is"):
        raise EngineError(f"{wrong}\nFix: unset SPARK_HOME; pyspark brings its own Spark.")


# --- Python ---------------------------------------------------------------------------------


def check_python(python: str, why: str, fix: str) -> None:
    """Refuse a Python for the workers of this machine that cannot run this package.

    Args:
        python: A command, or a path.
        why: Why it would be used.
        fix: What to do.

    Raises:
        EngineError: with the interpreter that was found.
    """
    if python == sys.executable:
        return
    place = shutil.which(python) or python
    if wrong := _wrong_with(python, os.environ.get("PYTHONPATH", "")):
        msg = f"{why}, so Spark would run Python functions with {place}, {wrong}."
        raise EngineError(f"{msg}\nFix: {fix}; this program runs with {sys.executable}.")


@cache
def _wrong_with(python: str, _path: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which does not start ({getattr(error, 'strerror', None) or 'no answer'})"
    if done.returncode:
        return f"which is no Python ({(done.stderr.strip() or 'no answer').splitlines()[-1][:80]})"
    *version, has_millpond = done.stdout.split()
    if (version[0], version[1]) != tuple(map(str, sys.version_info[:2])):
        mine = ".".join(map(str, sys.version_info[:2]))
        return f"which is Python {'.'.join(version)} and not {mine}"
    return None if has_millpond == "True" else "where millpond is not installed"


# --- Java -----------------------------------------------------------------------------------


def check_java() -> None:
    """Refuse a Java that is missing or too old.

    Raises:
        EngineError: with the Java that Spark would start.
    """
    java, home = find_java(), os.environ.get("JAVA_HOME")
    if java is None and home:
        msg = f"JAVA_HOME is {home}, and there is no bin/java in it."
        raise EngineError(f"{msg}\nFix: point JAVA_HOME at a Java of version 17 or newer.")
    version = None if java is None else _version_of(java)
    if java is None or version is None:
        raise EngineError(f"Spark needs Java 17 or newer, and none was found.\n{GET_JAVA}")
    if version < JAVA:
        msg = f"Spark needs Java 17 or newer, and {java} is Java {version}."
        raise EngineError(f"{msg}\n{GET_JAVA}")


def _version_of(java: Path) -> int | None:
    return java_version(java) or _asked_version(str(java))


@cache
def _asked_version(java: str) -> int | None:
    """Return the main version that a Java tells; its folder does not always have it."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def find_java() -> Path | None:
    """Return the Java that Spark will start; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def java_version(java: Path) -> int | None:
    """Return the main version of a Java; None where its folder does not have it."""
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release_of(java), re.MULTILINE)
    return int(found[1]) if found else None


def release_of(java: Path) -> str:
    """Return what tells one Java from another in the same place."""
    release = java.parent.parent / "release"
    if release.exists():
        return release.read_text()
    status = java.stat()
    return f"{status.st_size} {status.st_mtime_ns}"
