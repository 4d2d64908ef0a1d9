"""Rows of files as records: a bad row is one bad record, whatever is in the file beside it."""

import gzip
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millpond import FileSource
from millpond.connectors import file_rows
from millpond.connectors.file_rows import RowError
from millpond.connectors.serde import fast
from millpond.errors import SerializationError, TopicError
from millpond.worker.read_source import read_range

T = 1_714_521_600_000


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def reader_of(source, folder):
    return source.reader(str(folder.parent / "spool"))


def records(source, folder):
    """Return (offset, key, value, time) of each record; the error where it cannot be read."""
    reader = reader_of(source, folder)
    parts = read_range(reader, 0, "files", 0, reader.ends({})["files"])
    found = []
    for part in parts:
        for row in part.to_pylist():
            key = None if row["key"] is None else source.key_deserializer(row["key"])
            try:
                value = fast(source.value_deserializer)(row["value"])
            except Exception as error:
                value = error
            try:
                assert source.value_deserializer(row["value"]) == value
            except SerializationError as error:
                assert isinstance(value, Exception)
                value = error
            found.append((row["offset"], key, value, row["timestamp"]))
    return found


def texts(found):
    return [str(value) if isinstance(value, Exception) else value for _, _, value, _ in found]


def write(folder, format, rows):
    if format == "json":
        (folder / "a.json").write_text("\n".join(map(json.dumps, rows)))
    elif format == "csv":
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
        (folder / "a.csv").write_text("\n".join([",".join(rows[0]), *lines]))
    else:
        pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")


@pytest.mark.parametrize(
    ("format", "bad", "place", "shown"),
    [
        ("json", 1e30, "a.json, line 2", "1e+30"),
        ("json", "soon", "a.json, line 2", "'soon'"),
        ("json", None, "a.json, line 2", "None"),
        ("json", True, "a.json, line 2", "True"),
        ("json", [], "a.json, line 2", "[]"),
        ("json", 2**63, "a.json, line 2", str(2**63)),
        ("csv", 1e30, "a.csv, row 3", "1e+30"),
        ("csv", "soon", "a.csv, row 3", "'soon'"),
        ("csv", None, "a.csv, row 3", "None"),
        ("parquet", 1e30, "a.parquet, row 2", "1e+30"),
        ("parquet", float("inf"), "a.parquet, row 2", "inf"),
        ("parquet", None, "a.parquet, row 2", "None"),
    ],
)
def test_a_time_that_is_none_is_the_error_of_its_record(folder, format, bad, place, shown):
    times = [float(T) if isinstance(bad, float) and format == "parquet" else T, bad, T + 1]
    write(folder, format, [{"user": "ann", "t": t} for t in times])

    first, second, third = records(FileSource(folder, format, "user", "t"), folder)

    assert (first[0], first[1], first[3]) == (0, "ann", T)
    assert (third[0], third[1], third[3]) == (2, "ann", T + 1)
    assert second[:2] == (1, None)
    said = f"{folder}/{place}: timestamp='t' is {shown}, no milliseconds and no date and time."
    assert str(second[2]).startswith(said)
    assert "\nFix: correct the row in the file, or key= and timestamp=" in str(second[2])


@pytest.mark.parametrize(
    "line", [b"{half", b"", b"5", b'["a"]', b'{"other": 1}', b'{"user": "\xff"}']
)
def test_a_broken_line_is_the_error_of_its_record(folder, line):
    (folder / "a.json").write_bytes(b'{"user": "a"}\n%b\n\n{"user": "b"}' % (line or b"nul"))

    first, second, third = records(FileSource(folder, key="user"), folder)

    assert (first[1:3], third[1:3]) == (("a", {"user": "a"}), ("b", {"user": "b"}))
    assert isinstance(second[2], RowError)
    assert f"{folder}/a.json, line 2: " in str(second[2])
    assert "\nFix: " in str(second[2])
    assert second[2].row == (line or b"nul")


def test_keys_of_another_type_in_another_file_are_other_keys(folder):
    pq.write_table(pa.table({"user": ["a", "b"]}), folder / "a.parquet")
    pq.write_table(pa.table({"user": [b"a", b"\xff"]}), folder / "b.parquet")

    found = records(FileSource(folder, "parquet", "user"), folder)

    assert [key for _, key, _, _ in found] == ["a", "b", b"a", b"\xff"]


def test_a_file_with_other_columns_gives_records_that_cannot_be_read(folder):
    pq.write_table(pa.table({"user": ["a"], "n": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"name": ["b"], "n": [2]}), folder / "b.parquet")

    first, second = records(FileSource(folder, "parquet", "user"), folder)

    assert first[1:3] == ("a", {"user": "a", "n": 1})
    assert f"{folder}/b.parquet, row 1: key='user', but it has only name, n." in str(second[2])


# --- CSV ------------------------------------------------------------------------------------


def test_a_ragged_row_is_one_bad_record_and_the_others_keep_their_types(folder):
    (folder / "a.csv").write_text("user,n\nann,1\nbob\ncid,2,3\ndan,4\n")

    found = records(FileSource(folder, "csv", "user"), folder)

    assert [(offset, key) for offset, key, _, _ in found] == [
        (0, "ann"), (1, None), (2, None), (3, "dan"),
    ]  # fmt: skip
    assert (found[0][2], found[3][2]) == ({"user": "ann", "n": 1}, {"user": "dan", "n": 4})
    said = f"{folder}/a.csv, row 3: it has 1 value(s) for 2 column(s)."
    assert str(found[1][2]).startswith(said)
    assert found[1][2].row == b"bob"
    assert f"{folder}/a.csv, row 4: it has 3 value(s)" in str(found[2][2])


def test_bytes_that_are_no_text_are_one_bad_record_and_the_others_keep_their_types(folder):
    (folder / "a.csv").write_bytes(b'user,n\n"ann, x",1\n\xff\xfe,2\nbob,\xff\n\xff\ncid,3\n')

    found = records(FileSource(folder, "csv", "user"), folder)

    assert [key for _, key, _, _ in found] == ["ann, x", None, None, None, "cid"]
    assert [value["n"] for _, key, value, _ in found if key] == [1, 3]
    assert f"{folder}/a.csv, row 3: it is not UTF-8." in str(found[1][2])
    assert found[1][2].row == "\ufffd\ufffd,2".encode()
    assert f"{folder}/a.csv, row 4: it is not UTF-8." in str(found[2][2])
    assert f"{folder}/a.csv, row 5: it has 1 value(s)" in str(found[3][2])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa,b\n1,x\n", [{"a": 1, "b": "x"}]),
        (b"a,b\r\n1,x\r\n2,y\r\n", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        (b"a,b\n1,\x00\n", [{"a": 1, "b": "\x00"}]),
        (b"a,b\n", []),
        (b"a,b\n1," + b"x" * 3_000_000 + b"\n", [{"a": 1, "b": "x" * 3_000_000}]),
        (b'a,b\n1,"x\ny"\n3\n', [{"a": 1, "b": "x\ny"}, "row 3: it has 1 value(s)"]),
        (b'a,b\n,""\n1\n5,x\n', [{"a": None, "b": ""}, "row 3: it", {"a": 5, "b": "x"}]),
    ],
    ids=["mark", "crlf", "nul", "header only", "long row", "line in a value", "empty"],
)
def test_csv_as_other_programs_write_it(folder, content, expected):
    (folder / "a.csv").write_bytes(content)

    found = texts(records(FileSource(folder, "csv"), folder))

    assert len(found) == len(expected)
    for value, wanted in zip(found, expected, strict=True):
        assert wanted in value if isinstance(wanted, str) else value == wanted


@pytest.mark.parametrize(
    "content",
    [
        b'a,b\n,""\n5,x\n',
        b'a,b\n"1",NA\n5,\n',
        b'a,b\n"x ""q"" y",true\n"",false\n',
        b"a,b\n2024-01-01,1.50\n2024-01-02,2\n",
        b"a,b\n001,1e3\n2,nan\n",
        b"a, b\n 1, x\n",
        b"a,b\n2024-01-01T00:00:00Z,99999999999999999999\n,1\n",
        b'a\n""\n1\n',
        b'"a,x","b""y"\n1,2\n',
        b'a,b\n"x\r\ny",1\n',
    ],
)
def test_rows_beside_a_bad_one_are_read_as_they_are_without_it(folder, content):
    (folder / "a.csv").write_bytes(content)
    (folder / "b.csv").write_bytes(content + b"1,2,3\n")

    found = records(FileSource(folder, "csv"), folder)
    alone, beside = found[: len(found) // 2], found[len(found) // 2 : -1]

    assert repr([value for _, _, value, _ in alone]) == repr([value for _, _, value, _ in beside])
    assert isinstance(found[-1][2], RowError)


# --- JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}]),
        (b'{"a": 1}\x00\n{"a": 2}', ["JSON is malformed", {"a": 2}]),
        (b'\x00{"a": 1}\n{"a": 2}', ["JSON is malformed", {"a": 2}]),
        (b'{"a": "\xff"}\n{"a": 2}', ["codec can't decode byte 0xff", {"a": 2}]),
        (b"[" * 100_000 + b'\n{"a": 2}', ["recursion", {"a": 2}]),
    ],
    ids=["empty", "blank", "mark and crlf", "nul", "nul first", "not utf-8", "deep"],
)
def test_json_as_other_programs_write_it(folder, key, content, expected):
    (folder / "a.json").write_bytes(content)

    found = texts(records(FileSource(folder, key=key), folder))

    assert len(found) == len(expected)
    for value, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, str):
            assert wanted in value and "\nFix: " in value
        else:
            assert value == wanted


def test_a_line_of_200_megabytes_is_a_record(folder):
    (folder / "a.json").write_bytes(b'{"n": 1}\n{"n": "%b"}\n{"n": 2}' % (b"x" * 200_000_000))
    source = FileSource(folder, key="n")
    reader = reader_of(source, folder)
    reader.ends({})

    found = pa.Table.from_batches(reader.read_file(0))

    assert pc.binary_length(found["value"]).to_pylist() == [8, 200_000_009, 8]
    assert pc.binary_length(found["key"])[1].as_py() > 200_000_000


def test_a_large_file_is_read_in_parts(folder, monkeypatch):
    monkeypatch.setattr(file_rows, "_SEGMENT_BYTES", 20)
    (folder / "a.json").write_text("\n".join(str(10**n) for n in range(12)))
    source = FileSource(folder)

    reader = reader_of(source, folder)
    reader.ends({})

    assert len(list(reader.read_file(0))) > 3
    assert [(offset, value) for offset, _, value, _ in records(source, folder)] == [
        (n, 10**n) for n in range(12)
    ]


# --- files that cannot be read at all -------------------------------------------------------


def parquet(rows=1000):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [f"{i}" * 50 for i in range(rows)]}), sink)
    return sink.getvalue().to_pybytes()


def corrupt(data):
    return data[:200] + bytes(100) + data[300:]


ZIPPED = gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)


@pytest.mark.parametrize(
    ("format", "content", "what"),
    [
        ("csv", b"", "Empty CSV"),
        ("csv", b"\n", "Empty CSV"),
        ("csv", b"\xff,b\n1,2\n", "can't decode byte 0xff"),
        ("csv", b"\xff,b\n1\n", "header is not UTF-8"),
        ("csv", b"a,a\n1,2\n", "several columns 'a'"),
        ("csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("csv", ZIPPED, "compressed with gzip"),
        ("csv", ZIPPED[:-20], "compressed with gzip"),
        ("json", ZIPPED[:-20], "compressed with gzip"),
        ("json", '{"a": 1}'.encode("utf-16"), "UTF-16"),
        ("parquet", b"", "size is 0 bytes"),
        ("parquet", b"not parquet", "Parquet magic bytes"),
        ("parquet", parquet()[:-9], "Parquet magic bytes"),
        ("parquet", corrupt(parquet()), "orrupt"),
        ("parquet", ZIPPED, "compressed with gzip"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_its_fix_is_followed(folder, format, content, what):
    names = [folder / f"{n}.{format}" for n in "abc"]
    good = {"json": b'{"a": 1}', "csv": b"a\n1\n", "parquet": parquet(2)}[format]
    for name in names:
        name.write_bytes(content if name is names[1] else good)
    source = FileSource(folder, format)

    with pytest.raises(TopicError) as caught:
        records(source, folder)

    assert str(caught.value).startswith(f"file {names[1]} cannot be read as {format}: ")
    assert what in str(caught.value)
    assert "Fix: correct the file, or format=; or remove it and go on without it" in str(
        caught.value
    )
    names[1].write_bytes(good)
    corrected = records(source, folder)
    names[1].unlink()
    without = records(FileSource(folder, format, on_missing="skip"), folder)
    assert (len(corrected), len(without)) == (3 * len(without) // 2, len(without))


def test_a_value_of_parquet_that_python_has_none_for_is_one_bad_record(folder):
    far = pa.array([0, 2**62, 1000], pa.timestamp("ms"))
    pq.write_table(pa.table({"user": ["a", "b", "c"], "at": far}), folder / "a.parquet")

    first, second, third = records(FileSource(folder, "parquet", "user"), folder)

    assert (first[1], third[1]) == ("a", "c")
    assert f"{folder}/a.parquet, row 2: it has a value that Python has none for" in str(second[2])


def test_a_file_that_may_not_be_read_is_named_and_its_fix_is_followed(tmp_path):
    program = f"""
from pathlib import Path
from millpond import FileSource
folder = Path({str(tmp_path / "in")!r})
folder.mkdir()
(folder / "a.json").write_text("1")
(folder / "b.json").write_text("2")
(folder / "a.json").chmod(0)
def values(source):
    reader = source.reader({str(tmp_path / "spool")!r})
    parts = reader.read("files", 0, reader.ends({{}})["files"])
    return [v for part in parts for v in part.column("value").to_pylist()]
try:
    values(FileSource(folder))
except Exception as error:
    print(type(error).__name__, error)
(folder / "a.json").unlink()
print(values(FileSource(folder, on_missing="skip")))
"""
    # In a namespace of its own without root's rights, permissions bind root as well.
    command = ["unshare", "--user", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.stdout.splitlines() == [
        f"TopicError file {tmp_path}/in/a.json cannot be opened: Permission denied.",
        'Fix: make it readable, or remove it and go on without it: FileSource(on_missing="skip").',
        "[b'2']",
    ], done.stderr


def test_the_place_of_a_record_is_the_line_of_its_file(folder):
    (folder / "a.json").write_text("1\n\n\n2\n")
    (folder / "b.csv").write_text("a\n1\n2\n")
    lines, rows = FileSource(folder), FileSource(folder, "csv", name="rows")

    for source in (lines, rows):
        reader_of(source, folder).ends({})

    assert reader_of(lines, folder).place_of(0, 1) == f"line 4 of {folder}/a.json"
    assert reader_of(rows, folder).place_of(0, 1) == f"row 3 of {folder}/b.csv"
