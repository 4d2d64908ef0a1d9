import errno
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.folders import Scratch
from millpond.wire.packed_rows import records_schema
from millpond.wire.payloads import Payloads, read_payload


def records(count, first=0):
    schema = records_schema(0)
    columns = [
        pa.array([b"key-%d" % i for i in range(first, first + count)], pa.binary()),
        pa.array([b"x" * (i % 50) for i in range(count)], pa.binary()),
        *(pa.array(range(count), field.type) for field in list(schema)[2:]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.fixture
def folder():
    folder = Scratch("millpond-rows-")
    yield folder
    folder.remove()


@pytest.mark.parametrize("count", [0, 1, 10, 100, 10_000])
def test_what_is_written_is_read_again(folder, count):
    for place in (None, folder.path):
        payload = Payloads(place).write(records(count))
        assert read_payload(payload, 0).equals(records(count))
        assert read_payload(pa.py_buffer(payload), 0).equals(records(count))


def test_only_what_is_large_goes_to_a_file_one_for_each_task(folder):
    first, second = Payloads(folder.path), Payloads(folder.path)
    small = first.write(records(10))
    assert list(Path(folder.path).iterdir()) == []

    large = [first.write(records(1000, first=i)) for i in range(5)] + [second.write(records(1000))]

    assert len(small) > 300 > max(map(len, large))
    assert len(list(Path(folder.path).iterdir())) == 2
    assert [read_payload(p, 0).column("key")[0].as_py() for p in large] == [
        *(b"key-%d" % i for i in range(5)),
        b"key-0",
    ]


def test_what_was_read_stays_when_the_files_are_removed(folder):
    payload = Payloads(folder.path).write(records(5000))
    found = read_payload(payload, 0)
    folder.clear()

    assert list(Path(folder.path).iterdir()) == []
    assert found.equals(records(5000))


def test_a_task_that_is_done_leaves_no_file_open_and_may_go_on(folder):
    payloads = Payloads(folder.path)
    first = payloads.write(records(5000))
    payloads.close()
    payloads.close()

    assert read_payload(payloads.write(records(4000)), 0).num_rows == 4000
    assert read_payload(first, 0).num_rows == 5000
    assert pickle.loads(pickle.dumps(Payloads(folder.path)))  # noqa: S301 - our own


def test_where_there_is_no_room_rows_carry_everything(folder, monkeypatch):
    payloads = Payloads(folder.path)
    first = payloads.write(records(2000))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    second = payloads.write(records(3000))

    assert len(first) < 300 < len(second)
    assert read_payload(first, 0).num_rows == 2000
    assert read_payload(second, 0).num_rows == 3000


def test_a_folder_that_was_cleaned_away_stops_nothing(folder):
    payloads = Payloads(folder.path)
    folder.remove = lambda: None
    Path(folder.path).rmdir()

    folder.clear()
    assert read_payload(payloads.write(records(3000)), 0).num_rows == 3000
