"""Versions and platforms are judged before anything is started or written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import millpond as mp
from millpond.errors import (
    ConfigError,
    EngineError,
    StateError,
    UnsupportedCheckpointError,
    ValueTypeError,
)
from millpond.spark import versions
from millpond.spark.query import engine_error
from millpond.spark.statestore import translated
from millpond.storage.checkpoint import Checkpoint
from millpond.storage.files import local, writing
from millpond.testing import frame, run_local

PROGRAM = """
import os, sys, resource
import millpond as mp
from millpond import admin
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
app = mp.Application(state_dir="state", topics_dir="topics", loglevel=None)
app.dataframe(source=mp.ListSource([1])).print()
try:
    app.run()
except mp.errors.MillpondError as error:
    print(type(error).__name__, error, sep=": ")
print(os.listdir("."))
"""


def run_program(folder, *arguments, **environment):
    """What a program prints that tries to run in an empty folder."""
    home = folder / "program"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=home,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def app(tmp_path):
    application = mp.Application(
        state_dir=tmp_path / "state", topics_dir=tmp_path / "topics", loglevel=None
    )
    application.dataframe(source=mp.ListSource([1])).print()
    yield application
    assert not (tmp_path / "state").exists()


# --- pyspark --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1", "4.3.0.dev1"])
def test_versions_of_4_3_are_supported(version):
    assert versions.judge(version, "it is") is None


@pytest.mark.parametrize("version", ["3.5.7", "4.0.1", "4.1.0", "4.2.1", "4.4.0", "5.0.0", "?"])
def test_other_versions_are_not_supported(version):
    assert versions.judge(version, "it is") == (
        f"it is {version}, and this version of Millpond runs with 4.3 only."
    )


@pytest.mark.parametrize("version", ["4.1.1", "4.2.1"])
def test_other_pyspark_is_refused_before_it_is_imported(tmp_path, version):
    fake = tmp_path / "site" / "pyspark"
    (fake / "core").mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('this was imported')")
    (fake / "version.py").write_text(f'__version__: str = "{version}"\n')

    said = run_program(tmp_path, PYTHONPATH=str(fake.parent))

    assert said == (
        f"EngineError: the installed pyspark is {version}, and this version of Millpond runs "
        "with 4.3 only.\nFix: pip install 'pyspark>=4.3,<4.4'\n[]\n"
    )


def test_client_of_spark_connect_alone_is_refused(tmp_path):
    fake = tmp_path / "site" / "pyspark"
    (fake / "sql" / "connect").mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('this was imported')")
    (fake / "version.py").write_text('__version__: str = "4.3.0"\n')

    said = run_program(tmp_path, PYTHONPATH=str(fake.parent))

    assert "the client of Spark Connect only.\nFix: pip install 'pyspark>=4.3,<4.4'" in said


# --- Spark Connect --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_REMOTE", "sc://localhost"),
        ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ("SPARK_API_MODE", "connect"),
    ],
)
def test_environment_of_spark_connect_is_refused(app, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=rf"{name}.*Spark Connect does not have.\nFix: unset"):
        app.run()


@pytest.mark.parametrize(
    ("master", "config"),
    [(None, {"spark.remote": "sc://h"}), (None, {"spark.api.mode": "connect"}), ("sc://h", {})],
)
def test_settings_of_spark_connect_are_refused(master, config):
    with pytest.raises(ConfigError, match=r"Spark Connect(.|\n)*Fix: .*master="):
        versions.check_connect(master, config)


def test_session_of_spark_connect_is_refused_where_it_is_given():
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    with pytest.raises(ConfigError, match=r"session of Spark Connect(.|\n)*Fix: SparkSession"):
        mp.Application(spark=remote)
    with pytest.raises(ConfigError, match=r"takes a SparkSession, got str\.\nFix:"):
        mp.Application(spark="local[2]")


# --- Python ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_python_of_another_environment_is_refused(app, tmp_path, monkeypatch, name):
    venv.create(tmp_path / "other")
    python = str(tmp_path / "other" / "bin" / "python")
    monkeypatch.setenv(name, python)

    with pytest.raises(EngineError) as refused:
        app.run()

    assert str(refused.value) == (
        f"{name} is set, so Spark would run Python functions with {python}, where millpond is not "
        f"installed.\nFix: unset {name}; this program runs with {sys.executable}."
    )


def test_python_that_is_none_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"/no/python, which does not start \(No such file"):
        versions.check_python("/no/python", "X is set", "unset X")
    with pytest.raises(EngineError, match=r"true, which is no Python|false, which is no Python"):
        versions.check_python("false", "X is set", "unset X")


def test_this_python_by_another_name_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    versions.check_python("python3", "X is set", "unset X")


# --- Java -----------------------------------------------------------------------------------


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java of our own, that tells a version when it is asked."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))

    def make(answer):
        place = home / "bin" / "java"
        place.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
        place.chmod(0o755)
        return home

    return make


def test_java_that_is_too_old_is_refused(app, java):
    home = java("")
    (home / "release").write_text('JAVA_VERSION="11.0.2"\n')

    with pytest.raises(EngineError, match=r"needs Java 17 or newer, and .*jdk/bin/java is Java 11"):
        app.run()


def test_java_without_a_release_file_is_asked(app, java):
    java('openjdk version "1.8.0_392"')

    with pytest.raises(EngineError, match=r"is Java 8\.\nFix: install one"):
        app.run()


def test_java_home_without_java_is_refused(app, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(EngineError, match=r"there is no bin/java in it\.\nFix: point JAVA_HOME"):
        app.run()


def test_machine_without_java_is_refused(app, tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"none was found\.\nFix: install one"):
        app.run()


def test_java_of_newer_versions_is_accepted(java):
    java('openjdk version "25.0.1" 2025-10-21')
    versions.check_java()


# --- the machine ----------------------------------------------------------------------------


def test_too_few_open_files_are_refused(tmp_path):
    said = run_program(tmp_path, "256")

    assert said == (
        "EngineError: this process may open 256 files, and Spark needs 1024 or more.\n"
        "Fix: ulimit -n 4096, in the shell that starts the program.\n[]\n"
    )


def test_spark_home_of_another_version_is_refused(app, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"there is no Spark in it\.\nFix: unset SPARK_HOME"):
        app.run()

    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.1.0.jar").write_text("")
    with pytest.raises(EngineError, match=r"is 4\.1\.0, and .* 4\.3 only\.\nFix: unset SPARK_HOME"):
        app.run()


def test_state_dir_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "state"
    file.write_text("")
    for place in (file, file / "inside"):
        app = mp.Application(state_dir=place, topics_dir=tmp_path / "topics", loglevel=None)
        app.dataframe(source=mp.ListSource([1])).print()
        with pytest.raises(StateError, match=r"cannot be written(.|\n)*Fix: choose a folder as"):
            app.run()


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder nobody can write")
def test_state_dir_that_cannot_be_written_is_refused(tmp_path):
    app = mp.Application(state_dir="/sys/kernel/millpond", topics_dir=tmp_path, loglevel=None)
    app.dataframe(source=mp.ListSource([1])).print()

    with pytest.raises(StateError, match=r"cannot be written: .*millpond(.|\n)*Fix: make the fol"):
        app.run()


def test_disk_without_room_is_reported():
    with (
        pytest.raises(StateError, match=r"No space left .* about x\.\nFix: make room on the disk"),
        writing("x"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError), writing("x"):
        raise FileNotFoundError(errno.ENOENT, "gone")


# --- the largest value ----------------------------------------------------------------------


def test_value_that_is_too_large_for_state_fails_its_record_only():
    def keep(value, state):
        state.set("file", b"x" * value)
        return value

    most = 256 * 2**20
    program = frame().apply(keep, stateful=True)

    result = run_local(program, [("a", 1), ("a", most + 1), ("b", most)], on_error="dead-letter")

    assert list(result) == [1, most]
    (letter,) = result.dead_letters
    assert "a value of 268,435,457 bytes is too large for state" in str(letter)


def test_value_that_is_too_large_for_state_is_refused():
    program = frame().apply(lambda value, state: state.set("x", ["y" * value]), stateful=True)

    with pytest.raises(mp.errors.StepError, match=r"is too large(.|\n)*Fix: keep it in parts"):
        run_local(program, [("a", 256 * 2**20)])
    assert issubclass(ValueTypeError, TypeError)


# --- what Spark says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[INVALID_LOG_VERSION.MAX_SUPPORTED_VERSION] UnsupportedLogVersion: maximum supported log "
        "version is v1, but encountered v2. The log file was produced by a newer version of Spark "
        "and cannot be read by this version. You need to upgrade.",
        "[CANNOT_LOAD_STATE_STORE.INVALID_CHANGE_LOG_READER_VERSION] The change log reader version "
        "cannot be 3.",
    ],
)
@pytest.mark.parametrize(
    ("reads", "fix"), [(engine_error, "run the application"), (translated, "read it")]
)
def test_spark_that_cannot_read_another_version_does_not_report_damage(tmp_path, text, reads, fix):
    error = reads(RuntimeError(text), Checkpoint(local(tmp_path)))

    assert type(error) is UnsupportedCheckpointError
    assert f"\nFix: {fix} with the versions of pyspark" in str(error)
    assert "repair" not in str(error)


def test_workers_without_millpond_are_named(tmp_path):
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'millpond'"

    error = engine_error(RuntimeError(text), Checkpoint(local(tmp_path)))

    assert "\nFix: set PYSPARK_PYTHON to a Python that has millpond, before Spark" in str(error)


def test_a_place_where_there_can_be_no_folder_is_refused(tmp_path):
    app = mp.Application(state_dir=tmp_path / ("x" * 300), loglevel=None)
    app.dataframe(source=[1]).apply(lambda value, state: value, stateful=True)

    with pytest.raises(StateError, match=r"cannot be written(.|\n)*Fix: choose another state_dir"):
        app.clear_state()
