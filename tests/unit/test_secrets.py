"""The user's settings of Spark on their way to Java."""

import logging
import os
import re
import shlex
import stat
from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond.spark.internals.py4j_logs import quiet_py4j
from millpond.spark.secrets import (
    DEFAULT_OPTIONS,
    EXTRA_OPTIONS,
    REDACTED,
    passed_by_file,
)

ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@pytest.mark.parametrize(
    "text",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.x.blob.core.windows.net",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "jdbc:postgresql://db/metastore?user=ann&password=x",
        "-Djavax.net.ssl.trustStorePassword=x",
        "https://x.blob.core.windows.net/box?sv=2022&sig=x",
        "basic.auth.user.info",
    ],
)
def test_spark_hides_what_is_a_secret_by_its_name_or_in_its_value(text):
    assert re.search(REDACTED, text)


@pytest.mark.parametrize(
    "text",
    [
        "spark.driver.memory",
        "spark.sql.shuffle.partitions",
        "millpond by-keyword",
        "/usr/share/java/jersey-client.jar:/opt/monkey/hadoop-auth.jar",
    ],
)
def test_spark_shows_what_is_no_secret(text):
    assert not re.search(REDACTED, text)


def test_settings_go_by_a_file_that_only_this_user_reads_and_that_is_gone_afterwards(monkeypatch):
    monkeypatch.setenv(ARGUMENTS, "--verbose pyspark-shell")
    with passed_by_file({"spark.a": "x ü"}) as options:
        words = shlex.split(os.environ[ARGUMENTS])
        file = Path(words[1])
        assert words[0] == "--properties-file"
        assert words[2:] == ["--load-spark-defaults", "--verbose", "pyspark-shell"]
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().endswith(r"=\u0078\u0020\u00fc" "\n")
        assert options == ""

    assert not file.parent.exists()
    assert os.environ[ARGUMENTS] == "--verbose pyspark-shell"


def test_options_of_java_go_by_files_that_java_reads(monkeypatch):
    monkeypatch.delenv(ARGUMENTS, raising=False)
    options = {DEFAULT_OPTIONS: "-Xss9m", EXTRA_OPTIONS: r"""-Da='b "c"' -Dpath=C:\\x  -Dempty="""}
    with passed_by_file(options) as ours_end_with:
        file = Path(shlex.split(os.environ[ARGUMENTS])[1])
        text = file.read_text().encode().decode("unicode_escape")
        key, _, named = text.splitlines()[-1].partition("=")
        assert key == EXTRA_OPTIONS
        assert Path(ours_end_with.strip('"@')).read_text() == '"-Xss9m"\n'
        lines = Path(named.strip('"@')).read_text().splitlines()
        assert lines == [r'"-Da=b \"c\""', r'"-Dpath=C:\\x"', '"-Dempty="']


def test_options_with_an_open_quotation_mark_are_refused_without_being_shown():
    refused = pytest.raises(ConfigError, match="cannot be divided(.|\n)*Fix: close each")
    with refused as raised, passed_by_file({EXTRA_OPTIONS: "-Dpassword='tr0ub4dor"}):
        pass

    assert "tr0ub4dor" not in str(raised.value)


@pytest.mark.parametrize("words", ["--properties-file {}", "--properties-file={}"])
def test_a_properties_file_of_the_users_counts_too(monkeypatch, tmp_path, words):
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.b y")
    arguments = words.format(mine) + " pyspark-shell"
    monkeypatch.setenv(ARGUMENTS, arguments)
    with passed_by_file({"spark.a": "x"}):
        words = shlex.split(os.environ[ARGUMENTS])
        assert words[2:] == ["pyspark-shell"]
        assert Path(words[1]).read_text().startswith("spark.b y\n\\u0073")

    assert os.environ[ARGUMENTS] == arguments
    mine.unlink()
    refused = pytest.raises(
        ConfigError, match="cannot be read(.|\n)*Fix: correct --properties-file"
    )
    with refused, passed_by_file({"spark.a": "x"}):
        pass


def test_without_settings_nothing_is_changed(monkeypatch):
    monkeypatch.delenv(ARGUMENTS, raising=False)
    with passed_by_file({}):
        assert ARGUMENTS not in os.environ


@pytest.mark.parametrize(("before", "after"), [(0, logging.WARNING), (10, 10)])
def test_py4j_logs_no_commands_unless_its_level_says_so(before, after):
    logger = logging.getLogger("py4j")
    level = logger.level
    try:
        logger.setLevel(before)
        quiet_py4j()
        assert logger.level == after
    finally:
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        ("Command to send: c\no7\nset\nsfs.key\nstr0ub4dor\ne\n", "c o7 set ..."),
        ("Command to send: i\njava.lang.String\nstr0ub4dor\ne\n", "i java.lang.String ..."),
        ("Command to send: A\ntr0ub4dor\n", "A ..."),
        ("Command to send: ", " ..."),
        ("Answer received: !ystr0ub4dor", "!ys ..."),
        ("Error while sending", "Error while sending"),
    ],
)
def test_py4j_logs_commands_without_arguments(caplog, logged, shown):
    quiet_py4j()
    with caplog.at_level(logging.DEBUG, "py4j"):
        logging.getLogger("py4j.clientserver").debug(logged)

    assert caplog.messages[0].endswith(shown)
    assert "tr0ub4dor" not in caplog.text
