"""What a batch reads at most, and how it is shared out among tasks."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import millpond as mp
from millpond.config import DEFAULT_BATCH
from millpond.connectors.as_source import as_source
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.connectors.sources import LogReader
from millpond.driver.timekeeper import Clockwork
from millpond.spark import source
from millpond.spark.source import FORMAT, RangeReader, ReaderSettings
from millpond.state.codec import Codec
from millpond.worker.history import HistoryReader


def reader_of(tmp_path, tasks=2, **readers):
    work, clock = Clockwork((), {}, 32), str(tmp_path / "clock.json")
    return RangeReader(ReaderSettings(readers, {}, "earliest", DEFAULT_BATCH, tasks, work, clock))


def batches(reader, most=DEFAULT_BATCH):
    """Yield the ranges of each task, of one batch after the other, until all is read."""
    start = reader.initialOffset()
    while True:
        end = reader.latestOffset(start, ReadMaxRows(most))
        if end[FORMAT] == start[FORMAT]:
            return
        yield [
            [(name, low, high) for name, _, low, high, _ in task.ranges]
            for task in reader.partitions(start, end)
        ]
        start = end


def topic(tmp_path, name, *segments):
    """A topic with segments of (records, bytes of each)."""
    log = Log(tmp_path / "topics")
    log.create(name, 1)
    for count, size in segments:
        columns = [[None] * count, [b"x" * size] * count, [0] * count, [None] * count]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SEGMENT)], SEGMENT)
        log.append(name, 0, table)
    return LogReader(str(log.path), name)


def files(tmp_path, sizes, format="json", name="files"):
    folder = tmp_path / name
    folder.mkdir()
    for number, size in enumerate(sizes):
        (folder / f"{number:05}.{format}").write_bytes(b"1" * size)
    return mp.FileSource(folder, format).reader(str(tmp_path / "spool"))


def test_records_that_wait_are_read_a_million_at_a_time_by_all_tasks(tmp_path):
    a_minute_ago = {str(time.time_ns() // 1_000_000 - 60_000): 0}
    reader = reader_of(tmp_path, a=mp.RateSource(10**6, count=2_500_000).reader(""))
    reader._settings.starts["a"] = a_minute_ago

    assert [[high - low for ((_, low, high),) in tasks] for tasks in batches(reader)] == [
        [500_000, 500_000],
        [500_000, 500_000],
        [250_000, 250_000],
    ]


def test_large_records_make_smaller_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_BATCH_BYTES", 100_000)
    reader = reader_of(tmp_path, tasks=1, a=topic(tmp_path, "a", (50, 10_000)))

    sizes = [high - low for (((_, low, high),),) in batches(reader)]

    assert sum(sizes) == 50
    assert max(sizes) <= 10


def test_a_record_larger_than_a_batch_may_be_is_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_BATCH_BYTES", 100)
    reader = reader_of(tmp_path, tasks=1, a=topic(tmp_path, "a", (3, 10_000)))

    assert len(list(batches(reader))) == 3


@pytest.mark.parametrize(("format", "swelling"), [("json", 1), ("csv", 4), ("parquet", 10)])
def test_files_are_limited_by_their_bytes(tmp_path, monkeypatch, format, swelling):
    monkeypatch.setattr(source, "_BATCH_BYTES", 1_000 * swelling)
    sizes = [400, 400, 400, 5_000, 100, 100, 900, 1]
    reader = reader_of(tmp_path, tasks=1, a=files(tmp_path, sizes, format))

    cut = [(low, high) for (((_, low, high),),) in batches(reader)]

    assert cut == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8)]  # one that is too large is alone


def test_files_in_the_place_of_a_topic_are_limited_too(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_BATCH_BYTES", 1_000)
    clicks = mp.Application(topics_dir=tmp_path, consumer_group="g").topic("clicks")
    history = HistoryReader(files(tmp_path, [600] * 3), clicks)

    assert len(list(batches(reader_of(tmp_path, tasks=1, clicks=history)))) == 3


def test_folders_and_topics_share_the_bytes_of_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_BATCH_BYTES", 300_000)
    reader = reader_of(
        tmp_path,
        tasks=1,
        a=topic(tmp_path, "a", (100, 10)),
        b=files(tmp_path, [40_000] * 4),
        c=files(tmp_path, [90_000] * 3, name="others"),
    )

    first, second, *rest = batches(reader)

    assert first == [[(0, 0, 100), (1, 0, 2), (2, 0, 1)]]
    assert second == [[(1, 2, 4), (2, 1, 2)]]  # the topic has no more, so each has half
    assert rest == [[[(2, 2, 3)]]]


def test_a_source_that_is_idle_is_not_asked_all_the_time(tmp_path):
    class Idle(mp.Source):
        name, asked = "idle", 0

        def ends(self):
            self.asked += 1
            return {"0": 0}

        def read(self, partition, start, end):
            return []

    source = Idle()
    reader = reader_of(tmp_path, a=as_source(source, Codec()).reader(""))
    start = reader.initialOffset()
    for _ in range(50):
        reader.latestOffset(start, ReadMaxRows(10))

    assert source.asked < 10


def test_files_are_counted_by_max_records_per_batch(tmp_path):
    reader = reader_of(tmp_path, tasks=1, a=files(tmp_path, [1] * 5))

    assert [(low, high) for (((_, low, high),),) in batches(reader, most=2)] == [
        (0, 2),
        (2, 4),
        (4, 5),
    ]


def test_all_tasks_read_files_and_one_reads_a_few_records(tmp_path):
    reader = reader_of(tmp_path, a=topic(tmp_path, "a", (100, 1)), b=files(tmp_path, [1] * 5))

    assert list(batches(reader)) == [[[(0, 0, 100), (1, 0, 3)], [(1, 3, 5)]]]
