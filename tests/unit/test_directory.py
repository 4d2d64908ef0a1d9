import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millpond import Application
from millpond.errors import (
    ConfigError,
    DamagedStateError,
    GroupInUseError,
    StateError,
    UnsupportedCheckpointError,
)
from millpond.program.plan import make_plan
from millpond.storage.directory import StateDirectory
from millpond.storage.manifest import FORMAT, Manifest, read_manifest
from millpond.testing import frame


@pytest.fixture
def directory(tmp_path):
    return StateDirectory(tmp_path, "group")


def keep(value, state):
    return value


def plan(*names, folds=(), source="list"):
    sdf = frame(name=source)
    for name in names:
        sdf = sdf.group_by(name)
    if not folds:
        sdf = sdf.apply(keep, stateful=True)
    for name in folds:
        sdf = sdf.stateful_map(name, lambda key, value, state: (value, state))
    return make_plan(sdf._graph)


# --- the lock -------------------------------------------------------------------------------


def test_a_group_is_held_by_one_at_a_time(directory, tmp_path):
    other = StateDirectory(tmp_path, "group")

    with (
        directory.held("running"),
        pytest.raises(GroupInUseError, match=r"in use by process \d+(.|\n)*Fix:"),
        other.held("running"),
    ):
        pass

    with other.held("running"):
        pass


def test_groups_do_not_disturb_each_other(directory, tmp_path):
    with directory.held("running"), StateDirectory(tmp_path, "other").held("running"):
        pass


def test_the_lock_is_free_when_a_run_fails(directory):
    with pytest.raises(ValueError, match="boom"), directory.held("running"):
        raise ValueError("boom")

    with directory.held("running"):
        pass


_HOLD = """
import sys, time
from millpond.storage.directory import StateDirectory
with StateDirectory(sys.argv[1], "group").held("running"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_of_a_process_that_was_killed_is_not_in_the_way(directory, tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(GroupInUseError, match=f"process {holder.pid}"), directory.held("running"):
        pass

    holder.kill()
    holder.communicate()

    with directory.held("running"):
        pass


# --- the manifest ---------------------------------------------------------------------------


def test_a_group_that_never_ran_has_no_manifest(directory):
    assert directory.load() is None


def test_a_manifest_comes_back_as_it_was_saved(directory):
    manifest = Manifest(
        128, 4, 3, layers=2, stores={"in": ["default", "sum"]}, start_offsets={"in": {"0": 5}}
    )

    directory.save(manifest)

    assert directory.load() == manifest


def test_the_number_of_groups_is_fixed_when_state_is_born(directory):
    directory.admit(plan("a"), groups=128, partitions=4)

    again = directory.admit(plan("a"), groups=64, partitions=8)

    assert (again.groups, again.partitions) == (128, 4)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "groups": 1, "partitions": 1, "odd": 2}'],
)
def test_a_damaged_manifest_is_refused(directory, content):
    Path(directory.folder.path).mkdir(parents=True)
    Path(directory.folder.path, "manifest.json").write_text(content)

    with pytest.raises(StateError, match="Fix:"):
        directory.load()


def test_a_manifest_of_a_newer_version_is_refused(directory):
    directory.save(Manifest(1, 1, format=FORMAT + 1))

    with pytest.raises(StateError, match=f"format {FORMAT + 1}(.|\n)*Fix:"):
        directory.load()


def test_the_manifest_of_format_1_is_read(directory):
    Path(directory.folder.path).mkdir(parents=True)
    content = {
        "groups": 128, "partitions": 4, "generation": 2, "layers": 1,
        "stores": {"clicks": ["default"]}, "start_offsets": {"clicks": {"0": 7}}, "format": 1,
    }  # fmt: skip
    Path(directory.folder.path, "manifest.json").write_text(json.dumps(content))

    known = directory.load()
    assert known == Manifest(
        128, 4, 2, layers=1, stores={"clicks": ["default"]}, start_offsets={"clicks": {"0": 7}}
    )


# --- names are identity ---------------------------------------------------------------------


def test_a_renamed_group_by_is_refused(directory):
    commit(directory, directory.admit(plan("user"), 8, 1), 0, {})

    with pytest.raises(
        StateError, match="list/user/default(.|\n)*list/customer/default(.|\n)*Fix:"
    ):
        directory.admit(plan("customer"), 8, 1)


def test_a_renamed_stateful_map_is_refused(directory):
    commit(directory, directory.admit(plan(folds=["sum"]), 8, 1), 0, {})

    with pytest.raises(StateError, match="list/sum(.|\n)*list/total"):
        directory.admit(plan(folds=["total"]), 8, 1)


def test_a_renamed_topic_is_refused(directory):
    commit(directory, directory.admit(plan(source="clicks"), 8, 1), 0, {})

    with pytest.raises(StateError, match="Was something renamed"):
        directory.admit(plan(source="views"), 8, 1)


def test_a_refused_program_leaves_the_manifest_as_it_was(directory):
    commit(directory, directory.admit(plan("user"), 8, 1), 0, {})
    before = directory.load()

    with pytest.raises(StateError):
        directory.admit(plan("customer"), 8, 1)

    assert directory.load() == before


def test_a_step_may_be_added_or_removed(directory):
    commit(directory, directory.admit(plan(folds=["one"]), 8, 1), 0, {})
    commit(directory, directory.admit(plan(folds=["one", "two"]), 8, 1), 1, {})
    directory.admit(plan(folds=["two"]), 8, 1)

    manifest = directory.load()
    assert manifest.stores == {"list": ["one", "two"]}
    assert manifest.at(0).stores == {"list": ["one"]}
    assert manifest.at(1).stores == manifest.stores
    assert manifest.at(1).active == {"list": ["one", "two"]}
    assert manifest.at(2).active == manifest.active == {"list": ["two"]}
    assert manifest.at(None).stores == {}


def test_what_a_program_said_that_committed_nothing_is_forgotten(directory):
    commit(directory, directory.admit(plan(folds=["one"]), 8, 1), 0, {})
    directory.admit(plan(folds=["one", "two"]), 8, 1)

    directory.admit(plan(folds=["one"]), 8, 1)

    assert directory.load().stores == {"list": ["one"]}
    assert directory.load().earlier == []


def test_a_name_may_change_while_nothing_was_committed(directory):
    directory.admit(plan("user"), 8, 1)

    directory.admit(plan("customer"), 8, 1)

    assert directory.load().stores == {"list/customer": ["default"]}


# --- a change that is accepted ----------------------------------------------------------------


def test_a_change_is_accepted_once_and_another_one_is_refused_again(directory):
    commit(directory, directory.admit(plan(folds=["one"]), 8, 1), 0, {})

    verdicts = directory.accept(plan(folds=["two"]))

    assert [(v.name, v.says) for v in verdicts] == [("list/two", "new"), ("list/one", "orphaned")]
    with pytest.raises(StateError, match="list/three"):
        directory.admit(plan(folds=["three"]), 8, 1)
    directory.admit(plan(folds=["two"]), 8, 1)
    commit(directory, directory.admit(plan(folds=["two"]), 8, 1), 1, {})
    with pytest.raises(StateError, match="list/three"):
        directory.admit(plan(folds=["three"]), 8, 1)
    assert [event.what for event in directory.load().audit] == ["accept"]


def test_a_change_is_accepted_by_the_application_that_makes_it(directory):
    commit(directory, directory.admit(plan(folds=["one"]), 8, 1), 0, {})

    manifest = directory.admit(plan(folds=["two"]), 8, 1, accept=True)

    assert manifest.stores == {"list": ["one", "two"]}
    assert manifest.active == {"list": ["two"]}


def test_accepting_a_change_of_a_group_that_never_ran_changes_nothing(directory):
    assert [verdict.says for verdict in directory.accept(plan())] == ["new"]
    assert directory.load() is None


def test_an_era_of_an_older_version_does_not_know_which_stores_were_used():
    content = Manifest(8, 1, stores={"list": ["one"]}, active={}).content()
    content["earlier"] = [{"until": 3, "stores": {"list": ["one"]}}]

    manifest = read_manifest(content, "manifest.json")

    assert manifest.at(3).active is None
    assert manifest.at(3).stores == {"list": ["one"]}


# --- offsets and clearing -------------------------------------------------------------------


def commit(directory, manifest, batch, offsets):
    """What Spark leaves after a committed batch."""
    checkpoint = Path(directory.generation(manifest).path)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({"millpond": offsets})]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id": "one"}')
    for layer in range(manifest.layers):
        operator = checkpoint / "state" / str(layer) / "_metadata" / "v2"
        operator.mkdir(parents=True, exist_ok=True)
        (operator / "0").write_text("v2\n{}")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("offsets/0", 'v2\n{"batchWatermarkMs":0}\n{}'),
        ("commits/0", "v3\n{}"),
        ("state/0/_metadata/v2/0", "v3\n{}"),
        ("state/0/_metadata/v3/0", "v3\n{}"),
    ],
)
def test_checkpoint_of_another_version_of_spark_is_not_damaged(directory, file, content):
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 3}})
    checkpoint = Path(directory.generation(manifest).path)
    if "v3/" in file:
        shutil.move(checkpoint / "state/0/_metadata/v2", checkpoint / "state/0/_metadata/v3")
    (checkpoint / file).write_text(content)

    with pytest.raises(
        UnsupportedCheckpointError, match=r"in the form v[23], which Spark 4\.3"
    ) as e:
        directory.check(plan())

    assert not isinstance(e.value, DamagedStateError)
    assert "repair" not in str(e.value)
    assert "\nFix: run the application with the versions of pyspark and millpond" in str(e.value)


def test_version_that_is_torn_is_damage(directory):
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 3}})
    offsets = Path(directory.generation(manifest).path, "offsets", "0")
    offsets.write_text(offsets.read_text().replace("v1", "v2"))
    offsets.with_name(".0.crc").write_bytes(b"crc\x00\x00\x00\x02\x00\x00\x00\x00\x00")

    with pytest.raises(DamagedStateError, match="its checksum does not fit"):
        directory.check(plan())


def test_recover_auto_leaves_a_checkpoint_of_another_version_alone(tmp_path):
    app = Application(consumer_group="group", state_dir=tmp_path, loglevel=None, recover="auto")
    app.dataframe(source=[1]).apply(keep, stateful=True)
    directory = StateDirectory(tmp_path, "group")
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 3}})
    generation = Path(directory.generation(manifest).path)
    (generation / "offsets" / "0").write_text("v2\n{}\n{}")
    before = {path: path.read_bytes() for path in generation.rglob("*") if path.is_file()}

    with pytest.raises(UnsupportedCheckpointError):
        app.run()

    assert {path: path.read_bytes() for path in generation.rglob("*") if path.is_file()} == before
    assert directory.generations() == [1]


def test_offsets_are_those_of_the_last_committed_batch(directory):
    manifest = directory.admit(plan(), 8, 1)
    for batch in range(12):
        commit(directory, manifest, batch, {"list": {"0": batch * 10}})
    commit(directory, manifest, 12, {"list": {"0": 999}})
    (directory.generation(manifest) / "commits" / "12").delete()

    assert directory.committed_offsets(manifest) == {"list": {"0": 110}}


def test_clearing_forgets_state_and_keeps_offsets(directory):
    manifest = directory.admit(plan("user"), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 7}})
    old = directory.generation(manifest)
    Path(directory.sources.path, "list").mkdir(parents=True)

    directory.clear(reset_offsets=False)

    cleared = directory.load()
    assert not old.exists()
    assert cleared.generation == 2
    assert cleared.start_offsets == {"list": {"0": 7}}
    assert cleared.stores == {}
    assert (directory.sources / "list").exists()
    directory.admit(plan("customer"), 8, 1)  # another name is no rename any more


def test_clearing_twice_keeps_the_offsets(directory):
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 7}})
    directory.clear(reset_offsets=False)
    directory.clear(reset_offsets=False)

    assert directory.load().start_offsets == {"list": {"0": 7}}


def test_clearing_with_reset_starts_over(directory):
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 7}})
    Path(directory.sources.path, "list").mkdir(parents=True)

    directory.clear(reset_offsets=True)

    assert directory.load().start_offsets == {}
    assert not directory.sources.exists()


def test_the_last_batch_is_taken_back_unless_the_next_one_is_planned(directory):
    manifest = Manifest(8, 2)
    for batch in (0, 1):
        commit(directory, manifest, batch, {"clicks": {"0": 10 * (batch + 1)}})

    directory.take_back(manifest)
    assert directory.committed_offsets(manifest) == {"clicks": {"0": 10}}

    directory.take_back(manifest)  # batch 1 is planned: it knows what batch 0 saw
    assert directory.committed_offsets(manifest) == {"clicks": {"0": 10}}


def test_temporary_files_are_removed_before_the_first_batch_is_planned(directory):
    manifest = directory.admit(plan(), 8, 1)
    folder = Path(directory.generation(manifest).path)
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "one"}')
    for name in (".0.9b7f.tmp", "..0.9b7f.tmp.crc"):
        (folder / "offsets" / name).write_text("cut o")

    directory.admit(plan(), 8, 1)

    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["metadata"]


def test_a_batch_that_is_planned_keeps_its_files(directory):
    manifest = directory.admit(plan(), 8, 1)
    commit(directory, manifest, 0, {"list": {"0": 7}})
    (directory.generation(manifest) / "commits" / "0").delete()
    before = {place.path for place, _ in directory.generation(manifest).walk()}

    directory.admit(plan(), 8, 1)

    assert {place.path for place, _ in directory.generation(manifest).walk()} == before


def test_clearing_a_group_that_never_ran_does_nothing(directory):
    directory.clear(reset_offsets=True)

    assert directory.load() is None


def test_clearing_touches_nothing_outside_the_group(directory, tmp_path):
    other = StateDirectory(tmp_path, "other")
    other_manifest = other.admit(plan(), 8, 1)
    commit(other, other_manifest, 0, {"list": {"0": 1}})
    before = sorted(str(file) for file in Path(other.folder.path).rglob("*"))
    directory.admit(plan(), 8, 1)

    directory.clear(reset_offsets=True)

    assert sorted(str(file) for file in Path(other.folder.path).rglob("*")) == before


def test_clear_state_is_refused_while_the_group_is_in_use(tmp_path):
    app = Application(
        state_dir=tmp_path, topics_dir=tmp_path, consumer_group="group", loglevel=None
    )

    with (
        StateDirectory(tmp_path, "group").held("running"),
        pytest.raises(GroupInUseError, match="clear_state"),
    ):
        app.clear_state()


# --- places ---------------------------------------------------------------------------------


def test_other_file_systems_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs Spark(.|\n)*Fix:"):
        StateDirectory("s3a://bucket/state", "group")


def test_a_file_address_is_a_path(tmp_path):
    assert StateDirectory(f"file://{tmp_path}", "group").folder.path == str(tmp_path / "group")
