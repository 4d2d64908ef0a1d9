"""The warnings of Spark's state server, one for each page of state that is not there yet.

Relies on: the class that logs them, and Log4j 2 as what Spark logs with.
Seen with: 4.3.
Without it: the log of a program whose state grows is full of warnings.
For Spark 4.4: `TransformWithStateInPySparkStateServer` and its package; a new `getValue` of a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from millpond.spark.internals.jvm import jvm_of

__all__ = ["SERVER", "without_missing_keys"]

SERVER = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"


@contextmanager
def without_missing_keys(spark: SparkSession) -> Iterator[None]:
    """Keep a Spark of the user's from a warning for each page of state that is not there yet.

    Its level is what it was afterwards. Where the user has set one, it stays.
    """
    log4j = jvm_of(spark).org.apache.logging.log4j
    known = log4j.LogManager.getContext(False).getConfiguration().getLoggers()
    if known.containsKey(SERVER):
        yield
        return
    configurator = log4j.core.config.Configurator
    configurator.setLevel(SERVER, log4j.Level.ERROR)
    try:
        yield
    finally:
        with suppress(Exception):  # the JVM may be gone
            log4j.LogManager.getContext(False).getConfiguration().removeLogger(SERVER)
            log4j.LogManager.getContext(False).updateLoggers()
