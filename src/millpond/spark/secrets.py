"""Settings of Spark that nobody else may read: keys, passwords, tokens.

A command line can be read by every user of a machine, and PySpark puts all settings into that of
Java. Those whose names sound like secrets go into a file instead, which only this user can read and
which is there only while Java starts.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millpond.errors import ConfigError

__all__ = ["divide", "passed_by_file", "quiet_py4j"]

_SECRET = re.compile(r"pass|secret|key|token|credential|jaas|auth", re.IGNORECASE)
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


def divide(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that may be seen, and those that may not.

    >>> divide({"spark.hadoop.fs.s3a.secret.key": "x", "spark.driver.memory": "4g"})
    ({'spark.driver.memory': '4g'}, {'spark.hadoop.fs.s3a.secret.key': 'x'})
    """
    hidden = {key: value for key, value in config.items() if _SECRET.search(key)}
    return {key: value for key, value in config.items() if key not in hidden}, hidden


@contextmanager
def passed_by_file(config: Mapping[str, str]) -> Iterator[None]:
    """Give settings to the Spark that is started in this block, by a file of mode 0600."""
    if not config:
        yield
        return
    before = os.environ.get(_ARGUMENTS)
    if before is not None and "--properties-file" in before:
        msg = (
            f"spark_config has the secret {min(config)!r}, which goes by a properties file, and "
            f"{_ARGUMENTS} names another one."
        )
        raise ConfigError(msg + "\nFix: put the secret into that file, and not into spark_config.")
    handle, name = tempfile.mkstemp(prefix="millpond-", suffix=".conf")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(f"{_escaped(k)}={_escaped(str(v))}\n" for k, v in config.items())
        own = f'--properties-file "{name}" --load-spark-defaults'
        os.environ[_ARGUMENTS] = f"{own} {before or 'pyspark-shell'}"
        yield
    finally:
        Path(name).unlink(missing_ok=True)
        os.environ.pop(_ARGUMENTS, None)
        if before is not None:
            os.environ[_ARGUMENTS] = before


def _escaped(text: str) -> str:
    r"""Return text as Java reads it from a properties file.

    >>> print(_escaped("a b=ü"))
    \u0061\u0020\u0062\u003d\u00fc
    """
    data = text.encode("utf-16-be")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))


def quiet_py4j() -> None:
    """Keep py4j from logging its commands, which contain settings and pickled functions.

    Where a program sets the root logger to DEBUG, py4j would follow. A level that was set on py4j's
    own logger stays.
    """
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
