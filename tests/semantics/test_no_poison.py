"""No poison: whatever a record contains, `on_error="dead-letter"` lets the stream go on.

Programs of random steps run over records with any bytes, times, headers and sizes. No run raises,
every record is accounted for, and what is counted is what is found in the topics. `make soak` tries
more cases (MILLPOND_FUZZ).
"""

import os
import random
from datetime import timedelta

import pyarrow as pa
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

import millpond as mp
from millpond.arguments.duration import EARLIEST_MS, LATEST_MS
from millpond.errors import ConfigError, PlanError
from millpond.state.cursor import Cursor
from millpond.testing import ManualClock, frame, run_local
from millpond.wire.packed_rows import records_schema
from millpond.worker.emit import Changes, Emitter

CASES = int(os.environ.get("MILLPOND_FUZZ", "150"))
NOW = 1_800_000_000_000

# --- hostile records ------------------------------------------------------------------------

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": ["null", "long", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "list", "type": {"type": "array", "items": "bytes"}},
    ],
}
JSON_SCHEMA = {"type": ["object", "array", "number"], "properties": {"a": {"type": "integer"}}}
READERS = {
    "json": lambda: "json",
    "str": lambda: "str",
    "bytes": lambda: "bytes",
    "int": lambda: "int",
    "double": lambda: "double",
    "python json": lambda: mp.JSONDeserializer(loads=__import__("json").loads),
    "json schema": lambda: mp.JSONDeserializer(schema=JSON_SCHEMA),
    "avro": lambda: mp.AvroDeserializer(AVRO),
    "protobuf": lambda: mp.ProtobufDeserializer(Struct),
    "protobuf time": lambda: mp.ProtobufDeserializer(Timestamp, to_dict=False),
}
WRITERS = {
    "json": lambda: "json",
    "str": lambda: "str",
    "bytes": lambda: "bytes",
    "int": lambda: "int",
    "double": lambda: "double",
    "json schema": lambda: mp.JSONSerializer(schema=JSON_SCHEMA),
    "avro": lambda: mp.AvroSerializer(AVRO),
    "protobuf": lambda: mp.ProtobufSerializer(Struct),
}

GOOD = [b'{"a":1,"at":5}', b'{"a":2,"at":7}', b'{"a":"x"}', b"1", b'"x"', b"[1,2]", b"2.5"]
ODD = [
    b"",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"NaN",
    b"-0.0",
    b"1e999",
    b"-Infinity",
    b"9223372036854775807",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"9" * 5_000,
    b"[" * 100_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'{"a":1e400,"at":1e30}',
    b'{"a":NaN}',
    b'"\\ud800"',
    b'{"\\ud800":1}',
    b'{"a":"\\udfff"}',
    b'{"a":{"b":[null,[{}]]},"at":"2024-01-01"}',
    b'{"a":1,"a":2}',
    b'{"a":[1,2]}',
    b'{"_key":3,"start":1,"a":-9223372036854775808,"at":-9223372036854775808}',
    b'{"at":9223372036854775807}',
    b'{"at":253402300799999,"a":1}',
    b"\xff\xfe",
    b"\x00" * 8,
    b"\x7f\xf8" + b"\x00" * 6,
    b"\x02\x06ab\x00",
    mp.AvroSerializer(AVRO)({"a": 5, "at": 2**62, "list": []}),
    mp.AvroSerializer(AVRO)({"a": "x", "at": 5, "list": [b"\xff"]}),
    mp.ProtobufSerializer(Struct)({"a": 1.5, "at": None}),
    mp.ProtobufSerializer(Timestamp)(Timestamp(seconds=2**40)),
    b"\x80\x05cos\nsystem\n.",
]
TIMES = [0, 1, 5, 12, 1_000, -1, NOW, NOW + 3_600_001, EARLIEST_MS, EARLIEST_MS - 1, LATEST_MS]
TIMES += [LATEST_MS + 1, -(2**63), 2**63 - 1, 2**62, NOW * 1_000, NOW * 1_000_000]
HEADERS = [
    None,
    [],
    [("a", b"1")],
    [("", b"")],
    [("a", None), ("a", b"\xff\xfe")],
    [("millpond.error", b"mine"), ("\U0001f4a3\x00", b"\x00")],
    [(f"h{i}", bytes(100)) for i in range(300)],
    {"n" * 10_000: b"v" * 10_000},
]


def any_bytes(rng):
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(GOOD)
    if kind < 5:
        return rng.choice(ODD)
    if kind == 5:
        return rng.randbytes(rng.choice([0, 1, 4, 8, 30]))
    if kind == 6:
        found = bytearray(rng.choice(GOOD + ODD))
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        return bytes(found[: rng.randrange(len(found) + 1)])
    if rng.random() < 0.9:
        return None
    size = rng.choice([40_000, 1_000_000])
    return rng.choice([rng.randbytes(size), b'"' + b"x" * size + b'"'])


def any_record(rng):
    time = rng.choice(TIMES) if rng.random() < 0.4 else rng.randrange(60)
    return any_bytes(rng), any_bytes(rng), time, rng.choice(HEADERS)


# --- random programs ------------------------------------------------------------------------


def keep(value, state):
    state.set("n", state.get("n", 0) + 1)
    state.set("value", value)
    return value


def keep_by_value(value, state):
    state.set(value, value, ttl=value["a"] if isinstance(value, dict) else None)
    state.delete("n")
    return state.keys()


def wait(value, state):
    state.set_timer("t", at=value["at"])
    state.set_timer("u", after=5, clock="processing")
    return value


def fired(key, state, timer):
    return {"a": 1 // (timer.at % 3), "at": timer.at, "key": key}


def fold(key, value, total):
    return value, total + value["a"]


def change(value):
    value["a"] += 1


def table(batch, state):
    return pa.concat_tables([state, batch], promote_options="default")


def many(value):
    yield from value
    yield value["a"]


def of_value(value, key=None, timestamp=None, headers=None):
    return value


def all_of(value, key, timestamp, headers):
    return {"a": value, "at": timestamp, "key": key, "headers": headers}


AGGREGATIONS = [
    lambda: {"n": mp.Count(), "sum": mp.Sum("a")},
    lambda: {"n": mp.Count()},
    lambda: {"least": mp.Min(), "most": mp.Max(), "sum": mp.Sum()},
    lambda: {"mean": mp.Mean("a"), "std": mp.StdDev("a"), "kinds": mp.CountDistinct("a")},
    lambda: {"first": mp.First(), "last": mp.Latest("a"), "all": mp.Collect()},
    lambda: {"mine": mp.Reduce(lambda total, value: total + value["a"], lambda value: value["a"])},
]
KINDS = [
    lambda sdf: sdf.tumbling_window(10, grace_ms=2),
    lambda sdf: sdf.tumbling_window(10, corrections_ms=20),
    lambda sdf: sdf.hopping_window(10, 3),
    lambda sdf: sdf.sliding_window(10, grace_ms=2),
    lambda sdf: sdf.session_window(5),
    lambda sdf: sdf.tumbling_count_window(2),
    lambda sdf: sdf.tumbling_window(timedelta(days=14_000)),
]


def windowed(sdf, app, rng, name):
    window = rng.choice(KINDS)(sdf).agg(**rng.choice(AGGREGATIONS)())
    how = rng.randrange(3)
    return window.current() if how == 0 else window.final(("watermark", "key")[how - 1])


def written(sdf, app, rng, name):
    topic = app.topic(
        name,
        value_serializer=WRITERS[rng.choice(list(WRITERS))](),
        key_serializer=rng.choice(["bytes", "str", "json", "int"]),
    )
    return rng.choice(
        [
            lambda: sdf.to_topic(topic),
            lambda: sdf.to_topic(topic, key=lambda value: value["a"]),
            lambda: sdf.to_topic(lambda value, key, timestamp, headers: topic if value else value),
        ]
    )()


STEPS = [
    lambda sdf, app, rng, name: sdf.apply(of_value),
    lambda sdf, app, rng, name: sdf.apply(all_of, metadata=True),
    lambda sdf, app, rng, name: sdf.apply(lambda value: value["a"]),
    lambda sdf, app, rng, name: sdf.apply(lambda value: {"a": value, "at": 3}),
    lambda sdf, app, rng, name: sdf.apply(lambda value: {value, (value, 1)}),
    lambda sdf, app, rng, name: sdf.apply(of_value, expand=True),
    lambda sdf, app, rng, name: sdf.apply(many, expand=True),
    lambda sdf, app, rng, name: sdf.update(change),
    lambda sdf, app, rng, name: sdf.filter(of_value),
    lambda sdf, app, rng, name: sdf[sdf["a"] > 1],
    lambda sdf, app, rng, name: sdf[["a", "at"]],
    lambda sdf, app, rng, name: sdf.fill("b", a=1),
    lambda sdf, app, rng, name: sdf.drop("a"),
    lambda sdf, app, rng, name: sdf.group_by("a", name=name),
    lambda sdf, app, rng, name: sdf.group_by(of_value, name=name),
    lambda sdf, app, rng, name: sdf.apply(keep, stateful=True),
    lambda sdf, app, rng, name: sdf.apply(keep_by_value, stateful=True),
    lambda sdf, app, rng, name: sdf.apply(wait, stateful=True, on_timer=fired),
    lambda sdf, app, rng, name: sdf.stateful_map(name, fold, 0),
    lambda sdf, app, rng, name: sdf.agg(name=name, **rng.choice(AGGREGATIONS)()),
    lambda sdf, app, rng, name: sdf.agg(name=name, emit="batch", **rng.choice(AGGREGATIONS)()),
    lambda sdf, app, rng, name: sdf.drop_duplicates(name=name),
    lambda sdf, app, rng, name: sdf.drop_duplicates("a", within=10, name=name, per_key=True),
    lambda sdf, app, rng, name: sdf.update_state(table, name),
    lambda sdf, app, rng, name: sdf.set_timestamp(lambda value, key, timestamp, headers: value),
    lambda sdf, app, rng, name: sdf.set_timestamp(lambda value, *rest: value["at"]),
    lambda sdf, app, rng, name: sdf.set_headers(of_value),
    lambda sdf, app, rng, name: sdf.watermark(5, on="at"),
    lambda sdf, app, rng, name: sdf.concat(sdf.apply(of_value)),
    windowed,
    windowed,
    written,
    written,
]


def made(rng):
    """Return a program, which also writes each record that it can read to the topic "seen"."""
    app = mp.Application(consumer_group="fuzz", loglevel=None)
    max_future = rng.choice([None, timedelta(hours=1)])
    extract = (lambda value, *rest: value["at"]) if rng.random() < 0.1 else None
    topic = app.topic(
        "in",
        value_deserializer=READERS[rng.choice(list(READERS))](),
        key_deserializer=READERS[rng.choice(list(READERS))](),
        max_future=max_future,
        timestamp_extractor=extract,
    )
    source = app.dataframe(topic)
    seen = app.topic("seen", value_serializer="bytes", key_serializer="bytes")
    source.apply(lambda value: b"").to_topic(seen, key=lambda value: b"")
    sdf = source
    for number in range(rng.randrange(1, 5)):
        with_step = rng.choice(STEPS)
        try:
            sdf = with_step(sdf, app, rng, f"step{number}")
        except ConfigError:  # steps that do not go together are refused at the call
            continue
    return sdf


def run_case(number, size=14):
    """Run one random program over random records and reconcile the counts."""
    rng = random.Random(number)
    sdf = made(rng)
    records = [any_record(rng) for _ in range(rng.randrange(1, size))]
    batches = rng.choice([None, 1, 3])

    run = run_local(sdf, records, on_error="dead-letter", batches=batches, clock=ManualClock(NOW))

    dead, entered, failed = 0, 0, 0
    for report in run.reports:
        assert report.reconciles, report
        dead += report.dead
        entered += report.read
        failed += report.stages[0].dead
    assert entered == len(records)
    assert dead == len(run.dead_letters)
    for letter in run.dead_letters:
        headers = dict(letter.headers)
        assert headers["millpond.error"] and headers["millpond.step"], letter
    # What fails in the first stage is undone there, what fails later is not: each other record
    # was seen.
    assert len(run.topics["seen"]) == entered - failed


def test_no_record_stops_a_stream(record_property):
    refused = 0
    for number in range(CASES):
        try:
            run_case(number)
        except PlanError:  # the steps of a program do not go together
            refused += 1
        except Exception as error:
            error.add_note(f"Case {number}: run_case({number}).")
            raise
    print(f"{CASES} cases, of which {refused} were refused as programs")
    record_property("cases", CASES)
    record_property("refused", refused)

    assert refused < CASES / 10


def test_a_record_that_gives_too_much_is_a_dead_letter():
    key = "k" * 30_000
    sdf = frame().apply(lambda value: range(value), expand=True)

    run = run_local(sdf, [("a", 2), (key, 100_000), ("b", 1), (key, 1_000)], on_error="dead-letter")

    assert len(run) == 1_003
    (letter,) = run.dead_letters
    assert letter.key == key.encode()
    assert b"gave 8,192 items or more" in dict(letter.headers)["millpond.error"]
    assert b"Fix: give fewer items" in dict(letter.headers)["millpond.error"]


@pytest.mark.soak  # it needs 4 GB of memory
def test_what_no_batch_can_hold_leaves_in_several():
    record = {"key": bytes(2**25), "value": b"", "timestamp": 0}
    record |= {"source": 0, "partition": 0, "offset": 0}
    entered = pa.RecordBatch.from_pylist([record], records_schema(0))
    emitter = Emitter(Cursor(["in"]), Changes(lambda value: b"%d" % value), None)
    push = emitter.push()
    for number in range(65):  # 65 times 32 MiB of keys
        push(number, None, 0, None)

    values = [batch.column("value").to_pylist() for batch, _ in emitter.take(entered)]

    assert len(values) == 2
    assert sum(values, []) == [b"%d" % number for number in range(65)]
