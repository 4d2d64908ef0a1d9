"""Plans of dangerous changes: pure; and what a dry run prints is what is then done."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond import admin
from millpond.cli.main import command
from millpond.errors import ConfigError, DamagedStateError, StateError
from millpond.operations.backfill import check_topics, plan_backfill
from millpond.operations.basis import Basis
from millpond.operations.drop import places_of, plan_drop
from millpond.operations.repair import Findings, plan_repair
from millpond.operations.rescale import plan_rescale
from millpond.operations.restore import plan_restore
from millpond.operations.rewind import check_rewind, plan_rewind
from millpond.operations.whole_batch import Whole
from millpond.storage.audit import Rename
from millpond.storage.checkpoint import Batch, Problem
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal
from millpond.storage.manifest import BegunBackfill, Manifest

TORN = 'v1\n{"nextBatch'
BASIS = Basis(generation=2, batch=4, removes=(1,))


def source(seq):
    clock = {"seq": seq, "now": 1000 + seq, "marks": {}, "seen": {}, "arrived": {}}
    return {"millpond": {"clicks": {"0": 10 * seq}}, "clock": clock}


def batch(number, **more):
    return Batch(number, 5_000 + number, 2, {**source(number + 1), **more})


# --- rewind ---------------------------------------------------------------------------------


def test_the_plan_of_a_rewind_counts_what_is_replayed():
    batches = [batch(2), batch(3), batch(4)]

    plan = plan_rewind(Manifest(8, 2), batches, {}, "keep", BASIS)

    assert (plan.batch, plan.batches, plan.records, plan.replay_until) == (2, 2, 20, 5)
    assert plan.changes
    assert str(plan) == (
        "state and input go back to batch 2; 2 batches with 20 records are replayed, what came out "
        "of them is not written again, even if something else comes out now"
    )


def test_a_batch_that_was_begun_and_not_committed_is_not_counted():
    plan = plan_rewind(Manifest(8, 2), [batch(4), batch(5)], {}, "keep", BASIS)

    assert (plan.batches, plan.changes) == (0, False)


def test_batches_that_wait_since_an_earlier_rewind_are_replayed_after_the_others():
    waiting = {6: source(6), 7: source(7)}

    plan = plan_rewind(Manifest(8, 2), [batch(3), batch(4)], waiting, "again", BASIS)

    assert (plan.batches, plan.records, plan.replay_until) == (3, 30, 7)
    assert "their outputs are written again: readers see them twice" in str(plan)


def test_a_rewind_takes_edits_renames_and_partitions_back():
    manifest = Manifest(8, 4)
    manifest.audit = [
        Rename(old="a", new="b", scopes=("a", "b"), changed=1, batch=2),
        Rename(old="b", new="c", scopes=("b", "c"), changed=1, batch=4),
    ]

    plan = plan_rewind(manifest, [batch(3), batch(4, edits=1)], {}, "keep", BASIS)

    assert plan.renames == (("b", "c"),)
    assert (plan.lost_edits, plan.partitions) == (1, (4, 2))
    assert str(plan).endswith(
        "; 1 manual change(s) after it are taken back; the state is in 2 parts again, not in 4"
    )


def test_a_rewind_is_refused_where_nobody_could_go_on_from_there():
    foreign = Batch(4, 0, 2, {}, ("offset",))

    with pytest.raises(StateError, match=r"Spark's own sources(.|\n)*Fix: outputs=\"again\""):
        check_rewind(Manifest(8, 2), [batch(3), foreign], "keep")
    with pytest.raises(StateError, match=r"batch 3 is of a backfill from files(.|\n)*Fix:"):
        check_rewind(Manifest(8, 2, live_from=4), [batch(3)], "keep")


# --- repair ---------------------------------------------------------------------------------


def findings(whole, *, delivered=-1, **claims):
    manifest = Manifest(8, 2, **claims)
    damaged = [Problem("offsets/4", "it is gone")]
    return Findings(manifest, damaged, Journal(delivered), whole, 5, None, "0002")


def whole(number, seq, *, known, edits=()):
    batches = {seq: source(seq) for seq in known}
    return Whole(Manifest(8, 2), Journal(-1, batches), number, seq, None, edits)


def test_the_plan_of_a_repair_says_what_is_replayed():
    found = findings(whole(2, 3, known=(4, 5)))

    plan = plan_repair(found, BASIS, lose_edits=True)

    assert (plan.batch, plan.batches, plan.lost_edits) == (2, 2, 0)
    assert str(plan) == (
        "damaged: offsets/4; the state is as of batch 2, 2 batch(es) are replayed and their "
        "outputs not written again"
    )


def test_the_plan_of_a_repair_of_whole_state_does_nothing():
    found = Findings(Manifest(8, 2), [], Journal(), None, 0, 4, "0002")

    plan = plan_repair(found, BASIS, lose_edits=False)

    assert (plan.batch, plan.problems) == (4, [])
    assert str(plan) == "nothing is damaged that the next start needs"


def test_a_repair_is_refused_where_a_batch_is_not_known_any_more():
    with pytest.raises(StateError, match="only batch 2 of 0002 is whole, and what 1 of the later"):
        plan_repair(findings(whole(2, 3, known=(5,))), BASIS, lose_edits=True)
    with pytest.raises(StateError, match="no batch of 0002 is whole(.|\n)*Fix:"):
        plan_repair(findings(whole(None, 0, known=())), BASIS, lose_edits=True)
    with pytest.raises(StateError, match="its first batches are of a backfill of files(.|\n)*Fix:"):
        plan_repair(findings(whole(None, 0, known=()), live_from=2), BASIS, lose_edits=True)


def test_a_repair_loses_manual_changes_only_where_that_is_asked_for():
    found = findings(whole(2, 3, known=(4, 5), edits=(4,)))

    with pytest.raises(DamagedStateError, match=r"1 manual change\(s\)(.|\n)*\(batches \[4\]\)"):
        plan_repair(found, BASIS, lose_edits=False)
    plan = plan_repair(found, BASIS, lose_edits=True)

    assert plan.lost_edits == 1
    assert str(plan).endswith("1 manual change(s) after it are lost: see the audit")


# --- rescale, restore, drop -----------------------------------------------------------------


def test_the_plan_of_a_rescale_has_both_numbers_of_parts():
    plan = plan_rescale(Manifest(8, 2), 4, BASIS)

    assert (plan.partitions_before, plan.partitions) == (2, 4)
    assert str(plan).startswith("the state, now in 2 part(s), is divided into 4: its 8 key groups")


@pytest.mark.parametrize("partitions", [0, 9, "4", True])
def test_a_rescale_to_what_is_no_number_of_parts_is_refused(partitions):
    with pytest.raises(ConfigError, match="must be 1 to 8(.|\n)*Fix:"):
        plan_rescale(Manifest(8, 2), partitions, BASIS)


def test_a_rescale_to_the_same_number_is_refused():
    with pytest.raises(ConfigError, match=r"2 partition\(s\) already(.|\n)*Fix:"):
        plan_rescale(Manifest(8, 2), 2, BASIS)


def test_the_plan_of_a_restore_names_the_batch():
    assert str(plan_restore("g", "/backup", Manifest(8, 2), 3, BASIS)) == (
        "The state becomes that of batch 3 of the backup; records after it give their outputs again"
    )
    with pytest.raises(StateError, match="no backup of group 'g' in /backup(.|\n)*Fix:"):
        plan_restore("g", "/backup", None, None, BASIS)
    with pytest.raises(StateError, match="the backup in /backup holds no batch(.|\n)*Fix:"):
        plan_restore("g", "/backup", Manifest(8, 2), None, BASIS)


def test_the_plan_of_a_drop_says_what_the_program_still_uses():
    manifest = Manifest(8, 2, stores={"clicks": ["users", "total"]})
    places = places_of(manifest, ["clicks"])

    plan = plan_drop(manifest, places, {"clicks": ["total"]}, (7, 3), BASIS)

    assert str(plan) == (
        "clicks/total, clicks/users: 7 value(s) of 3 key(s) are dropped; the program uses "
        "clicks/total, which then starts empty; all other state stays"
    )
    with pytest.raises(ConfigError, match="no store(.|\n)*Fix: name one of clicks/users"):
        places_of(manifest, [])


# --- backfill -------------------------------------------------------------------------------


def backfill(begun=None, *, has_state=False, files=(), until=None, outputs=False):
    return plan_backfill(
        "g",
        ["clicks", "orders"],
        begun,
        has_state=has_state,
        files=files,
        until=until or {},
        live=lambda: {name: {"0": 7} for name in files},
        outputs=outputs,
    )


def test_the_plan_of_a_backfill_says_what_is_read_and_where_the_live_run_begins():
    plan = backfill(files=["clicks"], until={"orders": {0: 100}})

    assert str(plan) == (
        "clicks is read from files, and live from offset 0: 7, orders is read up to offset 0: 100; "
        "only state and dead letters are written"
    )
    assert plan.begun == BegunBackfill({"orders": {"0": 100}}, {"clicks": {"0": 7}}, False)


def test_a_backfill_that_was_interrupted_goes_on_as_it_was_begun():
    begun = BegunBackfill({"orders": {"0": 100}}, {}, True)

    plan = backfill(begun, has_state=True)

    assert plan.begun == begun
    assert str(plan) == (
        "an interrupted backfill goes on: clicks is read up to where it ends, orders is read up to "
        "offset 0: 100; what comes out is written"
    )
    with pytest.raises(StateError, match="begun with files for no topic(.|\n)*Fix: give the same"):
        backfill(begun, has_state=True, files=["clicks"])
    with pytest.raises(StateError, match="begun that reads up to(.|\n)*Fix: give the same until="):
        backfill(begun, has_state=True, until={"orders": {0: 50}})


def test_a_backfill_of_a_group_with_state_is_refused():
    with pytest.raises(StateError, match="has state already(.|\n)*Fix:"):
        backfill(has_state=True)
    with pytest.raises(ConfigError, match="not 'payments'(.|\n)*Fix: name one"):
        check_topics(["clicks"], ["payments"])


# --- dry runs -------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path):
    """A group without state, so without Spark, of which batches 0 to 4 are done."""
    directory = StateDirectory(tmp_path, "g")
    manifest = Manifest(8, 2, id="one", stream="g/one/1")
    directory.save(manifest)
    home = Path(directory.generation(manifest).path)
    for name in ("offsets", "commits"):
        (home / name).mkdir(parents=True)
    (home / "metadata").write_text('{"id": "one"}')
    for number in range(5):
        conf = {"batchTimestampMs": 5, "conf": {"spark.sql.shuffle.partitions": "2"}}
        lines = ["v1", json.dumps(conf), json.dumps(source(number + 1))]
        (home / "offsets" / str(number)).write_text("\n".join(lines))
        (home / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    batches = {seq: source(seq) for seq in range(1, 6)}
    directory.journal_file(manifest).write(Journal(3, batches).encode())
    return directory


def files_of(directory):
    home = Path(directory.folder.path)
    found = (path for path in home.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(home)): path.read_bytes() for path in found}


def said_by(directory, *words):
    folder = str(Path(directory.folder.path).parent)
    done = CliRunner().invoke(command, ["state", words[0], folder, *words[1:]])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_a_dry_run_of_a_rewind_prints_what_the_rewind_then_does(directory):
    before = files_of(directory)

    planned = said_by(directory, "rewind", "--to", "2", "--dry-run")
    assert files_of(directory) == before
    done = said_by(directory, "rewind", "--to", "2", "--yes")

    assert planned.startswith("state and input go back to batch 2; 2 batches with 20 records")
    assert done == planned + "Rewound to batch 2.\n"
    manifest = directory.load()
    assert directory.checkpoint(manifest).last() == 2
    assert manifest.replay_until == 5


def test_a_dry_run_says_which_generations_go(directory):
    said_by(directory, "rewind", "--to", "3", "--yes")

    planned = said_by(directory, "rewind", "--to", "2", "--dry-run")
    as_json = json.loads(said_by(directory, "rewind", "--to", "2", "--dry-run", "--json"))
    said_by(directory, "rewind", "--to", "2", "--yes")

    assert planned.endswith("Removed with it: generation 1.\n")
    assert as_json["basis"] == {"generation": 2, "batch": 3, "removes": [1]}
    assert directory.generations() == [2, 3]


def test_a_dry_run_of_a_repair_prints_what_the_repair_then_does(directory):
    home = Path(directory.generation(directory.load()).path)
    (home / "commits" / "4").write_text(TORN)
    (Path(directory.folder.path) / "manifest.json").write_text("to")
    before = files_of(directory)

    planned = said_by(directory, "repair", "--dry-run")
    assert files_of(directory) == before
    done = said_by(directory, "repair")

    assert "the state is as of batch 3, 1 batch(es) are replayed" in planned
    assert done == planned
    assert directory.checkpoint(directory.load()).last() == 3


def test_a_plan_is_applied_only_to_the_state_that_it_was_made_from(directory, tmp_path):
    with admin.open(tmp_path, group="g") as state:
        plan = state.rewind(2, dry_run=True)
        state.rewind(3)
        now = files_of(directory)

        with pytest.raises(
            StateError, match=r"generation 1 with batch 4(.|\n)*2 with batch 3(.|\n)*Fix"
        ):
            state.apply(plan)

    assert files_of(directory) == now


def test_a_repair_that_is_refused_leaves_no_copy(directory, tmp_path):
    home = Path(directory.generation(directory.load()).path)
    for number in range(5):
        (home / "commits" / str(number)).write_text(TORN)
    (tmp_path / "g" / "manifest.json").write_text("to")
    (home / "offsets" / "2").write_text("to")
    (tmp_path / "g" / "journal-0001.json").unlink()
    before = files_of(directory)

    with (
        admin.open(tmp_path, group="g") as state,
        pytest.raises(StateError, match="is not known any more(.|\n)*Fix"),
    ):
        state.repair()

    assert files_of(directory) == before


def test_a_repair_does_nothing_but_what_was_planned(directory, tmp_path):
    home = Path(directory.generation(directory.load()).path)
    with admin.open(tmp_path, group="g") as state:
        (home / "commits" / "4").write_text(TORN)
        plan = state.repair(dry_run=True)
        (home / "commits" / "3").write_text(TORN)
        now = files_of(directory)

        with pytest.raises(StateError, match="has changed since the plan was made(.|\n)*Fix"):
            state.apply(plan)
        assert files_of(directory) == now
        state.apply(state.repair(dry_run=True))

    assert directory.checkpoint(directory.load()).last() == 2


def test_a_restore_is_refused_where_the_backup_is_another_one_by_now(directory, tmp_path):
    with admin.open(tmp_path, group="g") as state:
        state.backup(tmp_path / "backup")
        plan = state.restore(tmp_path / "backup", dry_run=True)
        kept = next((tmp_path / "backup").glob("g/generations/*/commits/4"))
        kept.unlink()

        with pytest.raises(StateError, match="no longer holds batch 4(.|\n)*Fix"):
            state.apply(plan)
        kept.write_text('v1\n{"nextBatchWatermarkMs":0}')
        state.apply(plan)

        assert [entry["what"] for entry in state.audit()] == ["restore"]
