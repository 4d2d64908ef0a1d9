"""Sources and sinks on Spark."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import millpond as mp
import millpond.testing
from millpond.connectors.log import Log
from millpond.connectors.segments import find_segments, writers_of
from millpond.errors import StepError, TopicError
from millpond.testing import run_local

pytestmark = pytest.mark.spark

ROWS = [{"user": "ann", "n": 1}, {"user": "bob", "n": 2}, {"user": "ann", "n": 3}]


def total(value, state):
    state.set("n", state.get("n", 0) + value["n"])
    return value["user"], state.get("n")


def write_files(folder, kind, name, rows):
    folder.mkdir(exist_ok=True)
    if kind == "json":
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    elif kind == "csv":
        pa.csv.write_csv(pa.Table.from_pylist(rows), folder / f"{name}.csv")
    else:
        pa.parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_a_folder_of_files_is_read_once_and_new_files_are_picked_up(make_app, tmp_path, kind):
    folder = tmp_path / "in"
    write_files(folder, kind, "1", ROWS)
    app = make_app()
    app.dataframe(source=mp.FileSource(folder, format=kind)).group_by("user").apply(
        total, stateful=True
    )

    assert app.run(drain=True) == [("ann", 1), ("bob", 2), ("ann", 4)]
    write_files(folder, kind, "2", ROWS[:1])
    assert app.run(drain=True) == [("ann", 5)]
    assert app.run(drain=True) == []


def test_a_file_that_was_deleted_because_it_cannot_be_read_is_left_out(make_app, tmp_path):
    folder = tmp_path / "in"
    write_files(folder, "csv", "1", ROWS)
    (folder / "2.csv").write_text("")
    write_files(folder, "csv", "3", ROWS[:1])

    def run(**options):
        app = make_app()
        source = mp.FileSource(folder, "csv", key="user", name="in", **options)
        app.dataframe(source=source).apply(total, stateful=True)
        return app.run(drain=True)

    with pytest.raises(TopicError, match="2.csv cannot be read as csv"):
        run()
    (folder / "2.csv").unlink()
    with pytest.raises(TopicError, match="2.csv was seen and is gone(.|\n)*on_missing"):
        run()

    assert run(on_missing="skip") == [("ann", 1), ("bob", 2), ("ann", 4), ("ann", 5)]


def test_files_that_cannot_be_read_are_one_dead_letter_each(make_app, tmp_path):
    write_files(tmp_path / "rows", "parquet", "1", ROWS)
    whole = (tmp_path / "rows" / "1.parquet").read_bytes()
    (tmp_path / "rows" / "2.parquet").write_bytes(whole[: len(whole) // 2])
    flipped = whole[:60] + bytes(40) + whole[100:]
    (tmp_path / "rows" / "3.parquet").write_bytes(flipped)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.json").write_bytes(gzip.compress(b'{"n": 1}'))
    (tmp_path / "lines" / "2.json").write_text('{"n": 2}')
    app = make_app(on_error="dead-letter")
    rows = mp.FileSource(tmp_path / "rows", "parquet", key="user")
    app.dataframe(source=rows).apply(total, stateful=True)
    app.dataframe(source=mp.FileSource(tmp_path / "lines")).apply(lambda value: value["n"])

    found = app.run(drain=True)

    assert sorted(found, key=str) == [("ann", 1), ("ann", 4), ("bob", 2), 2]
    with app.get_consumer() as consumer:
        letters = list(consumer.read("test.dead-letters"))
    errors = sorted(dict(letter.headers)["millpond.error"].decode() for letter in letters)
    names = [tmp_path / "lines" / "1.json", *(tmp_path / "rows" / f"{n}.parquet" for n in (2, 3))]
    for error, file in zip(errors, names, strict=True):
        assert f"file {file} cannot be read as {file.suffix[1:]}: " in error
        assert "\nFix: correct the file" in error
    assert "gzip" in errors[0]
    assert {letter.value[:4] for letter in letters} == {whole[:4], b"\x1f\x8b\x08\0"}
    assert [(r.read, r.dead) for r in app.reports if r.read] == [(7, 3)]
    assert app.run(drain=True) == []


def test_a_bad_row_of_a_file_is_a_dead_letter_and_the_others_are_records(make_app, tmp_path):
    lines = ['{"user": "ann", "n": 1, "t": 10}', '{"user": "ann", "n": 2, "t": 1e30}', "{half"]
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "a.json").write_text("\n".join([*lines, "", lines[0]]))
    write_files(tmp_path / "csv", "csv", "a", ROWS)
    with (tmp_path / "csv" / "a.csv").open("a") as file:
        file.write("bob\nann,4\n")

    def run(on_error):
        app = make_app(on_error=on_error)
        keyed = mp.FileSource(tmp_path / "json", key="user", timestamp="t", name="keyed")
        plain = mp.FileSource(tmp_path / "json", name="plain")
        rows = mp.FileSource(tmp_path / "csv", "csv", key="user", name="rows")
        app.dataframe(source=keyed).apply(total, stateful=True)
        app.dataframe(source=plain).group_by("user").apply(total, stateful=True)
        app.dataframe(source=rows).apply(total, stateful=True)
        return app.run(drain=True), app

    with pytest.raises(StepError) as stopped:
        run("stop")
    found, app = run("dead-letter")

    assert f"{tmp_path}/json/a.json, line 2: timestamp='t' is 1e+30" in str(stopped.value)
    assert f"failed on line 2 of {tmp_path}/json/a.json, key None: RowError" in str(stopped.value)
    assert sorted(found) == sorted(
        [("ann", 1), ("ann", 2)]  # with a key and a time
        + [("ann", 1), ("ann", 3), ("ann", 4)]
        + [("ann", 1), ("bob", 2), ("ann", 4), ("ann", 8)]
    )
    with app.get_consumer() as consumer:
        letters = [
            (r.value, dict(r.headers))
            for r in consumer.read(f"{app.config.consumer_group}.dead-letters")
        ]
    assert sorted((headers["millpond.topic"], value) for value, headers in letters) == [
        (b"keyed", lines[1].encode()),
        (b"keyed", b"{half"),
        (b"plain", b"{half"),
        (b"rows", b"bob"),
    ]
    said = {h["millpond.topic"].decode(): h["millpond.error"].decode() for _, h in letters}
    assert f"{tmp_path}/csv/a.csv, row 5: it has 1 value(s)" in said["rows"]


def test_a_run_writes_its_outputs_with_what_their_batch_read(make_app):
    app = make_app()
    topic = app.topic("out")
    app.dataframe(source=[("ann", 1), ("bob", 2)]).to_topic(topic)
    app.run(drain=True)
    log = Log(app.config.topics_dir)
    (segment,) = find_segments(log.path / "out" / "0")
    (writer,) = (name for name in writers_of(segment) if not name.startswith("reads:"))
    (part,) = log.read("out", 0, 0, 2)
    again = pa.Table.from_batches([part])

    with pytest.raises(TopicError, match="now writes another batch of that number"):
        log.append("out", 0, again, writer, writers_of(segment)[writer], "something else")

    assert log.end("out", 0) == 2


def test_rate_source_gives_numbers_at_a_rate_and_ends_at_count(make_app):
    app = make_app()
    app.dataframe(source=mp.RateSource(rows_per_second=50, count=20))

    values = app.run(count=20)

    assert values == [{"value": i} for i in range(20)]


def test_any_streaming_dataframe_can_be_a_source(make_app, spark, tmp_path):
    write_files(tmp_path / "in", "json", "1", ROWS)
    frame = spark.readStream.schema("user string, n long").json(str(tmp_path / "in"))
    app = make_app()
    sdf = app.dataframe(source=mp.SparkSource(frame, key="user")).apply(total, stateful=True)
    sdf.to_topic(app.topic("out"))

    app.run(drain=True)

    found = sorted((r.key, tuple(r.value)) for r in app.get_consumer().read("out"))
    assert found == [(b"ann", ("ann", 1)), (b"ann", ("ann", 4)), (b"bob", ("bob", 2))]


def test_sinks_get_each_batch_on_the_driver(make_app):
    app = make_app(max_records_per_batch=2)
    values, batches = mp.ListSink(metadata=True), []
    sdf = app.dataframe(source=[("a", 1, 10), ("b", 2, 20), ("a", 3, 30)])
    sdf.sink(values)
    sdf.sink(lambda records, _: batches.append([r.value for r in records]))

    app.run()

    assert [v["_value"] for v in values] == [1, 2, 3]
    assert values[1] == {
        "_value": 2,
        "_key": "b",
        "_timestamp": 20,
        "_headers": None,
        "_topic": "list",
        "_partition": 0,
        "_offset": 1,
    }
    assert [value for part in batches for value in part] == [1, 2, 3]


def test_items_of_a_list_have_headers_as_on_the_local_engine(make_app):
    items = [("a", 1, 10, {"h": b"x"}), ("b", 2, 20, None), ("b", 3, 30)]

    def seen(app):
        sdf = app.dataframe(source=items)
        return sdf.apply(lambda value, key, time, headers: [value, headers], metadata=True)

    app = make_app()
    local = run_local(seen(make_app()))
    seen(app)

    assert app.run() == local == [[1, [("h", b"x")]], [2, None], [3, None]]


def test_print_is_seen_on_the_driver(make_app, capsys):
    app = make_app()
    app.dataframe(source=["hello", {"a": 1}]).print()

    app.run()

    assert capsys.readouterr().out.splitlines() == ["hello", "{'a': 1}"]


def test_90_000_rows_a_second_go_to_the_console(make_app, capsys):
    app = make_app()
    source = mp.RateSource(rows_per_second=90_000, ramp_up=1_000)
    app.dataframe(source=source).print(metadata=True)

    values = app.run(count=200_000)

    assert [value["value"] for value in values] == list(range(len(values)))
    lines = capsys.readouterr().out.splitlines()
    assert "'value': 0" in "".join(lines[:20])
    more = [int(line.split()[2].replace(",", "")) for line in lines if "more row" in line]
    assert sum(more) + 100 * len(more) >= len(values) - 1_000
    assert len(lines) <= 20 * 101 * len(app.reports)


def test_several_topics_and_partitions_in_and_out(make_app):
    app = make_app()
    one = app.topic("one", config=mp.TopicConfig(num_partitions=3))
    two = app.topic("two", key_deserializer="str")
    out = app.topic("out", config=mp.TopicConfig(num_partitions=2))
    with app.get_producer() as producer:
        for i in range(60):
            producer.produce(one, {"n": 1, "user": f"k{i % 7}"}, f"k{i % 7}")
            producer.produce(two, {"n": 1, "user": f"k{i % 7}"}, f"k{i % 7}")
    sdf = app.dataframe(one).concat(app.dataframe(two)).group_by("user")
    sdf.apply(total, stateful=True).to_topic(out)

    app.run(drain=True)

    last = {}
    for record in app.get_consumer().read("out"):
        user, n = record.value
        assert n > last.get(user, 0)
        last[user] = n
    assert last == {f"k{k}": 2 * len(range(k, 60, 7)) for k in range(7)}
    assert all(Log(app.config.topics_dir).end("out", p) > 0 for p in range(2))


def test_large_values_many_names_and_long_keys_survive(make_app):
    app = make_app()

    def keep(value, state):
        if value == "big":
            state.set("blob", b"x" * 5_000_000)
        elif value == "names":
            for i in range(10_000):
                state.set(f"name-{i}", i)
        return len(state.get("blob", b"")), len(state.keys())

    long_key = "k" * 1_000_000
    items = [("a", "big"), ("b", "names"), (long_key, "big"), ("", "names")]
    again = [("a", "?"), ("b", "?"), (long_key, "?"), ("", "?"), (None, "?")]
    app.dataframe(source=[*items, mp.testing.END, *again]).apply(keep, stateful=True)
    app.run()

    assert app.run() == [(5_000_000, 1), (0, 10_000), (5_000_000, 1), (0, 10_000), (0, 0)]
