"""Start Spark, or use the user's; a session of our own in it. Each setting with its reason.

Takes a master and the user's settings, or the user's session; gives a `SparkSession` that shares
its context and has settings of its own.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond.config import MOST_PARTITIONS, PARTITIONS
from millpond.errors import ConfigError, EngineError, MillpondError
from millpond.folders import java_folder
from millpond.spark.internals.class_archive import options_for_use
from millpond.spark.internals.fork_server import open_fork_server
from millpond.spark.internals.jvm import is_set, is_stopped, running_context, variable_of_jvm
from millpond.spark.internals.jvm_process import (
    forget_dead_jvm,
    found_gateway,
    has_gateway,
    launched_gateway,
)
from millpond.spark.internals.own_session import session_beside
from millpond.spark.internals.py4j_logs import quiet_py4j
from millpond.spark.internals.settings import (
    FILE_MANAGER,
    FORMATS,
    LOCAL,
    OBJECT_STORE,
    QUERY,
    SESSION,
    WITH_SECRET,
    file_manager,
)
from millpond.spark.internals.sockets import socket_settings
from millpond.spark.logs import log_options
from millpond.spark.secrets import (
    DEFAULT_OPTIONS,
    EXTRA_OPTIONS,
    passed_by_file,
)
from millpond.spark.stderr import passed_on
from millpond.spark.versions import (
    check_connect,
    check_environment,
    check_python,
    check_session,
    find_java,
    java_version,
    judge,
)
from millpond.storage.files import is_object_store

__all__ = ["check_start", "has_session", "open_session", "partitions_of"]

logger = logging.getLogger("millpond")


def open_session(
    master: str | None,
    spark: SparkSession | None,
    config: dict[str, str],
    name: str,
    state_dir: str | Path = "",
    *,
    lasts: bool = False,
) -> SparkSession:
    """Return a session of our own beside the user's, or beside one that is started here.

    It shares the Spark context, and begins with the settings, views and functions of the other;
    what is set in it stays in it. A second run in one process shares the context that is there.

    Args:
        master: Where Spark runs; None: here.
        spark: The user's session.
        config: The user's settings of Spark.
        name: The group's name, for people who look at Spark's page.
        state_dir: Where the group's state is, which decides how its files are written.
        lasts: Whether what is started is to run for long, so that it has time to get faster.
    """
    check_start(master, spark, config)
    quiet_py4j()
    if spark is None and has_session():
        spark = SparkSession.builder.getOrCreate()
    is_new = spark is None
    if spark is None:
        logs = log_options(config, state_dir)
        options = f"{logs} {_java_options(config, lasts=lasts)}".strip()
        spark = _start(master or "local[*]", config, options, name)
    session = session_beside(spark)
    late = {PARTITIONS} & config.keys() if is_new else config.keys()
    _set_where_possible(session, {key: config[key] for key in config if key in late})
    if is_object_store(str(state_dir)):
        for key, value in OBJECT_STORE.items():
            session.conf.set(key, config.get(f"spark.hadoop.{key}", value))
    for key, value in {**QUERY, FILE_MANAGER: file_manager(str(state_dir))}.items():
        session.conf.set(key, config.get(key, value))
    for key, value in FORMATS.items():
        session.conf.set(key, value)
    return session


def check_start(master: str | None, spark: SparkSession | None, config: dict[str, str]) -> None:
    """Refuse what cannot work, before anything is started or written.

    Raises:
        ConfigError: where a setting asks for what is not supported.
        EngineError: where Spark, Java or Python does not fit.
    """
    forget_dead_jvm()
    check_connect(master, config)
    if spark is not None or has_session():
        _check_running(spark)
    else:
        check_environment(master)


def _check_running(spark: SparkSession | None) -> None:
    """Refuse Spark as it runs: it is stopped, of another version, or has another Python."""
    if spark is not None:
        check_session(spark)
    context = running_context() if spark is None else spark.sparkContext
    if context is None or is_stopped(context):
        msg = "the session given with spark= is stopped."
        raise ConfigError(f"{msg}\nFix: SparkSession.builder.getOrCreate() makes another one.")
    if wrong := judge(context.version, "the session runs on Spark"):
        raise EngineError(f"{wrong}\nFix: use a cluster of Spark 4.3, or the Spark of pyspark.")
    if context is _started[0] or not context.master.startswith("local"):
        return
    # For what the JVM starts by itself, as it looks for it: sources, for example.
    names = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    given = (variable_of_jvm(context, name) for name in names)
    of_jvm = next(filter(None, given), "python3")
    fix = "set os.environ['PYSPARK_PYTHON'] = sys.executable before the session is made"
    for python in dict.fromkeys([context.pythonExec, of_jvm]):
        check_python(python, f"the session was made with {python!r} for Python", fix)


_started: list[SparkContext | None] = [None]
"""The context that was started here, if one was."""

_by_file: dict[str, str] = {}
"""Options of Java that the user gave at that start; Spark itself knows only the files they were in.
"""


def _set_where_possible(session: SparkSession, config: dict[str, str]) -> None:
    """Set what the user asked for, and report what only a start of Spark can set."""
    too_late = []
    for key, value in config.items():
        try:
            session.conf.set(key, value)
        except AnalysisException:
            started_with = _by_file.get(key) or session.sparkContext.getConf().get(key)
            if started_with != str(value):
                too_late.append(key)
    if too_late:
        logger.warning(
            "Spark runs already, so these settings of spark_config have no effect: %s",
            ", ".join(too_late),
        )


def partitions_of(session: SparkSession) -> int:
    """Return how many partitions new state gets: as many as the user set, or one for each core."""
    if not is_set(session, PARTITIONS):
        return int(session.sparkContext.defaultParallelism)
    asked = int(session.conf.get(PARTITIONS))
    if not 1 <= asked <= MOST_PARTITIONS:
        msg = f"{PARTITIONS} of the session must be 1 to {MOST_PARTITIONS:,}, it is {asked:,}."
        raise ConfigError(msg + f'\nFix: spark.conf.set("{PARTITIONS}", 8).')
    return asked


def has_session() -> bool:
    """Tell whether Spark runs in this process already."""
    return running_context() is not None


def _start(master: str, config: dict[str, str], options: str, name: str) -> SparkSession:
    # Workers must be this very Python: another one has neither pyarrow nor millpond.
    is_local = master.startswith("local")
    python = _python() if is_local else sys.executable
    conf = SparkConf().setMaster(_with_second_try(master)).setAppName(f"millpond {name}")
    local = {**LOCAL, **socket_settings()} if is_local else {}
    if is_local and not master.startswith("local-cluster"):
        local |= WITH_SECRET
    # The shuffle partitions belong to this application; Spark may serve others later.
    config = {key: str(value) for key, value in config.items() if key != PARTITIONS}
    for key, value in {**SESSION, **local, DEFAULT_OPTIONS: options}.items():
        if key not in config or key == DEFAULT_OPTIONS:
            conf.set(key, value)
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local:
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"  # where Spark's page listens, if it is asked for
    with _environment(**variables):
        try:
            gateway = _gateway(conf, config)
            for key, value in config.items():  # not in a command line any more
                if key not in _FOR_JAVA:
                    conf.set(key, value)
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except MillpondError:
            raise
        except Exception as error:
            fix = "correct what Java reports above"
            if not is_local:
                fix = f"check that {master} is the address of a cluster that runs Spark 4.3"
            msg = f"Spark could not be started with master {master!r}: {error}\nFix: {fix}."
            raise EngineError(msg) from error
    _started[0] = session.sparkContext
    return session


def _with_second_try(master: str) -> str:
    """Return a local master with which a task runs once more where its worker was lost.

    Spark's default is no other try here, and three on a cluster. The system may have killed a
    worker for its memory; and the second one notes each record, so that it can be named.
    """
    found = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*\])?", master)
    return master if found is None else f"local[{found[1] or 1},2]"


# Settings that Java has had when it has started.
_FOR_JAVA = (DEFAULT_OPTIONS, EXTRA_OPTIONS)


def _gateway(conf: SparkConf, config: dict[str, str]) -> Any:
    """Return the way to the JVM; start one where there is none, with the user's settings."""
    if has_gateway():
        return None
    if (found := found_gateway(conf)) is not None:
        return found
    folder = None if _has_own_folder(config) else java_folder()
    ours = "" if folder is None else f'-Djava.io.tmpdir="{folder.path}"'
    locks = [] if folder is None else [folder.fileno()]
    try:
        with passed_on() as stderr, passed_by_file(config) as theirs:
            options = [conf.get(DEFAULT_OPTIONS), ours, theirs]
            conf.set(DEFAULT_OPTIONS, " ".join(filter(None, options)))
            _by_file.clear()
            _by_file.update({key: config[key] for key in config if key in _FOR_JAVA})
            gateway = launched_gateway(conf, stderr=stderr, pass_fds=locks)
        if folder is not None:  # it is the JVM's, which removes it after all its other files
            gateway.jvm.java.io.File(str(folder.path)).deleteOnExit()
            folder.hand_over()
    except BaseException:
        if folder is not None:
            folder.remove()
        raise
    return gateway


def _has_own_folder(config: dict[str, str]) -> bool:
    """Tell whether the user has said where Java's temporary files are."""
    options = [config.get(key, "") for key in _FOR_JAVA]
    options += [os.environ.get(name, "") for name in _OPTIONS_OF_JAVA]
    return any("-Djava.io.tmpdir" in option for option in options)


# What Java and Spark's launcher add to the options of a JVM.
_OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


# Java's second compiler takes time from the cores at the start: the first output comes in 6.8 s
# without it, and in 9.0 with it. Behind two minutes a record takes 97 ms with it, and 166 without
# (docs/performance.md, Both compilers). So what lasts has both, what soon ends has one.
# Java gives one a fifth of the room that it gives two, which Spark's generated code had filled
# before the thousandth batch: then nothing is compiled any more.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# A heap that stays as large as it is. Left to itself, Java's collector puts off looking for garbage
# among old objects the longer, the larger the heap is, and enlarges the heap when it has looked:
# within 10,000 batches it had all of the 3 GB, and a batch took 88 ms instead of 81
# (docs/performance.md, A long time).
_STEADY_HEAP = "-XX:-G1UseAdaptiveIHOP -XX:MinHeapFreeRatio=10"

# What is larger than half a region is kept apart, and the collector runs for it. With 3 GB Java
# takes regions of 2 MB, and Spark's buffers of 1 MB have a header, so they are larger than half.
_REGIONS = "-XX:G1HeapRegionSize=4m"

# Hadoop starts a chmod for every file of a checkpoint, a dozen for each batch, and Java takes two
# steps to start a program unless a setting says otherwise. A small batch took 280 ms with this, and
# 309 without.
_ONE_STEP = "-Djdk.lang.Process.launchMechanism=VFORK"


def _java_options(config: dict[str, str], *, lasts: bool) -> str:
    """Return our options of the JVM, which make it faster; those of the user come after them."""
    makes = "ArchiveClassesAtExit" in config.get(EXTRA_OPTIONS, "")
    chosen = [
        "" if lasts else _ONE_COMPILER,
        _STEADY_HEAP,
        "" if "spark.driver.memory" in config else _REGIONS,
        _ONE_STEP if _has_one_step() else "",
        "" if makes else options_for_use(),
    ]
    return " ".join(filter(None, chosen))


def _has_one_step() -> bool:
    """Tell whether this Java knows the option: it is for Linux, and Java 26 warns of its end."""
    java = find_java()
    version = None if java is None else java_version(java)
    return sys.platform == "linux" and version is not None and version < 26


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables that the user has not set, for as long as the JVM is being started."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def _python() -> str:
    """Return what Spark is to start where it wants a Python on this machine."""
    if os.name != "posix" or {"SPARK_HOME", "PYSPARK_PYTHON"} & os.environ.keys():
        return sys.executable
    try:
        return open_fork_server()
    except OSError:  # no room for temporary files, or not to execute them, or too long a path
        return sys.executable
