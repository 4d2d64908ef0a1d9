"""Where Spark and the user's functions log.

Takes the group's folder; gives Java's options with which Spark logs to a file of the group instead
of the terminal. In workers, what functions log goes to standard error, like what they print.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

from millpond.folders import Scratch
from millpond.spark.internals.state_server_log import SERVER
from millpond.storage.files import is_remote

__all__ = ["log_in_worker", "log_options"]

logger = logging.getLogger("millpond")

# The log is cut at this size, and as many older files are kept.
_SIZE, _KEPT = "10MB", 5

# Logs of so many runs stay where they are in the temporary folder: who looks for what happened may
# have started again.
_RUNS = 3

# What a user gives to configure Spark's logging; then it is not configured here.
_USERS = ("log4j2.configurationFile", "log4j.configurationFile")
_USERS_FILES = ("properties", "xml", "yaml", "yml", "json", "jsn")

_SETTINGS = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.createOnDemand = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {kept}
logger.server.name = {server}
logger.server.level = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def log_options(config: dict[str, str], folder: str | Path) -> str:
    """Return Java's options with which Spark logs to a file; none where the user has his own.

    The file is `logs/spark.log` in the folder of a group that is held on this machine, and else one
    in a temporary folder.
    """
    if _is_configured(config):
        return ""
    try:
        file = _file(folder)
        scratch = Scratch("millpond-log4j-")
        settings = scratch.path / "log4j2.properties"
        text = str(file).replace("\\", "/").replace("$", "$$")
        settings.write_text(_SETTINGS.format(file=text, size=_SIZE, kept=_KEPT, server=SERVER))
    except OSError:  # no room for temporary files: Spark logs as it does by itself
        return ""
    atexit.register(scratch.remove)
    return f'-Dlog4j2.configurationFile="{settings}"'


def _is_configured(config: dict[str, str]) -> bool:
    options = [value for key, value in config.items() if key.endswith("JavaOptions")]
    options += [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")]
    if "LOG4J_CONFIGURATION_FILE" in os.environ or any(n in o for n in _USERS for o in options):
        return True
    homes = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME", "") + "/conf"]
    return any(
        Path(home, f"log4j2.{kind}").exists() for home in homes if home for kind in _USERS_FILES
    )


def _file(folder: str | Path) -> Path:
    if is_remote(folder):
        file = Scratch("millpond-spark-log-", kept=_RUNS - 1).path / "spark.log"
        logger.info("Spark logs to %s", file)
        return file
    if Path(folder, "lock").exists():
        return Path(folder).absolute() / "logs" / "spark.log"
    scratch = Scratch("millpond-logs-")
    atexit.register(scratch.remove)
    return scratch.path / "spark.log"


# --- in the workers -------------------------------------------------------------------------


class _Handler(logging.StreamHandler[TextIO]):
    """Writes what functions log to standard error; by its class, ours is known from others."""


def log_in_worker(level: str | int | None) -> None:
    """Let what functions log reach standard error, from the application's level on.

    Where the user's modules have set up logging, it stays as they want it. Applications of one
    session share worker processes, so the level is that of the one that runs.
    """
    root = logging.getLogger()
    if level is None or not all(isinstance(handler, _Handler) for handler in root.handlers):
        return
    if not root.handlers:
        handler = _Handler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    root.setLevel(level)
