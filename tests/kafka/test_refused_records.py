"""Outputs and dead letters that a topic does not take, on a real broker: none stops the stream."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from kit import new_name

import millpond as mp
from millpond.errors import StepError, TopicError

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOW = int(time.time() * 1000)
HOUR = 3_600_000
FAR, BEFORE_1970 = NOW + 2 * HOUR, -5
# The first and the last millisecond that a record may have: those of the years 1 and 9999.
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999


def noise(length: int) -> str:
    """Text that does not become smaller when it is compressed."""
    return "".join(random.Random(1).choices("0123456789abcdefghijklmnopqrstuvwxyz-_", k=length))


def line_of(text: str) -> int:
    """Return the line of this file that has the text first."""
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


class Case:
    """One program, from `orders` to a topic with the given settings."""

    def __init__(self, spark, broker, folder, **settings: str) -> None:
        self.prefix = new_name("refused")
        self._config = mp.TopicConfig(num_partitions=1, extra_config=settings)
        self._options = {
            "consumer_group": self.prefix,
            "state_dir": folder / "state",
            "auto_offset_reset": "earliest",
            "loglevel": None,
            "spark": spark,
        }
        self._address = broker.address

    def app(self, **options) -> mp.Application:
        app = mp.Application(self._address, **{**self._options, **options})
        orders = app.topic(f"{self.prefix}-orders")
        out = app.topic(f"{self.prefix}-out", config=self._config)
        app.topic(f"{self.prefix}.dead-letters", value_deserializer="bytes")
        frame = app.dataframe(orders)
        frame = frame.set_timestamp(
            lambda value, key, timestamp, headers: value.get("at", timestamp)
        )
        frame.update(count, stateful=True).to_topic(out)
        return app

    def write(self, app, *values) -> None:
        with app.get_producer() as producer:
            for number, value in enumerate(values):
                topic = app.topics[f"{self.prefix}-orders"]
                producer.produce(topic, value, f"k{number}", timestamp=NOW)

    def read(self, app, topic) -> list:
        with app.get_consumer() as consumer:
            return list(consumer.read(self.prefix + topic))


def count(value, state):
    state.set("count", state.get("count", 0) + 1)
    value["count"] = state.get("count")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_outputs_that_the_topic_refuses_become_dead_letters(spark, broker, tmp_path, guarantee):
    case = Case(spark, broker, tmp_path)
    app = case.app(on_error="dead-letter", processing_guarantee=guarantee)
    case.write(
        app,
        {"id": 0},
        {"id": 1, "at": FAR},
        {"id": 2, "at": LAST},
        {"id": 3, "at": BEFORE_1970},
        {"id": 4, "at": FIRST},
        {"id": 5, "text": noise(999_940)},
        {"id": 6, "at": NOW + HOUR // 2},
    )

    began = int(time.time() * 1000)
    app.run(drain=True)

    assert [r.value["id"] for r in case.read(app, "-out")] == [0, 6]
    dead = {r.key: r for r in case.read(app, ".dead-letters")}
    assert sorted(dead) == [b"k1", b"k2", b"k3", b"k4", b"k5"]
    for key, moment in ((b"k1", FAR), (b"k2", LAST), (b"k3", BEFORE_1970), (b"k4", FIRST)):
        headers = dict(dead[key].headers)
        assert headers["millpond.timestamp"] == str(moment).encode()
        assert began <= dead[key].timestamp <= time.time() * 1000
        assert headers["millpond.topic"] == f"{case.prefix}-orders".encode()
        assert headers["millpond.offset"] == key[1:]
        assert headers["millpond.step"].startswith(b"to_topic")
        assert b'"id":%s' % key[1:] in dead[key].value
        assert b"set_timestamp()" in headers["millpond.error"]
    assert dead[b"k5"].timestamp == NOW
    assert b"bytes, and topic" in dict(dead[b"k5"].headers)["millpond.error"]
    assert dict(dead[b"k5"].headers)["millpond.cut"].startswith(b"the value from byte")
    (report,) = [r for r in app.reports if r.read]
    assert (report.read, report.refused, report.dead) == (7, 5, 0)
    assert report.reconciles
    assert {item.key: item.value for item in app.scan_state()} == {b"k%d" % n: 1 for n in range(7)}


@pytest.mark.parametrize(
    ("settings", "value", "text"),
    [
        ({}, {"at": FAR}, "message.timestamp.after.max.ms"),
        ({}, {"at": BEFORE_1970}, "before 1970"),
        ({"message.timestamp.before.max.ms": "1800000"}, {"at": NOW - HOUR}, "before.max.ms"),
        ({}, {"text": noise(999_945)}, "bytes, and topic"),
        ({"max.message.bytes": "20000"}, {"text": noise(40_000)}, "bytes, and topic"),
    ],
)
def test_without_dead_letters_the_error_names_step_key_offset_and_fix(
    spark, broker, tmp_path, settings, value, text
):
    case = Case(spark, broker, tmp_path, **settings)
    app = case.app()
    case.write(app, {"id": 0}, value)

    with pytest.raises(StepError) as raised:
        app.run(drain=True)

    error = str(raised.value)
    place = f"topic '{case.prefix}-orders', partition 0, offset 1, key b'k1'"
    assert error.startswith("to_topic")
    assert f"test_refused_records.py:{line_of('to_topic(out)')}" in error
    assert place in error
    assert text in error
    assert "\nFix: " in error
    assert isinstance(raised.value.__cause__, TopicError)
    assert case.read(app, "-out") == []


def test_a_topic_with_a_small_limit_takes_small_records_and_no_large_one(spark, broker, tmp_path):
    """Sent together, small records are more than the topic takes of a batch."""
    case = Case(spark, broker, tmp_path, **{"max.message.bytes": "20000"})
    app = case.app(on_error="dead-letter")
    small = [{"id": n, "text": noise(500)[n % 400 :]} for n in range(300)]
    case.write(app, *small, {"id": 300, "text": noise(40_000)}, {"id": 301, "text": "x" * 40_000})

    app.run(drain=True)

    written = [r.value["id"] for r in case.read(app, "-out")]
    dead = [r.key for r in case.read(app, ".dead-letters")]
    assert written == [value["id"] for value in small]
    assert dead == [b"k300", b"k301"]


def test_what_fits_when_it_is_compressed_is_not_refused(spark, broker, tmp_path):
    case = Case(spark, broker, tmp_path, **{"max.message.bytes": "20000"})
    app = case.app(on_error="dead-letter")
    case.write(app, {"id": 0, "text": "x" * 40_000})

    app.run(drain=True)

    assert [r.value["id"] for r in case.read(app, "-out")] == [0]
    assert app.reports[0].refused == 0


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(spark, broker, tmp_path):
    case = Case(spark, broker, tmp_path, **{"cleanup.policy": "compact"})
    app = case.app(on_error="dead-letter")
    with app.get_producer() as producer:
        for key in ("a", None, "b"):
            producer.produce(app.topics[f"{case.prefix}-orders"], {"id": 1}, key, timestamp=NOW)

    app.run(drain=True)

    assert [r.key for r in case.read(app, "-out")] == [b"a", b"b"]
    (dead,) = case.read(app, ".dead-letters")
    assert b"compacted" in dict(dead.headers)["millpond.error"]


def test_a_batch_that_is_replayed_refuses_the_same_and_writes_nothing_again(
    spark, broker, tmp_path
):
    case = Case(spark, broker, tmp_path)
    app = case.app(on_error="dead-letter")
    case.write(app, {"id": 0}, {"id": 1, "at": FAR}, {"id": 2})
    app.run(drain=True)
    before = case.read(app, "-out"), case.read(app, ".dead-letters")
    for commit in (tmp_path / "state").rglob("commits/*0*"):
        commit.unlink()

    again = case.app(on_error="dead-letter")
    again.run(drain=True)

    assert [r.refused for r in again.reports if r.read] == [1]
    assert (case.read(again, "-out"), case.read(again, ".dead-letters")) == before
    assert [r.value["id"] for r in before[0]] == [0, 2]
    assert len(before[1]) == 1


def test_a_record_that_fails_with_a_time_that_is_refused_is_a_dead_letter(spark, broker, tmp_path):
    case = Case(spark, broker, tmp_path)
    app = case.app(on_error="dead-letter")
    append = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(LAST)}
    name = f"{case.prefix}-orders"
    app.broker.prepare(app.topic(name, config=mp.TopicConfig(extra_config=append)))
    with app.get_producer() as producer:
        producer.produce(name, b"{broken", "a", timestamp=FAR)
        producer.produce(name, b'{"id": 1}', "b", timestamp=NOW)

    app.run(drain=True)

    assert [r.value["id"] for r in case.read(app, "-out")] == [1]
    (dead,) = case.read(app, ".dead-letters")
    assert (dead.key, dead.value) == (b"a", b"{broken")
    assert dict(dead.headers)["millpond.timestamp"] == str(FAR).encode()
    assert dead.timestamp < time.time() * 1000
    assert (app.reports[0].dead, app.reports[0].refused) == (1, 0)
