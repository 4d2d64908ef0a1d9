"""Settings that nobody else may read, on their way to Java."""

import logging
import os
import stat
from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond.spark.secrets import divide, passed_by_file, quiet_py4j


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
    ],
)
def test_settings_with_secrets_are_told_apart(name):
    open_ones, hidden = divide({name: "x", "spark.ui.enabled": "true"})

    assert (open_ones, hidden) == ({"spark.ui.enabled": "true"}, {name: "x"})


def test_secrets_go_by_a_file_that_only_this_user_reads_and_that_is_gone_afterwards(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    with passed_by_file({"spark.secret": "x"}):
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        file = Path(words[1].strip('"'))
        assert words[0] == "--properties-file" and words[-2:] == ["--verbose", "pyspark-shell"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


def test_a_second_properties_file_is_refused(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file mine pyspark-shell")
    refused = pytest.raises(ConfigError, match="'spark.secret'(.|\n)*Fix: put the secret into that")
    with refused, passed_by_file({"spark.secret": "x"}):
        pass


def test_without_secrets_nothing_is_changed(monkeypatch):
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    with passed_by_file({}):
        assert "PYSPARK_SUBMIT_ARGS" not in os.environ


@pytest.mark.parametrize(("before", "after"), [(0, logging.WARNING), (10, 10)])
def test_py4j_logs_no_commands_unless_it_is_told_to(before, after):
    logger = logging.getLogger("py4j")
    level = logger.level
    try:
        logger.setLevel(before)
        quiet_py4j()
        assert logger.level == after
    finally:
        logger.setLevel(level)
