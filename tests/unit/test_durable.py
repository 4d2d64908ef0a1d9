"""What is new in a checkpoint is synced once, and what is not in its place yet is left alone."""

from __future__ import annotations

import pytest

from millpond import Application
from millpond.durable import Disk
from millpond.errors import ConfigError


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "group" / "generations" / "0001"
    for name in ("offsets/0", "commits/0", "state/0/0/1_a.changelog"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("content")
    return folder


@pytest.fixture
def disk(tmp_path, checkpoint):
    disk = Disk(str(tmp_path / "group"), str(checkpoint))
    yield disk
    disk.close()


def test_a_file_is_synced_once(disk, checkpoint):
    assert disk.sync() == 3
    (checkpoint / "offsets" / "1").write_text("content")

    assert disk.sync() == 1
    assert disk.sync() == 0


def test_a_file_beside_the_checkpoint_is_synced_each_time(disk, tmp_path):
    journal = tmp_path / "group" / "journal-0001.json"
    journal.write_text("content")
    disk.sync()

    assert disk.sync(str(journal)) == 1


def test_a_file_that_is_still_written_is_not_synced(disk, checkpoint):
    disk.sync()
    (checkpoint / "offsets" / ".1.9b7f.tmp").write_text("con")

    assert disk.sync() == 0


def test_a_file_that_has_grown_in_its_place_is_synced_again(disk, checkpoint):
    table = checkpoint / "state" / "0" / "0" / "1-a.sst"
    table.write_text("con")
    disk.sync()
    table.write_text("content")

    assert disk.sync() == 1


def test_a_file_that_spark_has_removed_is_no_error(disk, checkpoint):
    assert disk.sync(str(checkpoint / "gone")) == 4


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="durability must be one of 'power', 'process'(.|\n)*Fix:"
    ):
        Application(durability="flood", loglevel=None)
