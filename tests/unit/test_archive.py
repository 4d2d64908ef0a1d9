"""Where the archive of classes is, and when it is used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from millpond.cli import warmup
from millpond.spark import session
from millpond.spark.internals import class_archive


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java of our own, whose release can change."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return home


def test_another_java_has_another_archive(java, tmp_path):
    first = class_archive.archive_file()
    assert first is not None and first.is_relative_to(tmp_path / "cache" / "millpond")
    assert class_archive.archive_file() == first

    (java / "release").write_text('JAVA_VERSION="17.0.2"')

    assert class_archive.archive_file() != first


def test_without_java_or_with_another_spark_there_is_none(java, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert class_archive.archive_file() is None
    monkeypatch.delenv("SPARK_HOME")
    (java / "bin" / "java").unlink()
    assert class_archive.archive_file() is None


def test_a_user_without_a_home_has_none(java, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(class_archive.Path, "home", _no_home)
    assert class_archive.archive_file() is None
    assert class_archive.options_for_use() == ""


def _no_home():
    raise RuntimeError


def test_the_archives_of_other_javas_stay_but_not_all(java, monkeypatch):
    target = class_archive.archive_file()
    target.parent.mkdir(parents=True)
    for age in range(5):
        other = target.with_name(f"other-{age}.jsa")
        other.write_text("")
        os.utime(other, (1000 - age, 1000 - age))
    monkeypatch.setattr(warmup.subprocess, "run", _made)

    assert warmup.warm_up() == target

    left = {file.name for file in target.parent.glob("*.jsa")}
    assert left == {target.name, "other-0.jsa", "other-1.jsa"}


def _made(command, **_):
    Path(command[-1]).write_text("made")
    return subprocess.CompletedProcess(command, 0, "", "")


def test_it_is_used_where_it_is_there_and_the_user_has_the_last_word(java):
    key = "spark.driver.extraJavaOptions"
    assert "SharedArchiveFile" not in session._java_options({}, lasts=False)

    file = class_archive.archive_file()
    file.parent.mkdir(parents=True)
    file.write_text("")

    options = session._java_options({}, lasts=False)
    assert "-XX:ReservedCodeCacheSize=240m" in options  # one compiler alone would have 48
    assert f'-XX:SharedArchiveFile="{file}"' in options
    making = {key: class_archive.options_to_make(file)}
    assert "SharedArchiveFile" not in session._java_options(making, lasts=False)


def test_a_java_that_may_not_know_an_option_is_not_given_it(java, monkeypatch):
    option = "launchMechanism=VFORK"
    monkeypatch.setattr(session.sys, "platform", "linux")
    for version, is_given in [("17.0.9", True), ("21", True), ("26-ea", False)]:
        (java / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        assert (option in session._java_options({}, lasts=False)) is is_given
    (java / "release").unlink()
    assert option not in session._java_options({}, lasts=False)
    (java / "release").write_text('JAVA_VERSION="17"')
    monkeypatch.setattr(session.sys, "platform", "darwin")
    assert option not in session._java_options({}, lasts=False)
