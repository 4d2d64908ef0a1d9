"""A session given by the user stays as it was, and its settings count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from functools import partial

import pytest
from pyspark import RDD
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import millpond as mp
from millpond import admin
from millpond.errors import ConfigError, StepError

pytestmark = pytest.mark.spark

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def mine(spark):
    """A session as a user has it: with settings of its own."""
    session = spark.newSession()
    session.conf.set(PARTITIONS, "7")
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "77")
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    return session


def settings(session):
    """Everything of a session, and of its context, that a run could change."""
    context = session.sparkContext
    return {
        "session": session.conf.getAll,
        "context": dict(context.getConf().getAll()),
        "hadoop": context._jsc.hadoopConfiguration().size(),
        "loggers": context._jvm.org.apache.logging.log4j.LogManager.getContext(False)
        .getConfiguration()
        .getLoggers()
        .toString(),
        "level": context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().name(),
        "views": [table.name for table in session.catalog.listTables()],
        "toDF": RDD.toDF,
    }


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


def fail(value):
    raise ValueError("no")


@pytest.fixture
def make(mine, tmp_path):
    places = {"state_dir": tmp_path / "state", "topics_dir": tmp_path / "topics"}
    return partial(mp.Application, spark=mine, loglevel=None, **places)


def test_session_is_as_it_was_after_a_run_that_ends_is_stopped_or_fails(make, mine):
    mine.range(3).createOrReplaceTempView("numbers")
    before = settings(mine)
    numbers = mine.readStream.format("rate").option("rowsPerSecond", 50).load()

    stopped = make(consumer_group="stopped")
    frame = stopped.dataframe(source=mp.SparkSource(numbers, key="value", timestamp="timestamp"))
    frame.apply(count, stateful=True)
    assert len(stopped.run(count=1)) >= 1
    assert settings(mine) == before

    failed = make(consumer_group="failed")
    failed.dataframe(source=mp.ListSource([1])).apply(fail)
    with pytest.raises(StepError):
        failed.run()
    assert settings(mine) == before

    with admin.open(stopped) as state:
        assert state.sql("SELECT count(*) AS n FROM state, numbers").first().n % 3 == 0
    assert settings(mine) == before


def test_state_has_as_many_partitions_as_the_session_sets(make, mine, tmp_path):
    app = make(consumer_group="seven")
    app.dataframe(source=mp.ListSource([("a", 1), ("b", 2)])).apply(count, stateful=True)

    assert sorted(app.run()) == [1, 1]

    manifest = json.loads((tmp_path / "state" / "seven" / "manifest.json").read_text())
    assert manifest["partitions"] == 7
    kept = tmp_path / "state" / "seven" / "generations" / "0001" / "state" / "0"
    assert {f.name for f in kept.iterdir() if f.name.isdigit()} == {str(n) for n in range(7)}
    generation = kept.parent.parent
    assert (generation / "offsets" / "0").read_text().startswith("v1\n")  # as we read it
    assert (generation / "commits" / "0").read_text().startswith("v2\n")
    assert (kept / "_metadata" / "v2" / "0").read_text().startswith("v2\n")


def test_too_many_partitions_in_the_session_are_refused(make, mine):
    mine.conf.set(PARTITIONS, "100000")
    app = make()
    app.dataframe(source=mp.ListSource([1])).print()

    with pytest.raises(ConfigError, match=r"must be 1 to 10,000, it is 100,000.\nFix: spark.conf"):
        app.run()


def test_settings_of_the_application_count_where_they_still_can(make, tmp_path, caplog):
    app = make(consumer_group="three", spark_config={PARTITIONS: "3", "spark.driver.memory": "77g"})
    app.dataframe(source=mp.ListSource([("a", 1)])).apply(count, stateful=True)

    with caplog.at_level("WARNING", "millpond"):
        app.run()

    manifest = json.loads((tmp_path / "state" / "three" / "manifest.json").read_text())
    assert manifest["partitions"] == 3
    (line,) = [r.getMessage() for r in caplog.records if "spark_config" in r.getMessage()]
    assert line.endswith("have no effect: spark.driver.memory")


class Listener(StreamingQueryListener):
    def __init__(self):
        self.seen = []

    def onQueryStarted(self, event):
        self.seen.append("started")

    def onQueryProgress(self, event):
        self.seen.append("progress")

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        self.seen.append("failed" if event.exception else "ended")


def test_listener_of_the_session_sees_a_query_that_is_stopped_and_does_not_fail(make, mine):
    listener = Listener()
    mine.streams.addListener(listener)
    try:
        app = make(consumer_group="watched")
        app.dataframe(source=mp.RateSource(50)).apply(lambda value: value)
        app.run(count=1)
        mine.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        mine.streams.removeListener(listener)

    assert set(listener.seen) == {"started", "progress", "ended"}


def test_application_without_a_session_leaves_one_that_is_there_alone(spark, tmp_path):
    mine = SparkSession.builder.getOrCreate()
    before = settings(mine)
    places = {"state_dir": tmp_path / "state", "topics_dir": tmp_path / "topics"}
    app = mp.Application(loglevel=None, spark_config={PARTITIONS: "2"}, **places)
    app.dataframe(source=mp.ListSource([1, 2])).apply(lambda value: value)

    assert app.run() == [1, 2]

    assert settings(mine) == before
    assert mine.range(4).agg(F.sum("id").alias("n")).first().n == 6


_OTHER_PYTHON = """
from pyspark.sql import SparkSession
import millpond as mp
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
app = mp.Application(spark=spark, state_dir="state", topics_dir="topics", loglevel=None)
app.dataframe(source=mp.ListSource([1])).print()
try:
    app.run()
except mp.errors.EngineError as error:
    print(error)
"""


def test_session_whose_workers_run_another_python_is_refused(tmp_path):
    venv.create(tmp_path / "other")
    folder = str(tmp_path / "other" / "bin")
    path = folder + os.pathsep + os.environ["PATH"]
    left_out = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}

    done = subprocess.run(
        [sys.executable, "-c", _OTHER_PYTHON],
        cwd=tmp_path,
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
    )

    assert done.stdout == (
        "the session was made with 'python3' for Python, so Spark would run Python functions with "
        f"{folder}/python3, where millpond is not installed.\nFix: set os.environ"
        "['PYSPARK_PYTHON'] = sys.executable before the session is made; this program runs with "
        f"{sys.executable}.\n"
    ), done.stderr
    assert not (tmp_path / "state").exists()
