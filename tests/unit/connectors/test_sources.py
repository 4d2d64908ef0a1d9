import json
import os
import pickle
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.connectors.sources import (
    CRASH,
    END,
    FileSource,
    ListSource,
    LogReader,
    RateReader,
    RateSource,
    SparkSource,
    Spool,
)
from millpond.errors import (
    ConfigError,
    MillpondError,
    SerializationError,
    TopicError,
    ValueTypeError,
)
from millpond.state.codec import Codec


def rows(source, batches):
    """The records of batches as (key, value, timestamp)."""
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            key = None if row["key"] is None else source.key_deserializer(row["key"])
            value = None if row["value"] is None else source.value_deserializer(row["value"])
            found.append((key, value, row["timestamp"]))
    return found


# --- lists ----------------------------------------------------------------------------------


def test_items_are_values_or_have_a_key_or_a_time_too():
    source = ListSource([])

    table = source.table([1, ("k", 2), (5, 3, 99), None, ("k", None)], now_ms=7)

    assert rows(source, table.to_batches()) == [
        (None, 1, 7), ("k", 2, 7), (5, 3, 99), (None, None, 7), ("k", None, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "pickles"),
    [
        *((value, False) for value in [(1,), (1, 2, 3, 4), [1, 2], {"a": (1, 2)}, {1, 2}, 10**30]),
        *((value, True) for value in [1, 1j, object]),
    ],
)
def test_values_come_back_as_they_went_in(value, pickles):
    source = ListSource([], pickles=pickles)

    ((_, back, _),) = rows(source, source.table([(None, value)], 0).to_batches())

    assert back == value
    assert type(back) is type(value)


@dataclass
class Order:
    amount: int


def test_a_value_that_state_cannot_keep_is_refused_unless_pickles_are_asked_for():
    refused = (
        "source 'orders': state cannot keep(.|\n)*Fix: call app.register_type\\(Order\\) before "
    )
    with pytest.raises(ValueTypeError, match=refused + r"running; or ListSource\(.*pickles=True\)"):
        ListSource([], "orders").table([(None, Order(5))], 0)

    source = ListSource([], "orders", Codec([Order]))
    ((_, back, _),) = rows(source, source.table([(None, Order(5))], 0).to_batches())
    assert back == Order(5)


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_pickle_that_somebody_left_in_the_state_directory_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = ListSource([], "orders")
    planted = source.table([(None, 1)], 0).set_column(
        1, SEGMENT.field(1), [[b"P" + pickle.dumps(Payload())]]
    )
    Log(tmp_path / "spool").create("orders", 1)
    Log(tmp_path / "spool").append("orders", 0, planted)

    batches = list(source.reader(str(tmp_path / "spool")).read("0", 0, 1))
    refused = r"'orders'(.|\n)*holds a pickle(.|\n)*Fix: ListSource\(..., pickles=True\)"
    with pytest.raises(SerializationError, match=refused):
        rows(source, batches)

    assert not Path("executed").exists()
    rows(ListSource([], "orders", pickles=True), batches)
    assert Path("executed").exists()  # so the payload would have worked


def test_a_time_must_be_an_int():
    with pytest.raises(ConfigError, match="int \\(milliseconds\\)(.|\n)*Fix:"):
        ListSource([]).table([("k", 1, 1.5)], 0)


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}, 5, None])
def test_a_list_source_takes_an_iterable_of_records(wrong):
    with pytest.raises(ConfigError, match="Fix:"):
        ListSource(wrong)


# --- the spool ------------------------------------------------------------------------------


def spooled(source, path):
    log = Log(path)
    return [
        value for _, value, _ in rows(source, log.read(source.name, 0, 0, log.end(source.name, 0)))
    ]


def test_items_are_spooled_as_they_are_taken(tmp_path):
    source = ListSource(range(10))
    spool = Spool(source, str(tmp_path))

    assert spool.advance(3, 0) == 3
    assert spool.advance(3, 0) == 3
    assert spooled(source, tmp_path) == [0, 1, 2, 3, 4, 5]
    assert not spool.is_done
    assert spool.advance(100, 0) == 4
    assert spool.is_done
    assert spool.advance(100, 0) == 0


def test_a_restart_continues_where_it_was(tmp_path):
    Spool(ListSource(range(10)), str(tmp_path)).advance(4, 0)
    source = ListSource(range(10))

    again = Spool(source, str(tmp_path))
    again.advance(100, 0)

    assert spooled(source, tmp_path) == list(range(10))


def test_an_iterable_is_taken_no_further_than_asked_for(tmp_path):
    taken = []

    def endless():
        for i in range(10**9):
            taken.append(i)
            yield i

    Spool(ListSource(endless()), str(tmp_path)).advance(5, 0)

    assert taken == [0, 1, 2, 3, 4]


def test_an_end_mark_ends_the_run_and_the_next_run_goes_on_after_it(tmp_path):
    items = [1, 2, END, 3, END, 4]
    source = ListSource(items)

    for expected in ([1, 2], [1, 2, 3], [1, 2, 3, 4]):
        spool = Spool(ListSource(items), str(tmp_path))
        spool.advance(100, 0)
        assert spool.is_done
        assert spool.crash_at is None
        assert spooled(source, tmp_path) == expected


def test_a_crash_mark_says_where(tmp_path):
    spool = Spool(ListSource([1, 2, CRASH, 3]), str(tmp_path))

    spool.advance(100, 0)

    assert (spool.is_done, spool.crash_at) == (True, 2)


def test_a_crash_mark_has_its_effect_once(tmp_path):
    items = [1, CRASH, 2]
    Spool(ListSource(items), str(tmp_path)).advance(100, 0)

    again = Spool(ListSource(items), str(tmp_path))
    again.advance(100, 0)

    assert again.crash_at is None
    assert spooled(ListSource(items), tmp_path) == [1, 2]


def test_marks_stay_themselves_when_they_travel():
    assert pickle.loads(pickle.dumps(CRASH)) is CRASH
    assert pickle.loads(pickle.dumps(END)) is END
    assert repr(CRASH) == "CRASH"


# --- topics ---------------------------------------------------------------------------------


@pytest.fixture
def topic(tmp_path):
    source = ListSource([])
    log = Log(tmp_path)
    log.create("clicks", 2)
    log.append("clicks", 0, source.table([1, 2, 3], 0))
    return LogReader(str(tmp_path), "clicks")


def test_a_new_group_starts_where_auto_offset_reset_says(topic):
    assert topic.initial("earliest") == {"0": 0, "1": 0}
    assert topic.initial("latest") == {"0": 3, "1": 0}
    with pytest.raises(TopicError, match="Fix:"):
        topic.initial("error")


def test_a_topic_is_read_by_offset(topic):
    assert topic.ends({}) == {"0": 3, "1": 0}
    assert [v for _, v, _ in rows(ListSource([]), topic.read("0", 1, 3))] == [2, 3]


def test_a_reader_travels_to_the_workers(topic):
    assert pickle.loads(pickle.dumps(topic)).ends({}) == topic.ends({})


# --- a steady rate --------------------------------------------------------------------------


def test_a_rate_gives_so_many_records_a_second():
    reader = RateReader(rate=10, count=None)
    start = {"1000": 0}

    latest = reader.ends(start)

    assert latest["1000"] > 10**9
    assert rows(RateSource(10), reader.read("1000", 0, 3)) == [
        (None, {"value": 0}, 1000), (None, {"value": 1}, 1100), (None, {"value": 2}, 1200),
    ]  # fmt: skip


def test_the_same_range_of_a_rate_gives_the_same_records():
    reader = RateReader(rate=7, count=None)

    whole = rows(RateSource(7), reader.read("5", 0, 10))

    assert rows(RateSource(7), [*reader.read("5", 0, 4), *reader.read("5", 4, 10)]) == whole


def test_a_rate_stops_after_its_count():
    assert RateReader(rate=10, count=5).ends({"1000": 0}) == {"1000": 5}


def made(reader, seconds):
    """How many records there are so many seconds after the start."""
    return reader._made(int(seconds * 1000))


def test_a_rate_that_ramps_up_grows_evenly_as_in_spark():
    reader = RateSource(rows_per_second=10, ramp_up=4_000).reader("")

    # Of Spark, with rampUpTime 4: 0 2 6 12 20 30 40. It counts whole seconds, so between the start
    # and the end of the ramp it is ahead by less than a second.
    assert [made(reader, s) for s in range(7)] == [0, 1, 5, 11, 20, 30, 40]
    assert [made(reader, s) - made(reader, s - 1) for s in (5, 6, 7)] == [10, 10, 10]
    assert made(reader, -1) == 0


@pytest.mark.parametrize("ramp_up", [0, 1, 1_000, 1_500, timedelta(seconds=7)])
@pytest.mark.parametrize("rate", [1, 7, 1_000, 90_000])
def test_each_record_of_a_ramp_has_the_time_at_which_it_came(ramp_up, rate):
    reader = RateSource(rate, ramp_up=ramp_up).reader("")
    passed = [reader._passed(i) for i in range(0, 12 * rate, max(1, rate // 97))]

    assert passed == sorted(passed)
    for number, moment in zip(range(0, 12 * rate, max(1, rate // 97)), passed, strict=True):
        assert reader._made(moment - 1) <= number + 1
        assert reader._made(moment + 2) >= number


def test_a_range_of_a_ramp_is_always_the_same():
    reader = RateSource(rows_per_second=100, ramp_up=1_000).reader("")
    (whole,), (part,) = reader.read("5000", 0, 90), reader.read("5000", 40, 60)

    assert part.to_pylist() == whole.to_pylist()[40:60]
    assert whole["timestamp"].to_pylist()[0] == 5000
    assert whole["timestamp"].to_pylist()[50] == 6000


@pytest.mark.parametrize("wrong", [-1, 1.5, "1s", None, timedelta(seconds=-1)])
def test_a_ramp_is_a_duration(wrong):
    with pytest.raises(ConfigError, match="ramp_up(.|\n)*Fix:"):
        RateSource(10, ramp_up=wrong)


@pytest.mark.parametrize(
    ("given", "ours"),
    [({"rowsPerSecond": 9}, "rows_per_second="), ({"rampUpTime": 1}, "ramp_up=timedelta")],
)
def test_names_of_spark_say_what_they_are_called_here(given, ours):
    with pytest.raises(ConfigError, match=f"{next(iter(given))}.*Spark's name(.|\n)*Fix: .*{ours}"):
        RateSource(**{"rows_per_second": 9, **given})


def test_a_rate_never_goes_back():
    assert RateReader(rate=1, count=None).ends({str(2**45): 3}) == {str(2**45): 3}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "10", True])
def test_a_rate_is_one_or_more(wrong):
    with pytest.raises(ConfigError, match="rows_per_second(.|\n)*Fix:"):
        RateSource(wrong)


# --- files ----------------------------------------------------------------------------------


def all_rows(source, tmp_path):
    reader = source.reader(str(tmp_path / "spool"))
    return rows(source, reader.read("files", 0, reader.ends({})["files"]))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


PEOPLE = [{"id": 1, "name": "ä", "t": 10}, {"id": 2, "name": None, "t": 20}]


def test_json_lines_are_read_one_document_a_line(folder, tmp_path):
    (folder / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\r\n  \n{"a": "\u2028"}')

    assert [value for _, value, _ in all_rows(FileSource(folder), tmp_path)] == [
        {"a": 1}, {"a": 2}, {"a": "\u2028"},
    ]  # fmt: skip


def test_json_with_a_key_and_a_time(folder, tmp_path):
    (folder / "a.json").write_text("\n".join(map(json.dumps, PEOPLE)))

    found = all_rows(FileSource(folder, key="id", timestamp="t"), tmp_path)

    assert found == [(1, PEOPLE[0], 10), (2, PEOPLE[1], 20)]


def test_csv_is_read_with_its_header(folder, tmp_path):
    (folder / "a.csv").write_text("id,name,t\n1,x,10\n2,y,20\n")

    found = all_rows(FileSource(folder, "csv", key="name", timestamp="t"), tmp_path)

    assert found == [
        ("x", {"id": 1, "name": "x", "t": 10}, 10),
        ("y", {"id": 2, "name": "y", "t": 20}, 20),
    ]


def test_parquet_is_read(folder, tmp_path):
    pq.write_table(pa.Table.from_pylist(PEOPLE), folder / "a.parquet")

    found = all_rows(FileSource(folder, "parquet", key="name", timestamp="t"), tmp_path)

    assert found == [("ä", PEOPLE[0], 10), (None, PEOPLE[1], 20)]


def test_times_of_parquet_become_milliseconds(folder, tmp_path):
    column = pa.array([1_500], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"at": column}), folder / "a.parquet")

    ((_, _, time),) = all_rows(FileSource(folder, "parquet", timestamp="at"), tmp_path)

    assert time == 1_500


def test_files_keep_the_order_in_which_they_were_seen(folder, tmp_path):
    source = FileSource(folder)
    reader = source.reader(str(tmp_path / "spool"))
    (folder / "b.json").write_text('"b"')
    (folder / "c.json").write_text('"c"')
    assert reader.ends({}) == {"files": 2}
    (folder / "a.json").write_text('"a"')

    again = source.reader(str(tmp_path / "spool"))

    assert again.ends({}) == {"files": 3}
    assert [v for _, v, _ in rows(source, again.read("files", 0, 3))] == ["b", "c", "a"]


def test_one_file_can_be_a_source(folder, tmp_path):
    (folder / "a.json").write_text("1\n2")
    (folder / "b.json").write_text("3")

    assert [v for _, v, _ in all_rows(FileSource(folder / "a.json"), tmp_path)] == [1, 2]


def test_files_that_are_still_being_written_aside_are_not_read(folder, tmp_path):
    (folder / "a.json").write_text("1")
    (folder / "b.json.tmp").write_text('{"half": ')

    assert [v for _, v, _ in all_rows(FileSource(folder), tmp_path)] == [1]


def test_a_file_that_is_gone_is_named_and_left_out_by_its_fix(folder, tmp_path):
    (folder / "a.json").write_text("1")
    (folder / "b.json").write_text("2")
    reader = FileSource(folder).reader(str(tmp_path / "spool"))
    reader.ends({})
    (folder / "a.json").unlink()

    with pytest.raises(TopicError, match="a.json was seen and is gone(.|\n)*Fix:") as caught:
        list(reader.read("files", 0, 2))

    assert 'FileSource(on_missing="skip")' in str(caught.value)
    source = FileSource(folder, on_missing="skip")
    again = source.reader(str(tmp_path / "spool"))
    assert again.ends({}) == {"files": 2}
    assert [v for _, v, _ in rows(source, again.read("files", 0, 2))] == [2]


def test_what_happens_to_a_missing_file_is_one_of_two(folder):
    with pytest.raises(ConfigError, match="on_missing(.|\n)*Fix:"):
        FileSource(folder, on_missing="wait")


def _link_to_nothing(path):
    path.symlink_to(path.with_name("nothing"))


def _link_out(path):
    other = path.parent.parent / "secret.txt"
    other.write_text("1")
    path.symlink_to(other)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (Path.mkdir, "a.json is a folder, not a file"),
        (os.mkfifo, "a.json is a pipe, not a file"),
        (_socket, "a.json is a socket, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link to /dev/zero, which is not in"),
        (_link_to_nothing, "a.json is a link to nothing"),
        (_link_out, "secret.txt, which is not in the folder"),
    ],
    ids=["folder", "pipe", "socket", "device", "broken link", "link that leaves"],
)
def test_only_files_of_the_folder_are_read(folder, tmp_path, make, match):
    make(folder / "a.json")
    reader = FileSource(folder).reader(str(tmp_path / "spool"))

    with pytest.raises(TopicError, match=f"{match}(.|\n)*Fix:"):
        reader.ends({})

    assert reader.known({}) == {"files": 0}


def test_a_file_that_became_a_pipe_is_refused_and_not_waited_for(folder, tmp_path):
    (folder / "a.json").write_text("1")
    reader = FileSource(folder).reader(str(tmp_path / "spool"))
    reader.ends({})
    (folder / "a.json").unlink()
    os.mkfifo(folder / "a.json")

    with pytest.raises(TopicError, match="is a pipe now(.|\n)*Fix:"):
        list(reader.read("files", 0, 1))


def test_a_link_within_the_folder_is_followed(folder, tmp_path):
    (folder / "..data").mkdir()
    (folder / "..data" / "a").write_text("1")
    (folder / "a.json").symlink_to("..data/a")
    link = tmp_path / "link"
    link.symlink_to(folder)

    assert [v for _, v, _ in all_rows(FileSource(folder, name="a"), tmp_path)] == [1]
    assert [v for _, v, _ in all_rows(FileSource(link, name="b"), tmp_path)] == [1]


@pytest.mark.parametrize("path", ["/dev/zero", "a pipe"])
def test_a_source_is_a_file_or_a_folder(tmp_path, path):
    if path == "a pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)

    with pytest.raises(ConfigError, match="not a file or a folder(.|\n)*Fix:"):
        FileSource(path).reader(str(tmp_path))


@pytest.fixture
def new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


MAY = 1_714_521_600_000  # 2024-05-01, midnight UTC


def write_times(folder, format, text):
    if format == "csv":
        (folder / "a.csv").write_text(f"at\n{text}\n")
    elif format == "json":
        (folder / "a.json").write_text(json.dumps({"at": text}))
    else:
        moment = datetime.fromisoformat(text)
        pq.write_table(pa.table({"at": [moment]}), folder / "a.parquet")


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T00:00:00", MAY),
        ("2024-05-01T10:00:00.123", MAY + 36_000_123),
        ("2024-05-01T10:00:00Z", MAY + 36_000_000),
        ("2024-05-01T10:00:00+02:00", MAY + 28_800_000),
    ],
)
def test_a_time_without_a_zone_is_utc_wherever_the_program_runs(
    folder, tmp_path, new_york, format, text, expected
):
    write_times(folder, format, text)

    ((_, _, found),) = all_rows(FileSource(folder, format, timestamp="at"), tmp_path)

    assert found == expected


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_date_is_its_midnight_in_utc(folder, tmp_path, new_york, format):
    write_times(folder, format, "2024-05-01")

    ((_, _, found),) = all_rows(FileSource(folder, format, timestamp="at"), tmp_path)

    assert found == MAY


@pytest.mark.parametrize(
    ("format", "name", "content", "options"),
    [
        ("csv", "a.csv", b"", {}),
        ("csv", "a.csv", b"a,b\n1\n", {}),
        ("csv", "a.csv", b"a\n1\n", {"key": "missing"}),
        ("parquet", "a.parquet", b"not parquet", {}),
        ("json", "a.json", b'{"a": 1}', {"key": "missing"}),
        ("json", "a.json", b"{half", {"key": "a"}),
        ("json", "a.json", b"5", {"key": "a"}),
        ("json", "a.json", b'{"t": null}', {"timestamp": "t"}),
        ("json", "a.json", b'{"t": "soon"}', {"timestamp": "t"}),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_a_fix(
    folder, tmp_path, format, name, content, options
):
    (folder / name).write_bytes(content)

    with pytest.raises(MillpondError, match=f"{name}(.|\n)*Fix:"):
        all_rows(FileSource(folder, format, **options), tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no file or folder(.|\n)*Fix:"):
        FileSource(tmp_path / "nowhere").reader(str(tmp_path))


def test_another_format_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not 'xml'(.|\n)*Fix:"):
        FileSource(tmp_path, format="xml")


# --- Spark's own ----------------------------------------------------------------------------


class Streaming:
    isStreaming = True
    columns = ("id", "at")


def test_a_spark_source_takes_a_streaming_frame_only():
    with pytest.raises(ConfigError, match="streaming DataFrame(.|\n)*Fix:"):
        SparkSource([1])


def test_a_spark_source_checks_its_columns():
    SparkSource(Streaming(), key="id", timestamp="at")

    with pytest.raises(ConfigError, match="no column 'user'(.|\n)*Fix:"):
        SparkSource(Streaming(), key="user")
