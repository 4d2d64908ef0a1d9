"""How a query is ended from inside of a batch.

Relies on: an error raised in `foreachBatch` ends the query, and its text has the class of the
    error; a stop interrupts the thread of the query where it sleeps in Java, and Spark takes the
    text of that error, in py4j's words, for a stop and not for a failure.
Seen with: 4.3.
Without it: a run that is asked to stop ends as a failure, or after another batch.
For Spark 4.4: `StreamExecution.isInterruptionException` and its pattern for Python,
    `ForeachBatchUserFuncException`.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from millpond.spark.internals.jvm import jvm_of

__all__ = ["HandlerError", "is_stop", "sleep_until_stopped"]


class _StoppedError(Exception):
    """Ends the query at the beginning of a batch, where a stop did not."""


class HandlerError(Exception):
    """Stands for an error of the handler, which is kept as it was.

    Spark takes the text of an error apart with a pattern that a long one is too much for.
    """


class _InterruptedError(Exception):
    """Says that the thread of the query was interrupted, in the words that Spark looks for.

    They are those of py4j's own error. Its text has the whole stack of Java, which is too long for
    the pattern with which Spark looks.
    """


_InterruptedError.__module__, _InterruptedError.__qualname__ = "py4j.protocol", "Py4JJavaError"
_INTERRUPTED = "An error occurred while calling Thread.sleep: java.lang.InterruptedException"


def sleep_until_stopped(batch: DataFrame, seconds: float) -> None:
    """Sleep in the thread of a query, inside of a batch, until another thread stops the query."""
    try:
        jvm_of(batch.sparkSession).java.lang.Thread.sleep(int(seconds * 1000))
    except Py4JError:
        raise _InterruptedError(_INTERRUPTED) from None
    raise _StoppedError


def is_stop(failure: object) -> bool:
    """Tell whether a query was ended by `sleep_until_stopped`, and has not failed."""
    return _StoppedError.__name__ in str(failure)
