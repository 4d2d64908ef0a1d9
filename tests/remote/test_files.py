"""Files behave the same on this machine, in HDFS and in S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from millpond.errors import StateError
from millpond.spark.internals.hadoop import HadoopFiles
from millpond.storage.files import Location, local

pytestmark = pytest.mark.spark


@pytest.fixture(params=["local", "hdfs", "s3"])
def folder(request, spark, tmp_path):
    """A folder that is not there yet."""
    if request.param == "local":
        return local(tmp_path / "folder")
    url = request.getfixturevalue(request.param).url
    return Location(HadoopFiles(spark), f"{url}/{uuid4().hex}")


def test_what_is_written_is_read(folder):
    file = folder / "a" / "file"
    assert file.read() is None

    file.write(b"one")
    file.write(b"two, and longer")
    file.put(b"three")

    assert file.read() == b"three"
    assert [(info.name, info.is_folder, info.size) for info in (folder / "a").entries()] == [
        ("file", False, 5)
    ]
    assert [(info.name, info.is_folder) for info in folder.entries()] == [("a", True)]
    assert file.exists() and not (folder / "b").exists()


def test_what_is_written_again_is_read_and_copied_as_it_is_now(folder):
    file = folder / "file"
    for data in (b"one", b"two, and longer", b"3"):
        file.write(data)
        assert file.read() == data
        file.copy_to(folder / "copy")
        assert (folder / "copy").read() == data
        file.delete()


def test_a_file_that_is_replaced_meanwhile_is_read_whole(folder):
    file, sizes, read = folder / "file", range(1, 40), []
    file.write(b"x")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [file.write(b"x" * size) for size in sizes])
        while not writing.done():
            read.append(file.read())
        writing.result()

    assert len(read) > 1
    assert all(data is not None and data == b"x" * len(data) and data for data in read)


def test_what_is_not_there_is_empty(folder):
    assert (folder / "nothing").entries() == []
    assert (folder / "nothing").read() is None
    (folder / "nothing").delete()
    with pytest.raises(FileNotFoundError):
        (folder / "nothing").copy_to(folder / "copy")


def test_many_bytes_and_none_pass_unchanged(folder):
    for data in (b"", bytes(range(256)) * 8192):
        (folder / "file").write(data)
        assert (folder / "file").read() == data


def test_of_many_who_create_a_file_one_does(folder):
    def create(number):
        return (folder / "file").create(b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(create, range(8)))

    assert made.count(True) == 1
    assert (folder / "file").read() == b"%d" % made.index(True)
    assert [info.name for info in folder.entries()] == ["file"]


def test_files_are_copied_and_folders_deleted(folder):
    for name in ("a", "b/c", "b/d/e"):
        (folder / "from" / name).write(name.encode())

    for place, info in (folder / "from").walk():
        place.copy_to(folder / "to" / place.path.rpartition("/from/")[2])
        assert info.size == len(place.read())
    (folder / "from").delete()

    assert not (folder / "from").exists()
    found = {place.path.removeprefix(folder.path): place.read() for place, _ in folder.walk()}
    assert found == {"/to/a": b"a", "/to/b/c": b"b/c", "/to/b/d/e": b"b/d/e"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere://bucket/folder", "connector"),
        ("hdfs://127.0.0.1:1/folder", "that the store answers"),
    ],
)
def test_a_store_that_cannot_be_reached_is_reported(spark, url, said):
    with pytest.raises(StateError, match=said) as raised:
        Location(HadoopFiles(spark), url).read()
    assert "\tat " not in str(raised.value)
