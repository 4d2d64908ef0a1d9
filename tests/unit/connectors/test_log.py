import re
import shlex
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millpond import Application
from millpond.cli.main import command
from millpond.connectors.log import Log
from millpond.connectors.log_partition import Partition
from millpond.connectors.segments import SEGMENT
from millpond.connectors.topic_file import durable_write
from millpond.documents import sealed
from millpond.errors import DamagedTopicError, TopicError


def table(*values, start=0):
    rows = [(b"k", value, start + i, None) for i, value in enumerate(values)]
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SEGMENT, strict=True)], schema=SEGMENT
    )


def values(log, topic="clicks", partition=0, start=0, end=None):
    end = log.end(topic, partition) if end is None else end
    return [
        v for batch in log.read(topic, partition, start, end) for v in batch["value"].to_pylist()
    ]


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    log.create("clicks", 2)
    return log


def test_what_was_appended_is_read_in_order(log):
    log.append("clicks", 0, table(b"a", b"b"))
    log.append("clicks", 0, table(b"c"))

    assert values(log) == [b"a", b"b", b"c"]
    assert log.end("clicks", 0) == 3
    assert log.end("clicks", 1) == 0


def test_every_field_comes_back(log):
    row = pa.table({"key": [None], "value": [None], "timestamp": [-5], "headers": [b"h"]}, SEGMENT)

    log.append("clicks", 0, row)

    (batch,) = log.read("clicks", 0, 0, 1)
    assert batch.to_pylist() == [{"key": None, "value": None, "timestamp": -5, "headers": b"h"}]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 0, b""), (0, 1, b"a"), (1, 4, b"bcd"), (2, 3, b"c"), (3, 6, b"def"), (0, 6, b"abcdef")],
)
def test_a_range_may_begin_and_end_inside_a_segment(log, start, end, expected):
    log.append("clicks", 0, table(b"a", b"b", b"c"))
    log.append("clicks", 0, table(b"d"))
    log.append("clicks", 0, table(b"e", b"f"))

    assert b"".join(values(log, start=start, end=end)) == expected


def test_offsets_are_dense_whoever_writes(log, tmp_path):
    other = Log(tmp_path)
    for i in range(5):
        (log if i % 2 else other).append("clicks", 0, table(b"%d" % i, b"%d" % i))

    names = sorted(file.name for file in (tmp_path / "clicks" / "0").glob("*.arrow"))
    assert names == [f"{i * 2:020}-{i * 2 + 2:020}.arrow" for i in range(5)]
    assert log.end("clicks", 0) == other.end("clicks", 0) == 10


def test_appending_nothing_makes_no_segment(log, tmp_path):
    assert log.append("clicks", 0, table())
    assert list((tmp_path / "clicks" / "0").glob("*.arrow")) == []


def test_a_reader_sees_what_others_append_later(log, tmp_path):
    reader = Log(tmp_path)
    assert reader.end("clicks", 0) == 0

    log.append("clicks", 0, table(b"a"))

    assert reader.end("clicks", 0) == 1
    assert values(reader) == [b"a"]


def test_a_segment_of_many_records_is_read_in_parts(log):
    many = table(*(b"%d" % i for i in range(150_000)))

    log.append("clicks", 0, many)

    assert values(log, start=65_535, end=65_537) == [b"65535", b"65536"]
    assert log.end("clicks", 0) == 150_000


# --- exactly once ---------------------------------------------------------------------------


def test_a_batch_that_is_written_again_is_a_no_op(log):
    assert log.append("clicks", 0, table(b"a"), "app/1", 0)
    assert log.append("clicks", 0, table(b"b"), "app/1", 1)

    assert not log.append("clicks", 0, table(b"b"), "app/1", 1)

    assert values(log) == [b"a", b"b"]


def test_a_writer_whose_state_was_put_back_is_refused(log):
    log.append("clicks", 0, table(b"a"), "app/1", 1)

    with pytest.raises(TopicError, match="put back to an older copy(.|\n)*Fix:"):
        log.append("clicks", 0, table(b"a"), "app/1", 0)


def test_another_batch_of_the_same_number_is_refused(log):
    log.append("clicks", 0, table(b"a"), "app/1", 1, "what it reads")

    assert not log.append("clicks", 0, table(b"a"), "app/1", 1, "what it reads")
    with pytest.raises(TopicError, match="another batch of that number(.|\n)*Fix:"):
        log.append("clicks", 0, table(b"b"), "app/1", 1, "something else")

    assert values(log) == [b"a"]


def test_a_segment_that_does_not_say_what_its_batch_read_is_known_by_number(log):
    log.append("clicks", 0, table(b"a"), "app/1", 1)

    assert not log.append("clicks", 0, table(b"a"), "app/1", 1, "what it reads")


def test_a_batch_is_a_no_op_after_a_restart_too(log, tmp_path):
    log.append("clicks", 0, table(b"a"), "app/1", 7)

    assert not Log(tmp_path).append("clicks", 0, table(b"a"), "app/1", 7)


def test_writers_do_not_disturb_each_other(log):
    log.append("clicks", 0, table(b"a"), "one", 5)
    log.append("clicks", 0, table(b"b"), "two", 0)
    log.append("clicks", 0, table(b"c"))

    assert not log.append("clicks", 0, table(b"a"), "one", 5)
    assert not log.append("clicks", 0, table(b"b"), "two", 0)
    assert log.append("clicks", 0, table(b"d"), "one", 6)
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_a_batch_is_remembered_for_each_partition(log):
    log.append("clicks", 0, table(b"a"), "app", 0)

    assert log.append("clicks", 1, table(b"a"), "app", 0)


# --- crashes and damage ---------------------------------------------------------------------


def test_a_half_written_segment_is_ignored_and_written_over(log, tmp_path):
    log.append("clicks", 0, table(b"a"))
    half = tmp_path / "clicks" / "0" / f"{1:020}-{2:020}.writing"
    half.write_bytes(b"ARROW1 half")

    assert Log(tmp_path).end("clicks", 0) == 1
    log.append("clicks", 0, table(b"b"))

    assert values(Log(tmp_path)) == [b"a", b"b"]
    assert not half.exists()


def test_a_range_that_is_not_there_is_refused(log):
    log.append("clicks", 0, table(b"a"))

    with pytest.raises(TopicError, match=r"records 0 to 2(.|\n)*reset_offsets=True"):
        values(log, end=2)


def test_records_that_were_deleted_are_refused(log, tmp_path):
    log.append("clicks", 0, table(b"a"))
    log.append("clicks", 0, table(b"b"))
    (tmp_path / "clicks" / "0" / f"{0:020}-{1:020}.arrow").unlink()
    reader = Log(tmp_path)

    assert values(reader, start=1) == [b"b"]
    with pytest.raises(DamagedTopicError, match="are gone: offsets 0 to 0 of(.|\n)*Fix:"):
        values(reader, start=0)


# --- locks ----------------------------------------------------------------------------------

_WRITER = """
import sys
import pyarrow as pa
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
log = Log(sys.argv[1])
log.create("clicks", 2)
for i in range(30):
    value = sys.argv[2].encode() + b"%d" % i
    row = {"key": [None], "value": [value], "timestamp": [i], "headers": [None]}
    log.append("clicks", 0, pa.table(row, SEGMENT))
"""


def test_two_processes_write_one_partition_without_losing_a_record(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), name])
        for name in ("a", "b")
    ]

    assert [writer.wait(timeout=30) for writer in writers] == [0, 0]

    found = values(Log(tmp_path))
    assert len(found) == 60
    for name in (b"a", b"b"):
        assert [v for v in found if v[:1] == name] == [name + b"%d" % i for i in range(30)]


def test_threads_with_a_partition_each_lose_nothing(tmp_path):
    Log(tmp_path).create("clicks", 1)
    logs = [Log(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(
            target=lambda log=log: [log.append("clicks", 0, table(b"x")) for _ in range(10)]
        )
        for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Log(tmp_path).end("clicks", 0) == 40


# --- topics ---------------------------------------------------------------------------------


def test_topics_are_listed_by_name(log):
    log.create("a", 1)

    assert log.topics() == ["a", "clicks"]
    assert log.exists("a")
    assert not log.exists("b")


def test_a_topic_keeps_the_partitions_it_was_made_with(log):
    log.create("clicks", 5)

    assert log.partitions("clicks") == 2


def test_a_topic_that_does_not_exist_names_those_that_do(log):
    with pytest.raises(TopicError, match=r"'views' does not exist(.|\n)*clicks(.|\n)*Fix:"):
        log.end("views", 0)


def test_a_topic_that_does_not_exist_is_there_once_its_message_was_followed(tmp_path):
    app = Application(topics_dir=tmp_path / "my topics", loglevel=None)
    with app.get_consumer() as consumer:
        with pytest.raises(TopicError) as found:
            next(consumer.read(app.topic("views")), None)
        words = shlex.split(str(found.value).rpartition("or millpond ")[2])
        assert CliRunner().invoke(command, words).exit_code == 0

        assert list(consumer.read(app.topic("views"))) == []


def test_a_topic_of_a_later_format_is_refused(log, tmp_path):
    durable_write(tmp_path / "clicks" / "topic.json", sealed({"format": 3, "partitions": 2}))

    with pytest.raises(TopicError, match="format 3, which this version(.|\n)*Fix:"):
        Log(tmp_path).end("clicks", 0)


def followed(error):
    """Do what the message says."""
    words = re.search(r"or millpond (.*), as there are", str(error.value))[1]
    return CliRunner().invoke(command, shlex.split(words))


DAMAGED = [
    None,
    "",
    "[]",
    "{}",
    "[" * 100_000,
    '{"format": 2, "partitions": "x"}',
    '{"format": 2, "partitions": 1e999}',
    '{"format": 2, "partitions": 1}',
    '{"format": 2, "partitions": 3, "crc": 1}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_description_of_a_topic_that_is_lost_is_not_made_up(log, tmp_path, content):
    log.append("clicks", 1, table(b"a"))
    file = tmp_path / "clicks" / "topic.json"
    file.unlink() if content is None else file.write_text(content)
    what = "topic.json, which has the number of partitions of the topic, is (gone|damaged)"
    with pytest.raises(DamagedTopicError, match=what):
        Log(tmp_path).create("clicks", 1)
    verify = ["topics", "verify", "--topics-dir", str(tmp_path)]
    verified = CliRunner().invoke(command, verify)
    with pytest.raises(DamagedTopicError, match=what) as error:
        Log(tmp_path).end("clicks", 0)

    assert (verified.exit_code, "clicks: 1 damaged" in verified.output) == (1, True)
    assert Log(tmp_path).topics() == ["clicks"]
    assert followed(error).exit_code == 0
    assert [Log(tmp_path).end("clicks", number) for number in (0, 1)] == [0, 1]
    assert CliRunner().invoke(command, verify).exit_code == 0


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_lost_description_of_a_topic_without_records_is_written_again(tmp_path, partitions):
    Log(tmp_path).create("clicks", 2)
    (tmp_path / "clicks" / "topic.json").write_text("{")
    with pytest.raises(DamagedTopicError) as error:
        Log(tmp_path).end("clicks", 0)

    Log(tmp_path).create("clicks", partitions)

    log = Log(tmp_path)
    assert log.append("clicks", partitions - 1, table(b"a"))
    assert Log(tmp_path).partitions("clicks") == partitions
    assert "topics create clicks --partitions 2" in str(error.value)


def test_a_damaged_topic_does_not_hide_the_others(log, tmp_path, caplog):
    log.create("views", 1)
    log.append("clicks", 0, table(b"a"))
    (tmp_path / "clicks" / "topic.json").unlink()

    found = CliRunner().invoke(command, ["topics", "ls", "--topics-dir", str(tmp_path)])

    assert "views" in found.output
    assert "clicks" in caplog.text


def test_a_topic_that_was_cut_short_while_it_was_made_is_made(tmp_path):
    for number in range(4):
        (tmp_path / "clicks" / str(number)).mkdir(parents=True)

    Log(tmp_path).create("clicks", 2)

    assert Log(tmp_path).partitions("clicks") == 2


def test_a_partition_that_does_not_exist_is_refused(log):
    with pytest.raises(TopicError, match="no partition 2, it has 2(.|\n)*Fix:"):
        log.append("clicks", 2, table(b"a"))


def test_a_partition_without_records_ends_at_zero(tmp_path):
    partition = Partition(tmp_path)

    assert partition.end() == 0
    assert list(partition.read(0, 0)) == []


def test_a_durable_write_leaves_nothing_else_behind(tmp_path):
    durable_write(tmp_path / "a.json", b"1")
    durable_write(tmp_path / "a.json", b"2")

    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "2"
