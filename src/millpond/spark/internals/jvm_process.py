"""The JVM of this process: how it is started, ends, and is forgotten where it has died.

Relies on: `pyspark.java_gateway.launch_gateway`, which takes the arguments of `Popen` and leaves
    the process in `proc` of the gateway; `PYSPARK_GATEWAY_PORT` for a JVM that is there already; a
    JVM that ends when its standard input does. PySpark keeps gateway, context and session in
    `_gateway`, `_jvm` and `_active_spark_context` of `SparkContext`, and in `_instantiatedSession`
    of `SparkSession`, and has no call that forgets them.
Seen with: 4.3.
Without it: the first start fails, or a run after the JVM has died talks to the dead one.
For Spark 4.4: `pyspark/java_gateway.py`; new fields of `SparkContext` and `SparkSession` that keep
    an object of the JVM.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

__all__ = ["end_jvm", "forget_dead_jvm", "found_gateway", "has_gateway", "launched_gateway"]


def has_gateway() -> bool:
    """Tell whether this process has a JVM, which PySpark finds by itself."""
    return SparkContext._gateway is not None


def found_gateway(conf: SparkConf) -> Any:
    """Return the way to the JVM that has started this program (spark-submit); None: it has not."""
    return launch_gateway(conf) if "PYSPARK_GATEWAY_PORT" in os.environ else None


def launched_gateway(conf: SparkConf, **process: Any) -> Any:
    """Start a JVM with the arguments of `Popen`, and return the way to it.

    It goes on when a service manager sends SIGTERM to every process at once: this program decides
    when the run ends, and the JVM ends when its standard input does.
    """
    gateway = launch_gateway(conf, {**process, "start_new_session": True})
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
    return gateway


def end_jvm() -> int:
    """End the JVM of this process, wait until it has, and return its exit code."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return 0
    process.stdin.close()
    return int(process.wait())


def forget_dead_jvm() -> None:
    """Let a new JVM be started where the one of an earlier run in this process has died."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    try:
        context._jsc.sc().isStopped()
    except Exception:
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None
