"""A session of our own beside the user's, which stays as it is.

Relies on: `cloneSession` of the JVM's session and the constructor of `SparkSession` that takes it;
    a clone that has the settings, views and functions, and no listeners; `RDD.toDF`, which PySpark
    binds to the session made last; a registry of sources that looks in the *active* session
    whether a name is taken.
Seen with: 4.3.
Without it: the user's session would get our settings, or lose its listeners or `toDF`.
For Spark 4.4: `SparkSession.__init__`, `DataSourceManager`, `SparkSession.cloneSession`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import RDD
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from millpond.spark.internals.jvm import java_session, jvm_of

__all__ = ["methods_kept", "register", "session_beside"]


def session_beside(spark: SparkSession) -> SparkSession:
    """Return a session with the same context and settings of its own."""
    with methods_kept():
        java = java_session(spark).cloneSession()
        session = SparkSession(spark.sparkContext, java)
    # People watch their queries with listeners.
    for listener in java_session(spark).streams().listListeners():
        java.streams().addListener(listener)
    return session


def register(session: SparkSession, source: type[DataSource]) -> None:
    """Register a source in a session, whichever session is the active one."""
    sessions = jvm_of(session).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session(session))
    try:
        session.dataSource.register(source)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def methods_kept() -> Iterator[None]:
    """Let `RDD.toDF` make frames of the user's session again."""
    before = RDD.__dict__.get("toDF")
    try:
        yield
    finally:
        if before is not None:
            RDD.toDF = before
