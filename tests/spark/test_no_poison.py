"""Hostile records of the embedded log through Spark: the stream goes on, and counts reconcile."""

from __future__ import annotations

import pyarrow as pa
import pytest

import millpond as mp
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.wire.headers import encode_headers

pytestmark = pytest.mark.spark

HOSTILE = [
    (b"a", b'{"n":1,"items":[1,2]}', 5, None),
    (b"a", b'{"n":1,"items":[1]}', -(2**63), None),
    (b"a", b'{"n":1,"items":[1]}', 2**63 - 1, None),
    (b"a", b"\xff\xfe", 6, [("\U0001f4a3\x00", b"\xff"), ("a", None)]),
    (b"\xff", b"[" * 100_000, 6, None),
    (b"\xff" * 30_000, b'{"n":1,"items":100000}', 7, [("millpond.error", b"mine")]),
    (None, b'{"n":1e400,"items":[]}', 7, None),
    (b"", b'{"n":' + b"9" * 5_000 + b',"items":[1]}', 8, None),
    (b"a", None, 8, None),
    (b"a", b'{"n":2,"items":[3],"ttl":-1}', 9, None),
    (b"b", b'{"n":2,"items":[4]}', 30, [("h", bytes(100_000))]),
]


def items_of(value):
    return value["items"] if isinstance(value["items"], list) else range(value["items"])


def total(value, state):
    state.set("n", state.get("n", 0) + value["n"], ttl=value.get("ttl"))
    return {**value, "n": state.get("n")}


def test_hostile_records_do_not_stop_a_stream_on_spark(make_app):
    app = make_app(on_error="dead-letter")
    log = Log(app.config.topics_dir)
    hostile = app.topic("in", max_future=None)
    sdf = app.dataframe(hostile).apply(total, stateful=True)
    sdf.tumbling_window(10).agg(n=mp.Sum("n")).final().to_topic(app.topic("windows"))
    sdf.apply(items_of, expand=True).to_topic(app.topic("items"))
    rows = [(key, value, time, encode_headers(h)) for key, value, time, h in HOSTILE]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SEGMENT, strict=True)]
    log.create("in", 1)
    log.append("in", 0, pa.Table.from_arrays(columns, schema=SEGMENT))

    app.run(drain=True)
    with app.get_producer() as producer:
        producer.produce("in", key="b", value=b'{"n":5,"items":[6]}', timestamp=31)
    app.run(drain=True)

    consumer = app.get_consumer()
    assert [r.value for r in consumer.read("items")] == [1, 2, 4, 6]
    letters = list(consumer.read("test.dead-letters"))
    assert sorted(int(dict(r.headers)["millpond.offset"]) for r in letters) == list(range(1, 10))
    assert all(report.reconciles for report in app.reports)
    assert sum(report.read for report in app.reports) == len(HOSTILE) + 1
    assert sum(report.dead for report in app.reports) == len(letters)
    (window,) = [r.value for r in consumer.read("windows")]
    assert (window["start"], window["n"]) == (0, 1)
