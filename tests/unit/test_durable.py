"""What is new in a checkpoint is synced once, and what is not in its place yet is left alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from millpond import Application
from millpond.connectors.log import Log
from millpond.errors import ConfigError
from millpond.storage.directory import StateDirectory
from millpond.storage.durable import Disk, sync_all
from millpond.storage.manifest import Manifest


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


@pytest.fixture
def synced(monkeypatch):
    """The files and folders that are synced, in order."""
    found, real = [], os.fsync

    def fsync(file):
        found.append(Path(os.readlink(f"/proc/self/fd/{file}")))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_the_folders_above_a_group_are_synced_once(disk, checkpoint, tmp_path, synced):
    disk.sync()
    (checkpoint / "offsets" / "1").write_text("content")
    disk.sync()

    assert synced.count(tmp_path) == 1
    assert synced.count(tmp_path / "group") == 2


def test_all_of_a_folder_is_synced_with_its_name(checkpoint, tmp_path, synced):
    (checkpoint / "state" / "0" / "1").mkdir()  # a folder that is empty now

    sync_all(str(checkpoint))

    assert set(checkpoint.rglob("*")) | {checkpoint, checkpoint.parent, tmp_path} <= set(synced)


def test_a_generation_is_synced_before_the_manifest_names_it(checkpoint, tmp_path, synced):
    directory = StateDirectory(tmp_path, "group")

    directory.begin(Manifest(8, 1, generation=1))

    manifest = next(i for i, place in enumerate(synced) if place.name.startswith(".manifest"))
    files = {place for place in checkpoint.rglob("*") if place.is_file()}
    assert {*files, checkpoint, checkpoint.parent, tmp_path} <= set(synced[:manifest])


def test_a_topic_is_there_only_once_its_folders_have_their_names(tmp_path, synced):
    Log(tmp_path / "new" / "topics").create("clicks", 2)

    home = tmp_path / "new" / "topics" / "clicks"
    content = synced.index(home / "topic.json.writing")
    assert {home, *list(home.parents)[:3]} <= set(synced[:content])


def test_a_folder_that_is_made_again_is_synced_again(tmp_path, synced):
    topics = tmp_path / "topics"
    Log(topics).create("clicks", 1)
    shutil.rmtree(topics)  # the new one may have its inode
    synced.clear()

    Log(topics).create("clicks", 1)

    assert {topics / "clicks", topics, tmp_path} <= set(synced)


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="durability must be one of 'power', 'process'(.|\n)*Fix:"
    ):
        Application(durability="flood", loglevel=None)
