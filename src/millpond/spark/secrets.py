"""The user's settings of Spark on their way to Java: nobody else may read keys and passwords.

A command line can be read by every user of a machine, and PySpark puts all settings into that of
Java. So those of the user go into files instead, which only this user can read and which are there
only while Java starts. Spark's page and its log of events hide what sounds like a secret.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millpond.errors import ConfigError
from millpond.folders import Scratch

__all__ = [
    "DEFAULT_OPTIONS",
    "EXTRA_OPTIONS",
    "REDACTED",
    "REDACTION",
    "passed_by_file",
]

REDACTION = "spark.redaction.regex"
REDACTED = (
    r"(?i)pass(word|wd|phrase|code)?\b|password|secret|token|credential|jaas|user[.]?info"
    r"|(access|account|api|private|encryption|shared)[._-]?key|[._-]key\b|\bsas\b|sig="
)
"""What Spark takes for a secret, in the name of a setting or in its value: its `REDACTION`.

Spark's own pattern knows neither the keys nor the signatures of Azure.
"""

DEFAULT_OPTIONS, EXTRA_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
"""Options of Java, which Spark's launcher writes into its command line in this order.

The user may have set the second ones in `spark-defaults.conf`; ours are among the first.
"""

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_FILE = "--properties-file"


@contextmanager
def passed_by_file(config: Mapping[str, str]) -> Iterator[str]:
    """Give settings to the Spark that is started in this block, by files of mode 0600.

    The block gets what its `DEFAULT_OPTIONS` must end with for those of the settings.
    """
    if not config:
        yield ""
        return
    before = os.environ.get(_ARGUMENTS)
    words, theirs = _without_file(shlex.split(before or "pyspark-shell"))
    defaults = ["--load-spark-defaults"] if theirs is None else []
    with Scratch("millpond-settings-") as folder:
        file = folder / "spark.conf"
        # Also here: a verbose start prints what it reads from the file.
        by_file = {REDACTION: REDACTED, **config}
        for key in {DEFAULT_OPTIONS, EXTRA_OPTIONS} & config.keys():
            by_file[key] = _options_file(key, config[key], folder)
        default_options = by_file.pop(DEFAULT_OPTIONS, "")
        _write(file, _read(theirs) + _properties(by_file).encode("ascii"))
        os.environ[_ARGUMENTS] = shlex.join([_FILE, str(file), *defaults, *words])
        try:
            yield default_options
        finally:
            del os.environ[_ARGUMENTS]
            if before is not None:
                os.environ[_ARGUMENTS] = before


def _without_file(words: list[str]) -> tuple[list[str], str | None]:
    """Return arguments without a properties file, and that file: Spark takes only one."""
    for place, word in enumerate(words):
        if word == _FILE and place + 1 < len(words):
            return [*words[:place], *words[place + 2 :]], words[place + 1]
        if word.startswith(f"{_FILE}="):
            return [*words[:place], *words[place + 1 :]], word.partition("=")[2]
    return words, None


def _read(file: str | None) -> bytes:
    try:
        return b"" if file is None else Path(file).read_bytes() + b"\n"
    except OSError as error:
        msg = f"{_ARGUMENTS} names {file}, which cannot be read: {error.strerror}."
        raise ConfigError(f"{msg}\nFix: correct {_FILE} there.") from error


def _properties(config: Mapping[str, str]) -> str:
    """Return the lines of a properties file."""
    return "".join(f"{_escaped(key)}={_escaped(str(value))}\n" for key, value in config.items())


def _options_file(key: str, options: str, folder: Path) -> str:
    """Write options of Java to a file; return the option that names it.

    Java reads the file as it starts, so a password among them is in no command line.
    """
    try:
        parted = shlex.split(options)
    except ValueError as error:
        msg = f"{key} in spark_config cannot be divided into options: {error}."
        raise ConfigError(f"{msg}\nFix: close each quotation mark.") from None
    quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in parted)
    file = folder / f"{key}.options"
    _write(file, "".join(f'"{option}"\n' for option in quoted).encode())
    return f'"@{file}"'


def _write(file: Path, data: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)


def _escaped(text: str) -> str:
    r"""Return text as Java reads it from a properties file.

    >>> print(_escaped("a b=ü"))
    \u0061\u0020\u0062\u003d\u00fc
    """
    data = text.encode("utf-16-be")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
