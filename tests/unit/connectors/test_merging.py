"""Small segments are merged; nobody who reads, writes or dies meanwhile notices."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.connectors.log import Log
from millpond.connectors.merging import Merger, choose
from millpond.connectors.segments import SEGMENT, Segment, find_segments, opened


@pytest.fixture
def quiet(monkeypatch):
    """Segments are merged when the test says so, not meanwhile."""
    monkeypatch.setattr(Merger, "appended", lambda self: None)


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    log.create("clicks", 1)
    return log


def table(*values):
    rows = [(b"k", value, i, b"h") for i, value in enumerate(values)]
    columns = zip(zip(*rows, strict=True), SEGMENT, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in columns], SEGMENT)


def write(log, count, first=0, writer="app"):
    for i in range(first, first + count):
        log.append("clicks", 0, table(*(b"%d.%d" % (i, j) for j in range(1 + i % 3))), writer, i)


def written(count):
    return [b"%d.%d" % (i, j) for i in range(count) for j in range(1 + i % 3)]


def values(log, start=0):
    batches = log.read("clicks", 0, start, log.end("clicks", 0))
    return [value for batch in batches for value in batch["value"].to_pylist()]


def files(log):
    names = (p.name for p in (log.path / "clicks" / "0").iterdir())
    return sorted(name for name in names if "." in name and not name.endswith(".end"))


# --- what is merged -------------------------------------------------------------------------


def test_450_batches_of_a_record_do_not_stay_450_files(log, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    write(log, 450)

    log.merge("clicks")
    until = time.monotonic() + 10
    while len(files(log)) > 70 and time.monotonic() < until:  # a merge may have been on its way
        time.sleep(0.01)
        log.merge("clicks")

    assert len(files(log)) <= 70
    assert values(Log(log.path)) == values(log) == written(450)


def test_segments_are_merged_while_they_are_written(log):
    write(log, 200)

    until = time.monotonic() + 10
    while len(files(log)) > 100 and time.monotonic() < until:
        time.sleep(0.01)

    assert len(files(log)) <= 100
    assert values(log) == written(200)


def test_a_merged_segment_begins_where_the_first_did_and_ends_where_the_last_did(log, quiet):
    write(log, 40)
    ends = [s.end for s in find_segments(log.path / "clicks" / "0")]

    log.merge("clicks")

    assert files(log) == [
        f"{0:020}-{ends[38]:020}.arrow",
        f"{ends[38]:020}-{ends[39]:020}.arrow",
    ]


def test_keys_times_and_headers_are_merged_too(log, quiet):
    write(log, 40)
    before = pa.Table.from_batches(log.read("clicks", 0, 0, log.end("clicks", 0)))

    log.merge("clicks")

    after = pa.Table.from_batches(Log(log.path).read("clicks", 0, 0, log.end("clicks", 0)))
    assert after.equals(before)


def segments(*sizes):
    return [(Segment(Path(), str(i), i, i + 1), size) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([10] * 32, range(0)),  # the newest is left alone
        ([10] * 33, range(32)),
        ([10] * 5 + [10**6] + [10] * 33, range(6, 38)),
        ([10**6] * 33, range(32)),
        ([10] * 20 + [10**5] * 20, range(39)),
        ([10**7] * 4, range(0)),
        ([10**7] * 5, range(4)),
        ([10**7] * 9, range(6)),
        ([10**8] * 100, range(0)),
    ],
    ids=str,
)
def test_what_is_merged_lies_side_by_side_and_is_of_a_size(sizes, chosen):
    assert [s.first for s in choose(segments(*sizes))] == list(chosen)


def test_segments_with_a_gap_between_them_are_not_merged():
    apart = [(Segment(Path(), "", 2 * i, 2 * i + 1), 10) for i in range(100)]

    assert choose(apart) == []


def test_the_bytes_written_again_grow_with_the_number_of_sizes_only(log, quiet, monkeypatch):
    count, again = 1_000, []
    merge = Merger._merge

    def counted(self, chosen):
        again.append(sum(s.path.stat().st_size for s in chosen))
        merge(self, chosen)

    monkeypatch.setattr(Merger, "_merge", counted)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    total = 0
    for i in range(count):
        log.append("clicks", 0, table(os.urandom(4_000)))
        total += 4_000
        if i % 32 == 0:
            log.merge("clicks")

    assert sum(again) < 4 * total
    assert len(files(log)) <= 100


# --- who reads and writes meanwhile ---------------------------------------------------------


def test_a_reader_that_lists_files_of_before_reads_on(log, quiet):
    write(log, 100)
    reader = Log(log.path)
    end = reader.end("clicks", 0)
    batches = reader.read("clicks", 0, 0, end)
    found = next(batches)["value"].to_pylist()

    log.merge("clicks")

    for batch in batches:
        found += batch["value"].to_pylist()
    assert found == written(100)
    for start in range(0, end, 7):
        assert values(reader, start) == written(100)[start:]


def test_a_file_that_is_open_is_read_to_its_end_after_it_was_merged(log, quiet):
    write(log, 40)
    (segment, *_) = find_segments(log.path / "clicks" / "0")

    with opened(segment) as parts:
        log.merge("clicks")
        assert not segment.path.exists()
        assert [part.num_rows for part in parts] == [1]


def test_an_appender_that_has_not_looked_since_appends_at_the_end(log, quiet):
    write(log, 10)
    other = Log(log.path)
    assert other.end("clicks", 0) == 19
    write(log, 90, first=10)
    log.merge("clicks")

    other.append("clicks", 0, table(b"100.0", b"100.1"), "other", 1)

    assert values(log) == values(other) == [*written(100), b"100.0", b"100.1"]


def test_two_merge_at_a_time_and_one_does(log, quiet):
    write(log, 100)
    mergers = [threading.Thread(target=Log(log.path).merge, args=("clicks",)) for _ in range(4)]
    for merger in mergers:
        merger.start()
    for merger in mergers:
        merger.join()
    log.merge("clicks")

    assert len(files(log)) == 2
    assert values(Log(log.path)) == written(100)


_WRITER = """
import sys
import pyarrow as pa
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
log = Log(sys.argv[1])
for i in range(100):
    value = sys.argv[2].encode() + b".%d" % i
    row = {"key": [None], "value": [value], "timestamp": [i], "headers": [None]}
    log.append("clicks", 0, pa.table(row, SEGMENT))
"""


def test_readers_see_no_gap_and_nothing_twice_while_two_processes_write_and_merge(log):
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(log.path), name])
        for name in ("a", "b")
    ]
    fresh, position, found = 0, 0, []
    while any(writer.poll() is None for writer in writers):
        end = log.end("clicks", 0)
        for batch in log.read("clicks", 0, position, end):
            found += batch["value"].to_pylist()
        position = end
        other = Log(log.path)
        assert other.start("clicks", 0) == 0
        assert fresh <= (fresh := other.end("clicks", 0))
        assert len(values(other)) >= fresh
    found += values(log, position)

    assert [writer.returncode for writer in writers] == [0, 0]
    for name in (b"a", b"b"):
        assert [v for v in found if v[:1] == name] == [name + b".%d" % i for i in range(100)]
    assert len(files(log)) < 120


# --- exactly once ---------------------------------------------------------------------------


def test_a_merged_segment_knows_the_last_batch_of_every_writer(log, quiet):
    log.append("clicks", 0, table(b"x"), "one", 7)
    write(log, 100, writer="two")
    log.append("clicks", 0, table(b"y"))
    log.merge("clicks")
    (log.path / "clicks" / "0" / files(log)[-1]).unlink()  # what is left is the merged one
    next((log.path / "clicks" / "0").glob("*.end")).unlink()

    again = Log(log.path)

    assert not again.append("clicks", 0, table(b"x"), "one", 7)
    assert not again.append("clicks", 0, table(b"x"), "two", 99)
    assert again.append("clicks", 0, table(b"z"), "two", 100)


# --- crashes --------------------------------------------------------------------------------


class Death(BaseException):
    """The process ends here."""


class Disk:
    """Ends the process before its n-th change of a file, or in the middle of a write."""

    def __init__(self, monkeypatch, steps, tears=False):
        self.left, self._tears, self._fsync = steps, tears, os.fsync
        for owner, name in (
            (os, "fsync"),
            (Path, "rename"),
            (Path, "unlink"),
            (pa, "OSFile"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, change):
        def counted(*args, **options):
            if change is pa_file and args[1:] != ("wb",):
                return change(*args, **options)  # it reads
            self.left -= 1
            if self.left < 0:
                self._tear(change, args)
                raise Death
            return change(*args, **options)

        return counted

    def _tear(self, change, args):
        """Leave half of the file that is being written."""
        if self._tears and change is self._fsync:
            path = Path(f"/proc/self/fd/{args[0]}")
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)


pa_file = pa.OSFile


@pytest.mark.parametrize("tears", [False, True], ids=["between", "within"])
def test_a_merge_may_end_at_any_point(tmp_path, quiet, monkeypatch, tears):
    steps, is_done = 0, False
    monkeypatch.setattr(os, "fsync", lambda file: None)
    while not is_done:
        log = Log(tmp_path / f"{tears}-{steps}")
        log.create("clicks", 1)
        write(log, 35)
        with monkeypatch.context() as patch:
            Disk(patch, steps, tears)
            try:
                log.merge("clicks")
                is_done = True
            except Death:
                pass

        after = Log(log.path)
        assert values(after) == written(35)
        assert not after.append("clicks", 0, table(b"x"), "app", 34)
        after.append("clicks", 0, table(b"35.0", b"35.1", b"35.2"), "app", 35)
        assert values(Log(log.path)) == values(log) == written(36)
        after.merge("clicks")
        assert len(files(log)) <= 3, "what the dead one left is tidied up"
        assert values(Log(log.path)) == values(log) == written(36)
        steps += 1

    assert steps > 35  # one for each file that is removed, and those before


def test_segments_of_before_are_read_appended_to_and_merged(tmp_path, quiet):
    log = as_format_1(tmp_path, 40)

    assert log.end("clicks", 0) == len(written(40))
    assert values(log) == written(40)
    assert not log.append("clicks", 0, table(b"x"), "app", 39)
    write(log, 3, first=40)
    assert values(Log(tmp_path)) == written(43)
    log.merge("clicks")

    assert values(Log(tmp_path)) == values(log) == written(43)
    assert len(files(log)) == 2


def as_format_1(path, count):
    """A topic as version 0.1 wrote it: the end is not in the name, and there is no checksum."""
    import json

    folder = path / "clicks" / "0"
    folder.mkdir(parents=True)
    (path / "clicks" / "topic.json").write_text('{"format": 1, "partitions": 1}')
    first = 0
    for i in range(count):
        rows = table(*(b"%d.%d" % (i, j) for j in range(1 + i % 3)))
        metadata = {b"format": b"1", b"writers": json.dumps({"app": i}).encode()}
        rows = rows.replace_schema_metadata(metadata)
        with pa.ipc.new_file(str(folder / f"{first:020}.arrow"), rows.schema) as sink:
            sink.write_table(rows)
        first += rows.num_rows
    return Log(path)
