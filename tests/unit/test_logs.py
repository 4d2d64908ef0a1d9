"""Where Spark logs, and what becomes of what functions log."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from millpond.spark.logs import log_options


def settings_of(options):
    return open(options.partition('"')[2].rstrip('"')).read()  # noqa: PTH123, SIM115


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "LOG4J_CONFIGURATION_FILE", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_spark_logs_to_the_folder_of_a_group_that_is_held(tmp_path):
    (tmp_path / "lock").touch()

    settings = settings_of(log_options({}, tmp_path))

    assert f"fileName = {tmp_path}/logs/spark.log\n" in settings
    assert "rootLogger.level = warn\n" in settings
    assert not (tmp_path / "logs").exists()  # it comes with its first line


@pytest.mark.parametrize("place", ["", "s3a://bucket/state/group"])
def test_spark_logs_to_a_temporary_folder_elsewhere(place):
    assert f"{tempfile.gettempdir()}/millpond-" in settings_of(log_options({}, place))


def test_folder_of_any_name_is_written_as_log4j_reads_it(tmp_path):
    folder = tmp_path / "a ${b}"
    folder.mkdir()
    (folder / "lock").touch()

    assert f"{tmp_path}/a $${{b}}/logs/spark.log" in settings_of(log_options({}, folder))


@pytest.mark.parametrize("key", ["extraJavaOptions", "defaultJavaOptions"])
def test_log4j_settings_of_the_user_stay(tmp_path, key):
    mine = {f"spark.driver.{key}": "-Xss9m -Dlog4j2.configurationFile=/etc/log4j2.xml"}
    assert log_options(mine, tmp_path) == ""


def test_log4j_settings_of_the_environment_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert log_options({}, "") != ""
    (tmp_path / "log4j2.properties").touch()
    assert log_options({}, "") == ""
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("LOG4J_CONFIGURATION_FILE", "/etc/log4j2.xml")
    assert log_options({}, "") == ""


WORKER = """
import logging
from millpond.spark.logs import log_in_worker
{before}
for _ in range(2):
    log_in_worker({level!r})
logging.info("info")
logging.getLogger("shop").warning("price is negative")
"""


@pytest.mark.parametrize(
    ("level", "before", "expected"),
    [
        ("INFO", "", ["INFO root: info", "WARNING shop: price is negative"]),
        ("WARNING", "", ["WARNING shop: price is negative"]),
        (None, "", ["WARNING:shop:price is negative"]),
        ("INFO", "logging.basicConfig(format='mine: %(message)s')", ["mine: price is negative"]),
    ],
)
def test_what_a_function_logs_in_a_worker_is_shown_once(level, before, expected):
    code = WORKER.format(level=level, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert [line.partition("] ")[2] or line for line in done.stderr.splitlines()] == expected


def test_applications_that_share_a_worker_each_have_their_level():
    first = "log_in_worker('ERROR')"
    code = WORKER.format(level="INFO", before=first)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    lines = [line.partition("] ")[2] for line in done.stderr.splitlines()]
    assert lines == ["INFO root: info", "WARNING shop: price is negative"]
