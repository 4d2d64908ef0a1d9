"""The objects of the JVM below a context and a session.

Relies on: `_jvm`, `_jsc` and `_gateway` of a `SparkContext`, `_active_spark_context` of its class,
    `_jsparkSession` and `_jconf` of a `SparkSession`, and `new_array` of py4j.
Seen with: 4.3.
Without it: nothing starts. Spark Connect has none of this; `spark.versions` refuses it.
For Spark 4.4: `pyspark/core/context.py`, `pyspark/sql/session.py`.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = [
    "array_of",
    "is_set",
    "is_stopped",
    "java_session",
    "jvm_of",
    "running_context",
    "variable_of_jvm",
]


def jvm_of(session: SparkSession) -> Any:
    """Return the view of the JVM through which its classes are found."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    return jvm


def java_session(session: SparkSession) -> Any:
    """Return the JVM's own object of a session."""
    return session._jsparkSession


def array_of(session: SparkSession, kind: Any, *items: Any) -> Any:
    """Return an array of Java."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    array = gateway.new_array(kind, len(items))
    for place, item in enumerate(items):
        array[place] = item
    return array


def is_set(session: SparkSession, key: str) -> bool:
    """Tell whether somebody has set a setting; `conf.get` gives Spark's default, too."""
    return bool(session._jconf.contains(key))


def running_context() -> SparkContext | None:
    """Return the context of this process, if Spark runs in it."""
    return SparkContext._active_spark_context


def is_stopped(context: SparkContext) -> bool:
    """Tell whether a context was stopped."""
    return context._jsc is None


def variable_of_jvm(context: SparkContext, name: str) -> str | None:
    """Return a variable of the environment as the JVM sees it."""
    jvm = context._jvm
    assert jvm is not None
    value: str | None = jvm.java.lang.System.getenv(name)
    return value
