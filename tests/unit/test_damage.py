"""What is damaged is decided in one place: the start says so just where a repair does something.

Any of the small files of a group are torn or gone, alone and together. After a repair the start
succeeds, and each batch that was done is replayed as it was, or the refusal says what is lost.
The same with files of state, on Spark: tests/disturbed/test_damage.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from millpond import FileSource, ListSource, admin
from millpond.connectors.file_list import COPY, LIST, FileList
from millpond.connectors.log import Log
from millpond.connectors.sources import Spool
from millpond.documents import sealed
from millpond.errors import DamagedStateError, StateError
from millpond.program.plan import make_plan
from millpond.storage.clock_file import read_clock
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal, read_journal
from millpond.testing import frame

LAST = 4

# `make test` does some, `make soak` many.
CASES = int(os.environ.get("MILLPOND_DAMAGES", "20")) * 10


def plan():
    return make_plan(frame(name="list").apply(lambda value: value)._graph)


def source(seq):
    """What is planned for the batch of a clock."""
    clock = {"seq": seq, "now": 1000 + seq, "marks": {}, "seen": {}, "arrived": {}}
    return {"millpond": {"list": {"0": 10 * seq}, "orders": {"files": seq}}, "clock": clock}


def group(folder, *, begun=False):
    """A group without state, so without Spark: batches 0 to 4 are done, and 5 may be begun."""
    directory = StateDirectory(folder, "group")
    manifest = directory.admit(plan(), groups=8, partitions=1)
    home = Path(directory.generation(manifest).path)
    for name in ("offsets", "commits"):
        (home / name).mkdir(parents=True)
    write(home / "metadata", '{"id": "one"}')
    planned = range(LAST + 2 if begun else LAST + 1)
    for batch in planned:
        lines = ["v1", '{"batchTimestampMs": 5}', json.dumps(source(batch + 1))]
        write(home / "offsets" / str(batch), "\n".join(lines))
        if batch <= LAST:
            write(home / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
    batches = {batch + 1: source(batch + 1) for batch in planned}
    directory.journal_file(manifest).write(Journal(LAST - 1, batches).encode())
    for ending in (LIST, COPY):
        files = sealed({"files": [f"/orders/{n}.json" for n in range(LAST + 2)]}, indent=2)
        (directory.sources / f"orders{ending}").write(files)
    known = {"seq": LAST + 1, "seen": {}, "arrived": {}, "due": {}, "is_sure": True, "keys": []}
    known["planned"] = source(LAST + 1)
    directory.clock_file(manifest).write(sealed(known))
    return directory


def write(file, text):
    """Write a file as Hadoop does, with its checksum beside it."""
    file.write_text(text)
    sums = b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(text.encode()).to_bytes(4, "big")
    (file.parent / f".{file.name}.crc").write_bytes(sums)


def damage(file, dice):
    """Do to a file what a disk, a power cut or a person may have done to it."""
    data = file.read_bytes()
    place = dice.randrange(max(1, len(data)))
    kind = dice.choice(("gone", "cut", "flipped", "nested", "too large", "moved"))
    if kind == "gone":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(data[:place])
    elif kind == "flipped":
        file.write_bytes(
            data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
        )
    elif kind == "nested":
        file.write_bytes(b"[" * 100_000)
    elif kind == "too large":
        file.write_bytes(
            b'{"seq": 1e999, "format": 1e999, "batches": {"1e999": 1}, "files": [1e999]}'
        )
    else:
        file.write_bytes(data[place:] + data[:place])


def files(directory):
    """The files that may be damaged; copies of the manifest aside, of which one must be left."""
    home = Path(directory.folder.path)
    found = sorted(f for f in home.rglob("*") if f.is_file() and f.name != "manifest-0001.json")
    return [f for f in found if f.name != "lock"]


def start(directory):
    """What a start does before Spark is started; return what it does again, by clock."""
    manifest = directory.admit(plan(), groups=8, partitions=1)
    journal = directory.journal(manifest)
    if directory.goes_on_from(manifest) != directory.checkpoint(manifest).last():
        directory.take_back(manifest)
    seq = directory.committed_clock(manifest)
    begun = directory.checkpoint(manifest).batch(seq)  # its number is one less than its clock
    again = journal.after(seq)
    return seq, again | ({} if begun is None else {seq + 1: begun.source})


def known(directory):
    """The last clock of which anything is left: a batch whose every trace is gone never was."""
    manifest = directory.recalled()
    checkpoint = directory.checkpoint(manifest)
    found = [number + 1 for number in checkpoint.committed()] + checkpoint.planned()[-1:]
    found.append(read_journal(directory.journal_file(manifest)).delivered + 1)
    clock = read_clock(directory.clock_file(manifest))
    found += [] if clock is None else [clock.seq]
    return max(found)


def assert_nothing_is_lost(directory, known):
    """Each batch that was done counts, or is replayed as it was."""
    seq, again = start(directory)
    for done in range(seq + 1, known + 1):
        assert again.get(done) == source(done)


def test_the_start_says_damaged_if_and_only_if_a_repair_does_something(tmp_path):
    counts = {"whole": 0, "repaired": 0, "refused": 0}
    for case in range(CASES):
        dice = random.Random(case)
        directory = group(tmp_path / str(case), begun=case % 2 == 0)
        chosen = dice.sample(files(directory), dice.choice((1, 1, 2, 3, 4, 6, 9)))
        for file in chosen:
            damage(file, dice)
        left = known(directory)
        what = (case, [file.name for file in chosen])

        try:
            directory.check(plan())
            is_damaged = False
        except DamagedStateError as error:
            is_damaged = True
            assert "\nFix: millpond state repair" in str(error), what
        with admin.open(tmp_path / str(case), group="group") as state:
            try:
                repaired = state.repair()
            except StateError as error:
                assert is_damaged, what
                assert "is not known any more" in str(error), what
                counts["refused"] += 1
                continue
        assert bool(repaired.problems) == is_damaged, what
        counts["repaired" if is_damaged else "whole"] += 1
        assert_nothing_is_lost(directory, left)

    assert all(counts.values()), counts


def repaired(directory):
    home = Path(directory.folder.path)
    with admin.open(home.parent, group="group") as state:
        return state.repair()


def home_of(directory):
    return Path(directory.generation(directory.load()).path)


@pytest.mark.parametrize("batches", [(3, 4), (0, 1, 2, 3, 4)])
def test_batches_whose_commits_are_gone_are_done_again(batches, tmp_path):
    directory = group(tmp_path)
    for batch in batches:
        (home_of(directory) / "commits" / str(batch)).unlink()
    with pytest.raises(DamagedStateError, match=r"commits/\d is damaged: it is gone"):
        directory.check(plan())

    done = repaired(directory)

    assert done.batches == len(batches)
    seq, again = start(directory)
    assert seq == LAST + 1 - len(batches)
    assert again == {seq: source(seq) for seq in range(seq + 1, LAST + 2)}


@pytest.mark.parametrize("what", ["torn", "gone"])
def test_a_batch_that_was_committed_is_not_forgotten_with_its_offsets(what, tmp_path):
    directory = group(tmp_path)
    offsets = home_of(directory) / "offsets" / str(LAST)
    offsets.write_text("to") if what == "torn" else offsets.unlink()
    # The journal and the clock are as they were one batch before.
    manifest = directory.load()
    batches = {seq: source(seq) for seq in range(1, LAST + 1)}
    directory.journal_file(manifest).write(Journal(LAST - 2, batches).encode())
    known = read_clock(directory.clock_file(manifest))
    before = replace(known, seq=LAST, planned=source(LAST))
    directory.clock_file(manifest).write(before.encode())

    with pytest.raises(
        StateError, match=r"what 1 of the later batches read is not known"
    ) as raised:
        repaired(directory)

    assert (
        "Fix: millpond state restore, if there is a backup; or start over: app.clear_state(True)"
        in str(raised.value)
    )
    directory.clear(reset_offsets=True)
    assert start(directory) == (0, {})


def test_damage_that_only_history_needs_is_left_to_history(tmp_path):
    directory = group(tmp_path)
    (home_of(directory) / "commits" / "1").write_text("to")

    directory.check(plan())
    with admin.open(tmp_path, group="group") as state:
        found = state.verify()
        assert state.repair().problems == []

    assert found.is_whole
    assert [Path(problem.file).name for problem in found.history] == ["1"]


def forget(directory, first):
    """Let the journal know no batch before one, as if many had come since."""
    journal = read_journal(directory.journal_file(directory.load()))
    kept = {seq: batch for seq, batch in journal.batches.items() if seq >= first}
    directory.journal_file(directory.load()).write(Journal(journal.delivered, kept).encode())


@pytest.mark.parametrize("lost", ["all", "small files"])
@pytest.mark.parametrize("outputs", ["keep", "again"])
def test_where_a_new_generation_is_lost_the_one_before_is_gone_back_to(outputs, lost, tmp_path):
    directory = group(tmp_path)
    with admin.open(tmp_path, group="group") as state:
        state.rewind(2, outputs=outputs)
    stream, home = directory.load().stream, home_of(directory)
    forget(directory, 4)  # what 0 to 2 read is only in the generation before
    if lost == "all":
        shutil.rmtree(home)
    else:
        for place in [*(home / "offsets").iterdir(), *(home / "commits").iterdir()]:
            place.unlink()  # the generation before has the same bytes under another name
            place.write_text("")

    done = repaired(directory)

    assert done.batch == 2
    assert len({problem.file for problem in done.problems}) == len(done.problems)
    assert directory.load().stream == stream
    seq, again = start(directory)
    expected = (4, 5) if outputs == "keep" else ()
    assert (seq, again) == (3, {number: source(number) for number in expected})


def test_what_came_after_a_rewind_is_not_taken_from_the_generation_before(tmp_path):
    directory = group(tmp_path)
    with admin.open(tmp_path, group="group") as state:
        state.rewind(2, outputs="again")
    other = {**source(4), "millpond": {"list": {"0": 31}}}  # batch 3 was cut in another way
    directory.journal_file(directory.load()).write(Journal(2, {4: other}).encode())
    shutil.rmtree(home_of(directory))

    done = repaired(directory)

    assert done.batch == 2
    assert start(directory) == (3, {4: other})


def test_a_restored_state_is_not_mixed_with_the_one_before(tmp_path):
    directory = group(tmp_path)
    with admin.open(tmp_path, group="group") as state:
        state.backup(tmp_path / "kept")
        state.restore(tmp_path / "kept")
    forget(directory, 6)
    shutil.rmtree(home_of(directory))

    with pytest.raises(StateError, match="no batch of .* is whole"):
        repaired(directory)


def test_a_fork_that_was_cut_short_before_its_manifest_is_made_again(tmp_path):
    group(tmp_path)
    with admin.open(tmp_path, group="group") as state:
        state.fork("forked")
        (tmp_path / "forked" / "manifest.json").unlink()

        state.fork("forked")

        assert StateDirectory(tmp_path, "forked").load().generation == 1


def test_a_group_that_has_lost_its_manifest_is_not_replaced_by_a_fork(tmp_path):
    group(tmp_path)
    group(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "group").rename(tmp_path / "other")
    (tmp_path / "other" / "manifest.json").unlink()

    with (
        admin.open(tmp_path, group="group") as state,
        pytest.raises(StateError, match="there is a group 'other' already"),
    ):
        state.fork("other")


def list_of(directory, ending):
    return Path(directory.folder.path) / "sources" / f"orders{ending}"


@pytest.mark.parametrize("content", [None, "", '["/orders/0.js', "{}", "[1]", "\xff", "flip", "["])
@pytest.mark.parametrize("ending", [LIST, COPY])
def test_a_list_of_files_that_is_damaged_has_a_copy(ending, content, tmp_path):
    directory = group(tmp_path)
    before = list_of(directory, ending).read_text()
    list_of(directory, ending).unlink()
    if content == "flip":
        list_of(directory, ending).write_text(before.replace("/orders/3", "/orders/7"))
    elif content is not None:
        list_of(directory, ending).write_text(
            content * (100_000 if content == "[" else 1), "latin-1"
        )
    (tmp_path / "orders").mkdir()
    reader = FileSource(tmp_path / "orders").reader(str(tmp_path / "group" / "sources"))

    directory.check(plan())
    with admin.open(tmp_path, group="group") as state:
        damaged = [Path(problem.file).name for problem in state.verify().history]
        assert state.repair().problems == []

    assert damaged == ([f"orders{ending}"] if content is not None else [])
    assert reader.ends({}) == {"files": LAST + 2}
    assert list_of(directory, LIST).read_text() == before
    assert list_of(directory, LIST).read_text() == list_of(directory, COPY).read_text()


def test_a_list_of_files_that_is_lost_is_damage_and_its_fix_is_followed(tmp_path):
    directory = group(tmp_path)
    for ending in (LIST, COPY):
        list_of(directory, ending).write_text('["/orders/0.js')
    lost = "which files source 'orders' has read is not known any more"
    with pytest.raises(DamagedStateError, match=f"{lost}.\nFix: millpond state repair"):
        directory.check(plan())

    with admin.open(tmp_path, group="group") as state:
        (problem,) = state.verify().problems
    with pytest.raises(StateError, match=rf"{lost}.\nFix: .*app.clear_state\(True\)"):
        repaired(directory)

    assert problem.file == str(list_of(directory, LIST))
    directory.clear(reset_offsets=True)
    assert start(directory) == (0, {})


def test_a_list_of_files_of_version_0_1_is_read(tmp_path):
    (tmp_path / "orders.files.json").write_text('["/orders/0.json"]')

    assert FileList(tmp_path, (), tmp_path / "orders.files.json").known() == ["/orders/0.json"]


def test_a_clock_with_another_number_in_it_is_as_lost(tmp_path):
    directory = group(tmp_path)
    clock = directory.clock_file(directory.load())
    clock.write(clock.text().replace('"now": 1005', '"now": 9005').encode())

    assert read_clock(clock) is None
    assert directory.goes_on_from(directory.load()) == LAST - 1


def test_a_manifest_whose_format_was_changed_is_damaged_and_not_of_a_later_version(tmp_path):
    directory = group(tmp_path)
    file = directory.folder / "manifest.json"
    file.write(file.text().replace('"format": 2', '"format": 9').encode())

    with pytest.raises(DamagedStateError, match="manifest.json is damaged: its checksum"):
        directory.check(plan())

    assert len(repaired(directory).problems) == 1
    assert start(directory) == (LAST + 1, {})


def spooled(directory, *, until):
    """Give the group the spool of its list, in two segments; batch 4 has read up to 50."""
    log = Log(directory.sources.path)
    log.create("list", 1)
    for first, end in ((0, 40), (40, 50), (50, until)):
        if end > first:
            log.append("list", 0, ListSource([]).table(list(range(first, end)), 1000))
    return Path(directory.sources.path) / "list"


@pytest.mark.parametrize("what", ["flipped", "gone"])
def test_records_of_a_list_that_are_damaged_before_they_were_read_are_taken_again(tmp_path, what):
    directory = group(tmp_path)
    spool = spooled(directory, until=60)
    segment = max((spool / "0").glob("*.arrow"))
    if what == "gone":
        segment.unlink()
    else:
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
    with pytest.raises(
        DamagedStateError, match="list/0 is damaged(.|\n)*Fix: millpond state repair"
    ):
        directory.check(plan())

    assert len(repaired(directory).problems) == 1

    assert not spool.exists()
    assert start(directory) == (LAST + 1, {})
    taken = Spool(ListSource(range(70)), directory.sources.path)
    assert taken.advance(100, 1000) == 70


def test_records_of_a_list_that_were_read_are_not_needed(tmp_path):
    directory = group(tmp_path)
    spool = spooled(directory, until=60)
    min((spool / "0").glob("*.arrow")).unlink()

    directory.check(plan())

    assert repaired(directory).problems == []
    assert spool.exists()
