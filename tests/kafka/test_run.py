"""Applications on Spark and Kafka: the same programs as on the embedded log."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka.admin import NewPartitions
from kit import admin_of, committed, new_name, wait_for

import millpond as mp
from millpond.errors import StepError

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOW = int(time.time() * 1000) - 60_000


@pytest.fixture
def make_app(spark, broker, tmp_path):
    """Applications on the shared session and broker, each test in its own folder and group."""
    group = new_name("group")

    def make(**options) -> mp.Application:
        defaults = {
            "consumer_group": group,
            "state_dir": tmp_path / "state",
            "auto_offset_reset": "earliest",
            "loglevel": None,
            "spark": spark,
        }
        return mp.Application(broker.address, **{**defaults, **options})

    return make


def total(value, state):
    state.set("n", state.get("n", 0) + value["n"])
    return {"n": state.get("n")}


def write(app, topic, *rows):
    """Write rows of (key, n)."""
    with app.get_producer() as producer:
        for i, (key, n) in enumerate(rows):
            producer.produce(topic, {"n": n}, key, timestamp=NOW + i, headers={"row": str(i)})


def read(app, topic):
    with app.get_consumer() as consumer:
        return list(consumer.read(topic))


def test_a_misspelt_input_topic_is_created_with_a_warning_that_names_the_other(make_app, caplog):
    caplog.set_level("WARNING", logger="millpond")
    clicks = new_name("clicks")
    misspelt = clicks.replace("clicks", "clikcs")
    app = make_app()
    write(app, app.topic(clicks), ("ann", 1))
    totals = app.topic(new_name("totals"))
    app.dataframe(app.topic(misspelt)).to_topic(totals)

    assert app.run(drain=True) == []
    assert app.run(drain=True) == []

    (warning,) = [r.message for r in caplog.records if "was created" in r.message]
    assert warning.startswith(f"input topic {misspelt!r} did not exist and was created;")
    assert warning.endswith(f"Did you mean {clicks!r}?")


def test_totals_by_key_across_runs_and_what_lag_tools_see(make_app, broker):
    app = make_app()
    config = mp.TopicConfig(num_partitions=3)
    clicks = app.topic(new_name("clicks"), config=config)
    totals = app.topic(new_name("totals"), key_deserializer="str")
    app.dataframe(clicks).apply(total, stateful=True).to_topic(totals)
    rows = [(f"user-{i % 5}", i) for i in range(50)]
    write(app, clicks, *rows)

    app.run(drain=True)
    write(app, clicks, ("user-1", 1000))
    app.run(drain=True)

    records = read(app, totals)
    by_user = {f"user-{u}": [i for i in range(50) if i % 5 == u] for u in range(5)}
    for user, numbers in by_user.items():
        found = [r.value["n"] for r in records if r.key == user]
        expected = [sum(numbers[: i + 1]) for i in range(10)]
        assert found == expected + ([expected[-1] + 1000] if user == "user-1" else [])
    headers = {(r.timestamp, r.headers[0]) for r in records[:-1]}
    assert headers == {(NOW + i, ("row", b"%d" % i)) for i in range(50)}
    reader = app.broker.reader(clicks)
    assert committed(broker, app.config.consumer_group, clicks.name, 3) == [
        reader.latest()[str(p)] for p in range(3)
    ]


def test_state_stays_by_key_when_partitions_are_added_and_topics_differ(make_app, broker):
    app = make_app()
    topics = [
        app.topic(new_name(f"in-{count}"), config=mp.TopicConfig(num_partitions=count))
        for count in (1, 2, 5)
    ]
    totals = app.topic(new_name("totals"), key_deserializer="str")
    first, second, third = (app.dataframe(topic) for topic in topics)
    together = first.concat(second).concat(third).group_by(lambda value: value["who"], name="who")
    together.apply(total, stateful=True).to_topic(totals)
    names = [f"user-{i}" for i in range(20)]

    def write_round(n):
        with app.get_producer() as producer:
            for topic in topics:
                for name in names:
                    producer.produce(topic, {"who": name, "n": n}, name)

    def places():
        return {(r.topic, r.key): r.partition for topic in topics for r in read(app, topic)}

    write_round(1)
    app.broker.prepare(totals)  # so that it can be looked into from the beginning
    thread = threading.Thread(target=app.run, kwargs={"collect": False})
    thread.start()
    try:
        wait_for(lambda: len(read(app, totals)) == 60, 60)
        before, admin = places(), admin_of(broker)
        admin.create_partitions([NewPartitions(topics[1].name, 7)])[topics[1].name].result(10)
        time.sleep(1.0)  # a producer hears of new partitions with its next look
        write_round(10)
        wait_for(lambda: len(read(app, totals)) == 120, 60)
    finally:
        app.stop()
        thread.join(60)

    assert places() != before  # some keys land on other partitions now
    finals = {r.key: r.value["n"] for r in read(app, totals)}
    assert finals == dict.fromkeys(names, 33)


def test_what_cannot_be_decoded_stops_the_run_or_is_put_aside(make_app):
    app = make_app()
    clicks, totals = app.topic(new_name("clicks")), app.topic(new_name("totals"))
    app.dataframe(clicks).apply(total, stateful=True).to_topic(totals)
    with app.get_producer() as producer:
        producer.produce(clicks, {"n": 1}, "a")
        producer.produce(clicks.name, b"{not json", b"a")
        producer.produce(clicks, {"n": 2}, "a")

    with pytest.raises(StepError, match=f"{clicks.name}.*partition 0, offset 1(.|\n)*Fix:"):
        app.run(drain=True)
    assert read(app, totals) == []

    patient = make_app(on_error="dead-letter")
    patient.dataframe(patient.topic(clicks.name)).apply(total, stateful=True).to_topic(
        patient.topic(totals.name)
    )
    patient.run(drain=True)

    assert [r.value["n"] for r in read(patient, totals.name)] == [1, 3]
    (dead,) = read(patient, f"{patient.config.consumer_group}.dead-letters")
    assert dead.value == b"{not json"


def fail_on_large(value):
    if len(value) > 1000:
        raise ValueError(f"too large: {value.decode()}")
    return value


@pytest.mark.parametrize(
    ("topic_limit", "length"), [("1048588", 999_900), ("1048588", 400_000), ("20000", 15_000)]
)
def test_a_record_that_fails_and_is_too_large_for_a_dead_letter_is_cut(
    make_app, topic_limit, length
):
    app = make_app(on_error="dead-letter")
    name = f"{app.config.consumer_group}.dead-letters"
    ensured = mp.TopicConfig(num_partitions=1, extra_config={"max.message.bytes": topic_limit})
    app.broker.prepare(app.topic(name, value_deserializer="bytes", config=ensured))
    texts = app.topic(new_name("texts"), value_deserializer="bytes")
    copies = app.topic(new_name("copies"), value_serializer="bytes", value_deserializer="bytes")
    app.dataframe(texts).apply(fail_on_large).to_topic(copies)
    with app.get_producer() as producer:
        for value in (b"one", b"x" * length, b"two"):
            producer.produce(texts.name, value, b"k", headers={"own": "header"})

    app.run(drain=True)

    assert [r.value for r in read(app, copies)] == [b"one", b"two"]
    (dead,) = read(app, name)
    headers = dict(dead.headers)
    assert headers["millpond.offset"] == b"1"
    assert headers["millpond.error"].startswith(b"ValueError: too large: xxx")
    assert len(dead.value) <= length
    assert set(dead.value) == {ord("x")}
    cut = headers.get("millpond.cut", b"").decode()
    assert (f"the value from byte {len(dead.value)} of {length} on" in cut) == (
        len(dead.value) < length
    )


def test_at_least_once_writes_without_transactions(make_app, broker):
    app = make_app(processing_guarantee="at-least-once")
    clicks, totals = app.topic(new_name("clicks")), app.topic(new_name("totals"))
    app.dataframe(clicks).apply(total, stateful=True).to_topic(totals)
    write(app, clicks, ("a", 1), ("a", 2))

    app.run(drain=True)

    assert [r.value["n"] for r in read(app, totals)] == [1, 3]
    assert f"{app.config.consumer_group}.batches" not in [n for n, _, _ in app.broker.listed()]
    assert committed(broker, app.config.consumer_group, clicks.name) == [2]
