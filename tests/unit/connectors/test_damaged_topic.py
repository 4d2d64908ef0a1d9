"""Whatever becomes of the bytes of a segment: its data as it was, or an error that names it."""

import pickle
import random
import re
import shlex
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millpond.cli.main import command
from millpond.connectors import segments
from millpond.connectors.clients import Consumer
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.connectors.sources import LogReader
from millpond.errors import DamagedTopicError, TopicError


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    log.create("clicks", 1)
    for i in range(3):
        log.append("clicks", 0, rows(i), "app", i)
    return log


def rows(i):
    return pa.table(
        {
            "key": [b"k%d" % j if j % 3 else None for j in range(50)],
            "value": [b"%d" % (100 * i + j) for j in range(50)],
            "timestamp": list(range(50)),
            "headers": [None] * 50,
        },
        SEGMENT,
    )


def content(path):
    log = Log(path)
    return pa.Table.from_batches(log.read("clicks", 0, 0, log.end("clicks", 0))).to_pylist()


def file_of(log, number):
    return sorted((log.path / "clicks" / "0").glob("*.arrow"))[number]


@pytest.mark.parametrize("damage", [b"", b"not arrow", b"ARROW1\0\0", bytes(3_000)])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_segment_is_named(log, damage, number):
    file_of(log, number).write_bytes(damage)

    with pytest.raises(DamagedTopicError) as caught:
        content(log.path)

    text = str(caught.value)
    assert f"segment {file_of(log, number)} is damaged: " in text
    assert f"offsets {50 * number} to {50 * number + 49} of topic 'clicks', partition 0" in text
    assert "\nFix: restore the file from a copy; millpond topics verify clicks --topics-dir" in text


def test_a_segment_that_was_cut_off_is_named(log):
    file = file_of(log, 1)
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DamagedTopicError, match=f"{file.name} is damaged(.|\n)*Fix:"):
        content(log.path)


def test_a_flipped_bit_of_a_value_is_found(log):
    file = file_of(log, 1)
    data = file.read_bytes()
    assert data.count(b"100101102") == 1
    file.write_bytes(data.replace(b"100101102", b"100101103"))

    with pytest.raises(DamagedTopicError, match="does not fit its checksum(.|\n)*Fix:"):
        content(log.path)


def test_damage_keeps_others_from_appending_and_from_merging(log):
    file_of(log, 2).write_bytes(b"not arrow")

    with pytest.raises(DamagedTopicError, match="Fix:"):
        Log(log.path).append("clicks", 0, rows(3), "app", 3)


def test_the_range_before_the_damage_can_be_read(log):
    file_of(log, 2).write_bytes(b"not arrow")

    (first, second) = Log(log.path).read("clicks", 0, 0, 100)

    assert first.num_rows + second.num_rows == 100


def test_mutated_segments_give_their_data_or_their_name_and_nothing_else(log):
    whole, chance = content(log.path), random.Random(7)
    outcomes = {"data": 0, "damaged": 0}

    for _ in range(400):
        file = file_of(log, chance.randrange(3))
        data = file.read_bytes()
        file.write_bytes(mutated(data, chance))
        segments._checked.clear()  # as in another process
        try:
            assert content(log.path) == whole
            outcomes["data"] += 1
        except DamagedTopicError as error:
            assert str(file) in str(error)
            outcomes["damaged"] += 1
        file.write_bytes(data)

    assert outcomes["damaged"] > 370


def test_each_byte_counts(log):
    file = file_of(log, 1)
    whole = file.read_bytes()

    for place in range(0, len(whole), 23):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        file.write_bytes(data)
        with pytest.raises(DamagedTopicError):
            list(Log(log.path).read("clicks", 0, 50, 100))


def mutated(data, chance):
    kind, place = chance.randrange(5), chance.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:  # a block that was never written
        return data[:place] + bytes(len(data[place : place + 512])) + data[place + 512 :]
    changed = bytearray(data)
    for _ in range(1 if kind < 4 else 20):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed) if kind < 4 else bytes(changed) + b"more"


def test_a_segment_is_compared_with_its_checksum_once_by_a_process(log, monkeypatch):
    sums = []
    compute = segments._sum
    monkeypatch.setattr(segments, "_sum", lambda *a: sums.append(1) or compute(*a))
    segments._checked.clear()

    content(log.path)
    content(log.path)

    assert len(sums) == 3


def test_a_segment_without_a_checksum_is_read_and_its_structure_is_checked(tmp_path):
    log = Log(tmp_path)
    log.create("clicks", 1)
    old = rows(0).replace_schema_metadata({b"format": b"1", b"writers": b"{}"})
    file = tmp_path / "clicks" / "0" / f"{0:020}.arrow"
    with pa.ipc.new_file(str(file), old.schema) as sink:
        sink.write_table(old)
    whole, data, chance = content(tmp_path), file.read_bytes(), random.Random(7)
    assert len(whole) == 50

    for _ in range(200):
        file.write_bytes(mutated(data, chance))
        try:
            content(tmp_path)  # other data looks like what was written
        except TopicError as error:
            assert "Fix:" in str(error)


def test_verify_names_what_is_damaged(log):
    assert Log(log.path).verify("clicks") == ([], 0)
    file_of(log, 1).write_bytes(b"not arrow")

    (error,), _ = log.verify("clicks")

    assert str(file_of(log, 1)) in str(error)


LOST = [([0], "0 to 49"), ([1], "50 to 99"), ([2], "100 to 149"), ([0, 1, 2], "0 to 149")]
LOST_IDS = ["first", "middle", "last", "all"]


@pytest.mark.parametrize(("numbers", "offsets"), LOST, ids=LOST_IDS)
def test_segments_that_are_gone_are_named_by_verify_and_found_again(log, numbers, offsets):
    lost = {file: file.read_bytes() for file in (file_of(log, n) for n in numbers)}
    for file in lost:
        file.unlink()

    (error,), _ = Log(log.path).verify("clicks")
    for file, data in lost.items():
        file.write_bytes(data)

    said = f"are gone: offsets {offsets} of topic 'clicks', partition 0.\nFix: restore the files"
    assert said in str(error)
    assert Log(log.path).verify("clicks") == ([], 0)


@pytest.mark.parametrize(("numbers", "offsets"), LOST, ids=LOST_IDS)
def test_segments_that_are_gone_are_not_read_over(log, numbers, offsets):
    for file in [file_of(log, n) for n in numbers]:
        file.unlink()
    again = Log(log.path)

    with pytest.raises(DamagedTopicError, match=f"are gone: offsets {offsets} of(.|\n)*Fix:"):
        list(again.read("clicks", 0, 0, 150))

    assert (again.start("clicks", 0), again.end("clicks", 0)) == (0, 150)
    for number in {0, 1, 2} - set(numbers):
        (part,) = again.read("clicks", 0, 50 * number, 50 * number + 50)
        assert part.to_pylist() == rows(number).to_pylist()


@pytest.mark.parametrize("numbers", [[2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("process", ["the same", "another"])
def test_offsets_of_a_last_segment_that_is_gone_are_not_given_to_others(log, numbers, process):
    lost = {file: file.read_bytes() for file in (file_of(log, n) for n in numbers)}
    for file in lost:
        file.unlink()
    writer = log if process == "the same" else Log(log.path)

    for batch in (2, 3):  # one that was written before, and the next
        with pytest.raises(DamagedTopicError, match="are gone: offsets(.|\n)*Fix:"):
            writer.append("clicks", 0, rows(batch), "app", batch)
    for file, data in lost.items():
        file.write_bytes(data)

    assert not writer.append("clicks", 0, rows(2), "app", 2)
    assert writer.append("clicks", 0, rows(3), "app", 3)
    assert len(content(log.path)) == 200


def mark(log):
    (file,) = (log.path / "clicks" / "0").glob("*.end")
    return file


def test_a_topic_of_before_there_were_marks_gets_one_with_its_next_record(log):
    mark(log).unlink()
    again = Log(log.path)

    again.append("clicks", 0, rows(3))

    assert mark(log).name == f"{200:020}.end"
    assert len(content(log.path)) == 200


def test_a_writer_that_died_before_it_moved_the_mark_left_nothing_wrong(log):
    mark(log).rename(mark(log).with_name(f"{100:020}.end"))
    again = Log(log.path)

    assert again.verify("clicks") == ([], 0)
    again.append("clicks", 0, rows(3), "app", 3)

    assert mark(log).name == f"{200:020}.end"
    assert len(content(log.path)) == 200


def test_a_partition_whose_folder_is_gone_is_named(log):
    shutil.rmtree(log.path / "clicks" / "0")

    (error,), _ = Log(log.path).verify("clicks")

    assert f"the folder {log.path}/clicks/0 is gone" in str(error)
    assert "\nFix: restore it from a copy" in str(error)


def test_readers_never_see_a_gap_while_others_append_and_merge(log):
    program = """
import sys, pyarrow as pa
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
log = Log(sys.argv[1])
for i in range(400):
    row = {"key": [None], "value": [b"x"], "timestamp": [i], "headers": [None]}
    log.append("clicks", 0, pa.table(row, SEGMENT))
"""
    done = subprocess.Popen([sys.executable, "-c", program, str(log.path)])
    ends = [150]
    while done.poll() is None:
        reader = Log(log.path)
        ends.append(reader.end("clicks", 0))
        assert sum(p.num_rows for p in reader.read("clicks", 0, 0, ends[-1])) == ends[-1]

    assert done.returncode == 0
    assert ends == sorted(ends)
    assert Log(log.path).end("clicks", 0) == 550
    assert Log(log.path).verify("clicks") == ([], 0)


def millpond(line):
    return CliRunner().invoke(command, shlex.split(line)[1:])


def test_the_fix_of_the_error_lists_what_is_damaged_and_then_that_nothing_is(log, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    copy = file_of(log, 1).read_bytes()
    file_of(log, 1).write_bytes(copy[:-1])
    with pytest.raises(DamagedTopicError) as caught:
        content(log.path)
    fix = str(caught.value).partition("Fix: ")[2]
    verify = fix[fix.index("millpond topics verify") : fix.index(" lists every")]

    damaged = millpond(verify)
    file_of(log, 1).write_bytes(copy)
    whole = millpond(verify)

    assert damaged.exit_code == 1
    assert str(file_of(log, 1)) in damaged.output
    assert "clicks: 1 damaged" in damaged.output
    assert (whole.exit_code, whole.output) == (0, "clicks: whole\n")
    assert len(content(log.path)) == 150


@pytest.mark.parametrize("what", ["damaged", "gone"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_lost_is_skipped_where_that_is_wanted(log, what, number, caplog):
    if what == "gone":
        file_of(log, number).unlink()
    else:
        file_of(log, number).write_bytes(b"")
    reader = pickle.loads(pickle.dumps(LogReader(str(log.path), "clicks", skips_lost=True)))

    parts = list(reader.read("0", 10, 150))
    found = [value for part in parts for value in part["value"].to_pylist()]
    offsets = [offset for part in parts for offset in part["offset"].to_pylist()]

    skipped = range(50 * number, 50 * number + 50)
    assert offsets == [offset for offset in range(10, 150) if offset not in skipped]
    left = [value for i in range(3) if i != number for value in rows(i)["value"].to_pylist()]
    assert found == [value for value in left if value not in rows(0)["value"].to_pylist()[:10]]
    (message,) = caplog.messages
    first, last = (max(10, 50 * number) if what == "gone" else 50 * number), 50 * number + 49
    assert f"offsets {first} to {last} of topic 'clicks', partition 0" in message
    assert message.endswith("They are skipped.")


@pytest.mark.parametrize("what", ["a segment", "the description"])
def test_a_topic_is_deleted_as_the_error_says_and_can_be_written_again(log, what):
    if what == "a segment":
        file_of(log, 2).unlink()
    else:
        (log.path / "clicks" / "topic.json").unlink()
    with pytest.raises(DamagedTopicError) as caught:
        Log(log.path).append("clicks", 0, rows(3), "app", 3)
    fix = str(caught.value).partition("Fix: ")[2]
    words = f"millpond topics delete clicks --topics-dir {shlex.quote(str(log.path))}"
    if what == "a segment":
        assert words in fix

    asked = CliRunner().invoke(command, shlex.split(words)[1:], input="n\n")
    assert (asked.exit_code, log.path / "clicks" in log.path.iterdir()) == (1, True)
    assert millpond(words + " --yes").exit_code == 0

    assert list(log.path.iterdir()) == []
    again = Log(log.path)
    again.create("clicks", 1)
    assert again.append("clicks", 0, rows(3), "app", 3)
    missing = millpond("millpond topics delete views --yes --topics-dir " + str(log.path))
    assert isinstance(missing.exception, TopicError)


def test_verify_without_a_topic_reads_all_of_them(log):
    log.create("views", 2)

    found = millpond(f"millpond topics verify --topics-dir {shlex.quote(str(log.path))}")

    assert (found.exit_code, found.output) == (0, "clicks: whole\nviews: whole\n")


def test_verify_of_a_topic_that_is_not_there_names_those_that_are(log):
    found = millpond(f"millpond topics verify clikcs --topics-dir {shlex.quote(str(log.path))}")

    assert isinstance(found.exception, TopicError)
    assert "(there: clicks)" in str(found.exception)


EACH = [[2], [1, 2], [0, 1, 2], [1], [0, 2]]


@pytest.mark.parametrize("numbers", EACH, ids=str)
@pytest.mark.parametrize("damage", [b"not arrow", None], ids=["damaged", "gone"])
def test_readers_and_writers_go_on_without_what_was_given_up(log, numbers, damage, caplog):
    for file in [file_of(log, n) for n in numbers]:
        file.unlink() if damage is None else file.write_bytes(damage)
    with pytest.raises(DamagedTopicError) as refused:
        content(log.path)
    (repair,) = re.findall(r"millpond (topics repair \S+ --topics-dir \S+)", str(refused.value))

    done = CliRunner().invoke(command, shlex.split(repair))

    assert done.exit_code == 0, done.output
    again = Log(log.path)
    assert again.append("clicks", 0, rows(3), "app", 3)
    assert again.append("clicks", 0, rows(4), "app", 4)
    assert not again.append("clicks", 0, rows(4), "app", 4)
    kept = [n for n in range(5) if n not in numbers]
    for skips in (False, True):
        found = list(Log(log.path).read("clicks", 0, 0, again.end("clicks", 0), skips_lost=skips))
        places = [value for part in found for value in part.column("offset").to_pylist()]
        assert places == [place for n in kept for place in range(50 * n, 50 * n + 50)]
    assert [record.offset for record in Consumer(Log(log.path), {}).read("clicks")] == places
    assert "were given up" in caplog.text
    assert Log(log.path).verify("clicks") == ([], 0)
    assert Log(log.path).repair("clicks") == []
    assert len(list((log.path / "clicks" / "0").glob("*.damaged"))) == len(numbers) * bool(damage)


def test_what_is_damaged_after_some_was_given_up_is_an_error_again(log):
    file_of(log, 2).write_bytes(b"not arrow")
    assert log.repair("clicks") == [(0, 100, 150)]
    file_of(log, 0).write_bytes(b"not arrow")

    with pytest.raises(DamagedTopicError, match="offsets 0 to 49"):
        content(log.path)
    assert log.repair("clicks") == [(0, 0, 50)]


def test_nothing_is_given_up_where_all_records_are_there(log):
    words = ["topics", "repair", "clicks", "--topics-dir", str(log.path)]

    assert "clicks: nothing is damaged or gone." in CliRunner().invoke(command, words).output
    assert len(content(log.path)) == 150
