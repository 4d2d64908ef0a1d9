"""Each part of the fence against the real Spark: what it relies on is so.

The name of a test begins with the module of `spark/internals` or `storage/spark_files` that it is
for; `tests/unit/test_fence.py` checks that none is left out.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark
import pytest
from ledger import PAYMENTS, outputs, produce
from pyspark import RDD
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming import StreamingQueryListener

import millpond as mp
from millpond.errors import ConfigError, DamagedStateError, UnsupportedCheckpointError
from millpond.spark.edit import run_edit, write_shape
from millpond.spark.internals import error_texts as texts
from millpond.spark.internals.class_archive import archive_file, options_to_make
from millpond.spark.internals.fork_server import MODULES
from millpond.spark.internals.hadoop import HadoopFiles
from millpond.spark.internals.jvm import (
    array_of,
    is_set,
    is_stopped,
    java_session,
    jvm_of,
    running_context,
    variable_of_jvm,
)
from millpond.spark.internals.own_session import methods_kept, register, session_beside
from millpond.spark.internals.processor import KeyGroupProcessor, PackedRow, transformed
from millpond.spark.internals.py4j_logs import quiet_py4j
from millpond.spark.internals.query_status import has_looked
from millpond.spark.internals.query_stop import HandlerError, is_stop, sleep_until_stopped
from millpond.spark.internals.repartition import repartition
from millpond.spark.internals.settings import (
    FILE_MANAGER,
    FORMATS,
    LOCAL,
    NO_FORMATS,
    PAYLOAD_FILES,
    PIPELINED_STATE,
    QUERY,
    file_manager,
    is_on,
)
from millpond.spark.internals.state_reader import changed_blobs, operator_of, stored_blobs
from millpond.spark.internals.state_server_log import SERVER, without_missing_keys
from millpond.spark.statestore import blobs_at, telling
from millpond.storage.checkpoint import Batch, Checkpoint
from millpond.storage.files import Location, local
from millpond.storage.spark_files import (
    commit_log,
    offset_log,
    operator_metadata,
    query_id,
    state_files,
)
from millpond.storage.spark_files.checksums import checksum_fits, sums_of
from millpond.storage.spark_files.versions import check_version
from millpond.wire.packed_rows import PACKED

pytestmark = pytest.mark.spark

LAYERS = 2
"""Operators with state in the program of `saved`."""


@pytest.fixture
def session(spark):
    return session_beside(spark)


@pytest.fixture(scope="session")
def written(saved):
    """The checkpoint of ten batches; nobody changes it."""
    return Checkpoint(local(saved / "state" / "payments" / "generations" / "0001"))


@pytest.fixture
def copied(written, tmp_path):
    shutil.copytree(written.folder.path, tmp_path / "0001")
    copy = Checkpoint(local(tmp_path / "0001"))
    copy.settle()
    return copy


def in_worker(session, function):
    """What a function gives in a Python worker, as text."""

    def batches(frames):
        import pandas

        for _ in frames:
            yield pandas.DataFrame({"found": [str(function())]})

    return session.range(1).coalesce(1).mapInPandas(batches, "found string").collect()[0][0]


# --- the JVM --------------------------------------------------------------------------------


def test_jvm_gives_its_objects(spark, session):
    context = spark.sparkContext

    words = array_of(session, jvm_of(session).java.lang.String, "one", "two")

    assert list(words) == ["one", "two"]
    assert running_context() is context and not is_stopped(context)
    assert variable_of_jvm(context, "PATH") == os.environ["PATH"]
    assert variable_of_jvm(context, "NOT_SET_AT_ALL") is None
    assert java_session(session).sessionState() is not None
    key = "spark.sql.session.localRelationCacheThreshold"
    assert not is_set(session, key) and session.conf.get(key)
    session.conf.set(key, "7")
    assert is_set(session, key)


KILLS_ITS_JVM = """
from pyspark import SparkContext
from millpond.spark.internals.jvm_process import end_jvm, has_gateway
from millpond.spark.session import has_session, open_session

for _ in range(2):
    session = open_session("local[1]", None, {}, "killed")
    print(session.range(5).count())
    jvm = SparkContext._gateway.proc
    jvm.kill()
    jvm.wait()
session = open_session("local[1]", None, {}, "ended")
print(has_gateway(), has_session(), session.range(6).count(), end_jvm())
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A program whose JVM dies twice, and is ended once."""
    return subprocess.run(
        [sys.executable, "-c", KILLS_ITS_JVM],
        cwd=tmp_path_factory.mktemp("killed"),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_jvm_process_that_has_died_is_forgotten_and_ends_when_it_is_asked(killed):
    assert killed.stdout.split() == ["5", "5", "True", "True", "6", "0"], killed.stderr


def test_printed_lines_of_every_start_are_left_out(killed):
    assert "incubator" not in killed.stderr
    assert "Streaming TransformWithState" not in killed.stderr


def test_own_session_leaves_the_users_as_it_is(spark):
    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event):
            pass

        onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted

    listener, before = Listener(), RDD.toDF
    spark.streams.addListener(listener)
    spark.sql("SELECT 7 AS n").createOrReplaceTempView("of_the_user")

    mine = session_beside(spark)
    key = "spark.sql.session.localRelationCacheThreshold"
    mine.conf.set(key, "7")

    assert mine.sparkContext is spark.sparkContext
    assert mine.table("of_the_user").head().n == 7
    assert is_set(mine, key) and not is_set(spark, key)
    assert java_session(mine).streams().listListeners()
    assert RDD.toDF is before
    with methods_kept():
        RDD.toDF = None
    assert RDD.toDF is before
    spark.streams.removeListener(listener)


def test_own_session_has_its_sources_whichever_session_is_active(spark):
    first, second = session_beside(spark), session_beside(spark)

    class Source(DataSource):
        @classmethod
        def name(cls):
            return "of-one-session"

        def schema(self):
            return "n int"

    register(first, Source)
    register(second, Source)

    assert first.read.format("of-one-session").load().columns == ["n"]


# --- settings -------------------------------------------------------------------------------

# What the name of a setting has that chooses a format.
_CHOOSES = re.compile(
    r"(format|schema|operator)Version|stateFormat|encodingFormat|Evolution|[cC]hecksum|\.codec$"
    r"|formatValidation"
)


def known_settings(session):
    named = jvm_of(session).java.lang.Class.forName("org.apache.spark.sql.internal.SQLConf$")
    entries = named.getField("MODULE$").get(None).getConfigEntries().toArray()
    return {entry.key() for entry in entries}


def test_settings_fix_every_format_that_spark_knows(session):
    known = known_settings(session)
    streaming = {key for key in known if key.startswith("spark.sql.streaming.")}

    assert {key for key in streaming if _CHOOSES.search(key)} <= FORMATS.keys() | NO_FORMATS
    assert FORMATS.keys() | NO_FORMATS <= known


def test_settings_have_the_effect_that_is_meant(session):
    jvm = jvm_of(session)
    for key, value in {**QUERY, **FORMATS}.items():
        session.conf.set(key, value)
    of_state = jvm.org.apache.spark.sql.execution.streaming.state
    settings = of_state.StateStoreConf.apply(java_session(session).sessionState().conf())
    rocksdb = of_state.RocksDBConf.apply(settings)

    assert rocksdb.enableChangelogCheckpointing() and not rocksdb.trackTotalNumberOfRows()
    assert rocksdb.formatVersion() == 5
    assert settings.minVersionsToRetain() == 100
    for place in ("/here", "hdfs://there/x"):
        session.conf.set(FILE_MANAGER, file_manager(place))
        conf = java_session(session).sessionState().newHadoopConf()
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        manager = managers.create(jvm.org.apache.hadoop.fs.Path("/"), conf)
        assert manager.getClass().getName() == file_manager(place)
    assert jvm.java.lang.Class.forName(settings.providerClass())
    assert {key for key in QUERY if ".rocksdb." not in key} <= known_settings(session)


def test_settings_are_on_unless_they_are_turned_off(session):
    assert is_on(session, PAYLOAD_FILES)
    session.conf.set(PAYLOAD_FILES, "False")
    assert not is_on(session, PAYLOAD_FILES)
    session.conf.set(PAYLOAD_FILES, "perhaps")
    with pytest.raises(ConfigError, match=r'not \'perhaps\'\.\nFix: spark_config={".*": "false"}'):
        is_on(session, PAYLOAD_FILES)


def large(value, state):
    state.set("n", state.get("n", 0) + 1)
    return {"n": state.get("n"), "text": value["text"]}


@pytest.mark.parametrize("off", [None, PIPELINED_STATE, PAYLOAD_FILES])
def test_settings_that_are_only_speed_change_no_result(make_app, off):
    app = make_app(spark_config={} if off is None else {off: "false"}, max_records_per_batch=40)
    records = [(f"k{n % 30}", {"text": "x" * 1000}) for n in range(100)]
    frame = app.dataframe(source=mp.ListSource(records, name="in"))

    frame.apply(large, stateful=True)
    found = app.run(collect=True)

    assert sorted(value["n"] for value in found) == sorted(n // 30 + 1 for n in range(100))


# --- Python processes -----------------------------------------------------------------------


def test_daemon_forks_workers_that_have_imported_everything(spark, session):
    assert spark.conf.get("spark.python.daemon.module") == LOCAL["spark.python.daemon.module"]

    def facts():
        import gc

        return gc.get_threshold()[0], "millpond.worker.stage" in sys.modules

    assert in_worker(session, facts) == "(50000, True)"


def test_fork_server_has_imported_what_sparks_processes_run(session):
    found = in_worker(session, lambda: "pyspark.sql.worker.lookup_data_sources" in sys.modules)

    assert found == "True"


def test_fork_server_knows_the_modules_that_spark_runs():
    assert all(map(importlib.util.find_spec, MODULES))


def test_fork_client_keeps_sparks_archives_off_the_path(session):
    path = in_worker(session, lambda: os.pathsep.join(sys.path))

    assert "pyspark.zip" not in path and "py4j-" not in path and "spark-core" not in path
    assert "pyspark.zip" in variable_of_jvm_path(session)


def variable_of_jvm_path(session):
    """What Spark puts on the path of its Python processes."""
    return jvm_of(session).org.apache.spark.api.python.PythonUtils.sparkPythonPath() + "pyspark.zip"


def test_class_archive_is_one_that_java_makes_and_takes(tmp_path):
    file = tmp_path / "classes.jsa"
    assert archive_file().name.startswith(f"spark-{pyspark.__version__}-")

    for options in (options_to_make(file), f'-XX:SharedArchiveFile="{file}" -Xshare:auto'):
        command = ["java", *options.replace('"', "").split(), "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "rror" not in done.stderr
    assert file.stat().st_size


def test_sockets_lie_in_a_folder_of_ours_with_names_that_fit(spark, session):
    folder = spark.conf.get("spark.python.unix.domain.socket.dir")

    names = json.loads(in_worker(session, lambda: json.dumps(os.listdir(folder))))

    assert names and all(len(name) <= 44 for name in names), names


WITHOUT_SHORTCUTS = """
import sys
import millpond as mp

def total(value, state):
    state.set("n", state.get("n", 0) + value)
    return state.get("n")

app = mp.Application(
    consumer_group="g", state_dir="state", topics_dir="topics", loglevel=None,
    spark_config={
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.driver.extraJavaOptions": "-Xshare:off",
        "spark.millpond.pipelinedState": "false",
        "spark.millpond.payloadFiles": "false",
    },
)
frame = app.dataframe(source=mp.ListSource([("a", n) for n in range(101)], "in"))
frame.apply(total, stateful=True)
print(app.run(collect=True)[-1])
"""


def test_fork_server_and_all_else_that_is_only_speed_can_be_turned_off(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SHORTCUTS],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.stdout.split() == ["5050"], done.stderr


def test_worker_process_closes_before_spark_ends_it(session, tmp_path):
    ended, asked = tmp_path / "ended", tmp_path / "asked"

    def prepares():
        from millpond.spark.internals.worker_process import before_the_end

        before_the_end(ended.touch, lambda number, frame: asked.touch())
        return os.getpid()

    def fails():
        raise ValueError

    worker = int(in_worker(session, prepares))
    wait_for(lambda: int(in_worker(session, os.getpid)) == worker)  # SIGHUP was reset
    os.kill(worker, signal.SIGHUP)
    wait_for(asked.exists)
    while not ended.exists():  # there may be other workers
        with pytest.raises(texts.SPARK_ERRORS):
            in_worker(session, fails)
        time.sleep(0.1)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- state ----------------------------------------------------------------------------------

BLOBS = [b"", b"x", bytes(range(256)) * 300]


@pytest.mark.parametrize(("pipelined", "kind"), [(True, "Pipelined"), (False, "OneByOne")])
def test_state_client_reads_what_it_has_written(session, tmp_path, pipelined, kind):
    blobs, expected = BLOBS, kind  # variables of a function are pickled by value

    class Writes(KeyGroupProcessor):
        def handle(self, scope, group, rows, store):
            from millpond.spark.internals import state_client

            assert type(store).__name__ == expected
            assert store.get(b"none") is None
            for number, blob in enumerate(blobs * 50):
                store.put(b"%d" % number, blob)
            store.delete(b"2")
            store.settle()
            loads = state_client.pickle.loads
            if expected == "Pipelined":  # the bytes are cut out of a row as Spark pickles it
                state_client.pickle.loads = None
            try:
                store.fetch([b"%d" % number for number in range(150)])
                found = [store.get(b"%d" % number) for number in range(150)]
            finally:
                state_client.pickle.loads = loads
            given = sum(one == blob for one, blob in zip(found, blobs * 50, strict=True))
            yield PackedRow(scope, group, given, b"", None)

    assert kinds_of(session, Writes(pipelined), tmp_path) == [149]


def test_state_client_falls_back_where_pyspark_has_another(session, tmp_path):
    class Tells(KeyGroupProcessor):
        def handle(self, scope, group, rows, store):
            from millpond.spark.internals.state_client import store_of

            class Other:
                def getValue(self, key):
                    return key

            other = store_of(Other())
            yield PackedRow(scope, group, int(other.get(b"x") == b"x"), b"", None)

    assert kinds_of(session, Tells(True), tmp_path) == [1]


def test_processor_gets_a_key_group_and_its_blobs(session, tmp_path):
    class Counts(KeyGroupProcessor):
        def handle(self, scope, group, rows, store):
            for _ in rows:
                store.put(b"n", (store.get(b"n") or b"") + b".")
            seen = len(store.get(b"n"))
            self.clear(store)
            assert store.get(b"n") is None
            yield PackedRow(scope, group, 100 * group + seen, b"", None)

    assert kinds_of(session, Counts(True), tmp_path, groups=2) == [1, 101]


def kinds_of(session, processor, folder, groups=1):
    """What a processor gives for one row a group, as the kinds of its rows."""
    for key, value in {**QUERY, **FORMATS, "spark.sql.shuffle.partitions": "1"}.items():
        session.conf.set(key, value)
    (folder / "in").mkdir()
    lines = [json.dumps({"scope": "s", "grp": n, "kind": 0}) for n in range(groups)]
    (folder / "in" / "rows.json").write_text("\n".join(lines))
    rows = session.readStream.schema(PACKED).json(str(folder / "in"))
    found = []
    writer = transformed(rows, processor).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(lambda done, n: found.extend(done.select("kind").collect())).start()
    query.awaitTermination()
    return sorted(row.kind for row in found)


def test_state_reader_counts_operators_from_the_last_one(session, written):
    path = written.folder.path

    stored = [stored_blobs(session, path, operator_of(layer, LAYERS), 9) for layer in (1, 2)]
    scopes = [{row.scope for row in frame.collect()} for frame in stored]

    assert scopes[0] == {"payments"}
    assert len(scopes[1]) == 1 and scopes[1] != {"payments"}


def test_state_reader_tells_what_batches_have_changed(session, written):
    changed = changed_blobs(session, written.folder.path, operator_of(1, LAYERS), 8, 9).collect()

    assert {row.batch_id for row in changed} == {8, 9}
    assert all(row.id and row.blob for row in changed)


def test_repartition_adds_a_batch_with_the_same_state(session, copied):
    for key, value in FORMATS.items():
        session.conf.set(key, value)
    before = blobs_at(session, copied, 0, 9).count()

    repartition(session, copied.folder.path, 3)

    assert copied.last() == 10
    assert copied.batch(10).partitions == 3
    assert copied.batch(10).offsets == copied.batch(9).offsets
    assert blobs_at(session, copied, 0, 10).count() == before


def test_stand_in_sources_take_the_place_of_the_programs(session, copied, tmp_path):
    for key, value in {**QUERY, **FORMATS}.items():
        session.conf.set(key, value)
    schema = "scope string, grp int, kind int, payload binary"
    nothing = session.createDataFrame([("", 0, 0, bytearray())], schema)
    layers, partitions = [frozenset()] * LAYERS, copied.batch(9).partitions

    run_edit(copied, nothing, layers, 1, partitions)

    assert copied.last() == 10
    assert copied.batch(10).offsets == copied.batch(9).offsets
    assert copied.is_by_hand(10)
    fresh = Checkpoint(local(tmp_path / "fresh"))
    begin = Batch(0, 0, 0, {"millpond": {"in": {"0": 7}}}, foreign=("of another source",))
    run_edit(fresh, nothing, layers, 1, 1, begin=begin)
    run_edit(fresh, nothing, layers, 1, 1)
    assert fresh.batch(1).offsets == {"in": {"0": 7}}
    assert len(fresh.batch(1).foreign) == 1
    write_shape(session, fresh, LAYERS, 1)
    assert list(fresh.problems(LAYERS)) == []


def test_read_limits_bound_a_batch(written):
    ends = [sum(written.batch(n).offsets["payments"].values()) for n in written.committed()]

    assert ends == [10 * (n + 1) for n in range(10)]


# --- a query --------------------------------------------------------------------------------


def each_batch(session, folder, handle):
    """Start a query with one batch."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "one.txt").write_text("one")
    writer = session.readStream.text(str(folder / "in")).writeStream.foreachBatch(handle)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def test_query_stop_is_no_failure(session, tmp_path):
    begun = threading.Event()

    def handle(batch, number):
        begun.set()
        sleep_until_stopped(batch, 60)

    query = each_batch(session, tmp_path, handle)
    assert begun.wait(60)
    time.sleep(0.5)  # until it sleeps
    query.stop()

    assert query.exception() is None


def test_query_stop_of_its_own_is_known_from_a_failure(session, tmp_path):
    def stops(batch, number):
        sleep_until_stopped(batch, 0)

    def fails(batch, number):
        raise HandlerError("ValueError")

    for handle, is_one in [(stops, True), (fails, False)]:
        query = each_batch(session, tmp_path, handle)
        with pytest.raises(texts.SPARK_ERRORS):
            query.awaitTermination(60)
        assert is_stop(query.exception()) is is_one


def test_query_status_tells_when_a_query_has_looked(session, tmp_path):
    (tmp_path / "in").mkdir()
    frame = session.readStream.text(str(tmp_path / "in"))
    writer = frame.writeStream.foreachBatch(lambda batch, number: None)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for(lambda: has_looked(query.status))
        assert not query.status["isDataAvailable"]
    finally:
        query.stop()


def test_query_status_ends_a_run_of_a_program_that_never_reads(make_app):
    app = make_app()
    app.dataframe(app.topic("nothing")).apply(large, stateful=True).print()

    app.run(timeout=1)

    assert sum(report.read for report in app.reports) == 0


# --- what is said ---------------------------------------------------------------------------


def test_error_texts_name_what_failed_in_a_worker(session):
    def raises_ours():
        from millpond.errors import TopicError

        raise TopicError("of a worker.\nFix: none.")

    def imports():
        import not_there_at_all  # noqa: F401

    said = [failure_of(session, function) for function in (raises_ours, imports)]

    assert texts.named_error(said[0])[0] == "TopicError"
    assert texts.named_error(said[0])[1].startswith("of a worker.\nFix: none.")
    assert texts.missing_module(said[1]) == "not_there_at_all"
    assert texts.python_part(said[1]).startswith("Traceback (most recent call last)")
    assert "\tat org.apache" not in said[1]


def test_error_texts_name_the_task_of_a_lost_worker(session):
    assert texts.lost_task(failure_of(session, lambda: os.kill(os.getpid(), signal.SIGKILL)))


def failure_of(session, function):
    with pytest.raises(texts.SPARK_ERRORS) as failed:
        in_worker(session, function)
    assert texts.is_of_spark(failed.value)
    return texts.said(failed.value)


def test_error_texts_tell_damage_from_another_version(session, copied):
    state = next(f for f in Path(copied.folder.path, "state/0/0").glob("10_*") if f.stem)
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedStateError, match=r"(?s)not as it was written.*Fix: millpond state"):
        read(session, copied)
    state.write_bytes(whole)
    assert read(session, copied)

    offsets = Path(copied.folder.path, "offsets", "9")
    offsets.write_text(offsets.read_text().replace("v1", "v9", 1))
    offsets.with_name(".9.crc").unlink()
    with pytest.raises(UnsupportedCheckpointError, match=r"\nFix: read it with the versions"):
        read(session, copied)


def read(session, checkpoint):
    with telling(checkpoint):
        return blobs_at(session, checkpoint, 0, 9).collect()


def test_error_texts_know_a_file_that_cannot_be_written(session):
    with pytest.raises(texts.SPARK_ERRORS) as failed:
        session.range(1).write.text("/proc/millpond")
    assert texts.file_in("file:/a/b: No space left on device") == "/a/b"
    assert texts.said(failed.value)


def test_py4j_logs_keep_settings_to_themselves(session, caplog):
    quiet_py4j()
    with caplog.at_level(logging.DEBUG, logger="py4j"):
        session.conf.set("spark.some.secret", "tr0ub4dor")

    assert "Command to send: c" in caplog.text
    assert "tr0ub4dor" not in caplog.text


def test_state_server_log_has_the_class_that_warns(session):
    jvm = jvm_of(session)
    log4j = jvm.org.apache.logging.log4j
    assert jvm.java.lang.Class.forName(SERVER)

    with without_missing_keys(session):
        assert str(log4j.LogManager.getLogger(SERVER).getLevel()) == "ERROR"


def test_hadoop_files_are_whole_or_not_there(session, tmp_path):
    files, path = HadoopFiles(session), f"file://{tmp_path}/folder/one"

    assert files.read(path) is None
    files.write(path, b"first")
    assert files.create(path, b"second") is False
    assert files.create(f"{path}-more", b"third") is True
    files.copy(path, f"{path}-copy")

    assert files.read(path) == files.read(f"{path}-copy") == b"first"
    assert [i.name for i in files.entries(f"file://{tmp_path}/folder") if "crc" not in i.name] == [
        "one",
        "one-copy",
        "one-more",
    ]
    files.delete(path)
    assert files.read(path) is None and files.entries(f"file://{tmp_path}/none") == []


# --- files ----------------------------------------------------------------------------------


def test_offset_log_says_what_a_batch_reads(written):
    text = written.planned_file(9).text()

    batch = offset_log.batch_in(9, text)

    assert text.partition("\n")[0] in offset_log.VERSIONS
    assert batch.offsets == {"payments": {"0": 100}}
    assert batch.partitions == 2 and batch.time_ms > 1_700_000_000_000
    assert batch.clock.seq == 10
    assert not offset_log.is_whole(9, text[: len(text) // 2])


def test_commit_log_says_which_batches_are_done(written):
    text = written.committed_file(9).text()

    assert text.partition("\n")[0] in commit_log.VERSIONS
    assert commit_log.is_whole(text) and not commit_log.is_whole(text[:-1])
    assert written.committed() == list(range(10))


def test_commit_log_without_a_batch_has_it_done_again(app, tmp_path):
    before = outputs(app)
    checkpoint = Checkpoint(local(tmp_path / "state" / "payments" / "generations" / "0001"))
    ends = checkpoint.batch(9).offsets
    checkpoint.take_back(9)

    produce(app, PAYMENTS[:1])
    app.run(drain=True)

    assert checkpoint.last() == 10 and checkpoint.batch(9).offsets == ends
    assert outputs(app)[: len(before)] == before  # delivered once


def test_state_files_are_named_by_the_batch_that_wrote_them(written):
    for layer in range(LAYERS):
        for partition in range(2):
            folder = written.folder / "state" / str(layer) / str(partition)
            names = [i.name for i in folder.entries() if not i.name.startswith(("_", ".crc"))]
            assert state_files.last_batch(names) == 9, names
            assert not any(map(state_files.is_temporary, names))


def test_operator_metadata_names_the_schema_of_the_state(written, tmp_path):
    for layer in range(LAYERS):
        home = written.folder / "state" / str(layer)
        (about,) = [i for i in operator_metadata.folder_of(home).entries() if i.name.isdigit()]
        text = (operator_metadata.folder_of(home) / about.name).text()

        assert text.partition("\n")[0] in operator_metadata.VERSIONS
        assert operator_metadata.is_whole(text)
        schemas = operator_metadata.schemas_in(text)
        assert schemas and all((home / "_stateSchema" / name).read() for name in schemas)
        there = operator_metadata.relocated(text, local(tmp_path))
        assert str(tmp_path) in there and written.folder.path not in there
    assert list(written.problems(LAYERS)) == []


def test_query_id_is_one_line_of_json(written):
    text = written.id_file.text()

    assert query_id.is_whole(text)
    assert json.loads(text).keys() == json.loads(query_id.new_id()).keys() == {"id"}


def test_checksums_of_hadoop_and_of_spark_fit_what_was_written(session, written, copied):
    files = [place for place, _ in written.folder.walk() if not place.name.endswith(".crc")]
    of_hadoop, of_spark = ([sums_of(file)[n].read() for file in files] for n in (0, 1))

    assert len(files) > 40 and all(of_hadoop)
    assert any(of_spark)
    assert written.unfit() == []
    for name in ("offsets/9", "commits/9", "metadata"):
        file = copied.folder / name
        Path(file.path).write_bytes(file.read() + b" ")
        assert not checksum_fits(file)
    state = next(file for file in files if sums_of(file)[1].read())
    there = copied.folder / state.path.removeprefix(written.folder.path + "/")
    sums_of(there)[0].delete()  # as in an object store, where Hadoop has none
    far = Location(HadoopFiles(session), f"file://{there.path}")
    assert checksum_fits(there) and checksum_fits(far)
    whole = there.read()
    Path(there.path).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert not checksum_fits(far)
    Path(there.path).write_bytes(whole[:-1])
    assert not checksum_fits(there)


def test_versions_of_what_spark_writes_are_known(written, copied):
    logs = {"offsets": offset_log.VERSIONS, "commits": commit_log.VERSIONS}
    for folder, known in logs.items():
        check_version(written.folder / folder / "9", known, (written.folder / folder / "9").text())

    file = copied.planned_file(9)
    file.write(file.read().replace(b"v1", b"v9", 1))
    file.beside(".9.crc").delete()
    with pytest.raises(UnsupportedCheckpointError, match=r"in the form v9(.|\n)*Fix: run the app"):
        copied.batch(9)
