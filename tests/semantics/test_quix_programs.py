"""What a program that was written for Quix Streams 3.28.1 counts on, beside windows."""

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.testing import frame, run_local


@pytest.mark.parametrize(
    "ask",
    [
        bool,
        lambda sdf: sdf and sdf,
        lambda sdf: sdf or sdf,
        lambda sdf: not sdf,
        lambda sdf: sdf[(sdf.apply(lambda v: v > 1)) and sdf["a"] > 1],
        lambda sdf: bool(sdf["a"]),
        lambda sdf: sdf["a"] and sdf["b"],
    ],
    ids=["bool", "and", "or", "not", "apply and", "column", "column and"],
)
def test_a_frame_or_a_column_has_no_truth_value(ask):
    with pytest.raises(ConfigError, match=r"no truth value of its own(.|\n)*Fix: "):
        ask(frame())


def test_the_size_of_a_record_is_that_of_its_value():
    app = mp.Application(loglevel=None)
    sdf = app.dataframe(app.topic("clicks"))
    sdf = sdf.apply(lambda value: (value, mp.message_context().size))

    values = run_local(sdf, [("k", {"a": 1}), ("k", None), ("k", {"a": 1000})])

    assert values == [({"a": 1}, 7), (None, 0), ({"a": 1000}, 10)]


@pytest.mark.parametrize("cut", [None, 1])
def test_branches_come_out_record_by_record(cut):
    sdf = frame()
    sdf.apply(lambda value: ("first", value))
    sdf[sdf.apply(lambda value: value > 1)].apply(lambda value: ("second", value))

    assert run_local(sdf, [1, 2, 3], batches=cut) == [
        ("first", 1),
        ("first", 2),
        ("second", 2),
        ("first", 3),
        ("second", 3),
    ]


def test_a_column_is_evaluated_where_it_is_used():
    sdf = frame()
    a, is_large = sdf["a"], sdf["a"] > 10
    sdf["a"] = a * 10
    sdf["b"] = a + 1
    sdf = sdf[is_large]

    assert run_local(sdf, [{"a": 1}, {"a": 2}]) == [{"a": 20, "b": 21}]


def test_a_column_of_another_frame_is_refused():
    sdf = frame()
    other = sdf.apply(lambda value: value)

    with pytest.raises(ConfigError, match=r"taken from another frame(.|\n)*Fix:"):
        other[sdf["a"] > 1]
    with pytest.raises(ConfigError, match=r"different frames(.|\n)*Fix:"):
        sdf["a"] + other["a"]


def test_names_of_arguments_of_columns_are_those_of_quix():
    sdf = frame()
    sdf["b"] = sdf["a"].apply(func=lambda value: value * 2)
    sdf = sdf[sdf["b"].isin(other=[4])]

    assert run_local(sdf, [{"a": 1}, {"a": 2}]) == [{"a": 2, "b": 4}]


def test_fill_leaves_values_alone_that_are_no_dicts():
    assert run_local(frame().fill("a", b=1), [5, None, {"a": 2}]) == [5, None, {"a": 2, "b": 1}]


def test_dropping_no_field_changes_nothing():
    sdf = frame()

    assert sdf.drop([]) is sdf
    assert run_local(sdf, [{"a": 1}]) == [{"a": 1}]


def test_text_is_written_with_the_bytes_serializer():
    app = mp.Application(loglevel=None)
    out = app.topic("out", value_serializer="bytes")

    run = run_local(app.dataframe(app.topic("in")).to_topic(out), ["tea", "\u00e9"])

    assert [record.value for record in run.topics["out"]] == [b"tea", "\u00e9".encode()]


class Shouting(mp.Serializer):
    def __call__(self, value, ctx):
        return f"{ctx.field} {value}!".encode()


def test_a_topic_serializes_and_deserializes_like_the_application(tmp_path):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)
    topic = app.topic("in", key_serializer="str", key_deserializer="str")
    shouting = app.topic("loud", value_serializer=Shouting())

    message = topic.serialize(key="ann", value={"n": 1}, headers={"a": b"b"}, timestamp_ms=5)

    assert (message.key, message.value, message.timestamp) == (b"ann", b'{"n":1}', 5)
    read = topic.deserialize(message)
    assert (read.key, read.value, read.headers, read.topic) == ("ann", {"n": 1}, {"a": b"b"}, "in")
    assert topic.deserialize(read) == read
    assert topic.serialize(value=None).value is None
    assert shouting.serialize(value=1).value == b"value 1!"


def test_the_producer_of_the_tutorial_of_quix_works(tmp_path):
    app = mp.Application(topics_dir=tmp_path, auto_offset_reset="earliest", loglevel=None)
    topic = app.topic("temperature", value_deserializer="json")

    with app.get_producer() as producer:
        message = topic.serialize(key="sensor", value={"c": 20})
        producer.produce(topic=topic.name, key=message.key, value=message.value)

    (record,) = app.get_consumer().read(topic)
    assert (record.key, record.value) == (b"sensor", {"c": 20})


class Several(mp.Deserializer):
    split_values = True

    def __call__(self, value):
        return [value, value]


class Labelled(mp.Serializer):
    extra_headers = {"a": b"b"}  # noqa: RUF012 - as it is written there

    def __call__(self, value):
        return b""


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"value_deserializer": Several()}, "expand=True"),
        ({"value_serializer": Labelled()}, "set_headers"),
        ({"value_serializer": lambda a, b, c: b""}, "def __call__"),
    ],
)
def test_what_a_serializer_of_quix_can_do_more_is_refused(options, fix):
    with pytest.raises(ConfigError, match=rf"Fix: .*{fix}"):
        mp.Application(loglevel=None).topic("in", **options)


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


def test_a_frame_is_tested_record_by_record_and_keeps_its_state():
    app = mp.Application(loglevel=None)
    sdf = app.dataframe(app.topic("in"))
    sdf = sdf[sdf["a"] > 1].apply(count, stateful=True)

    results = [sdf.test({"a": a}, key=key, timestamp=7) for key, a in [(b"x", 2), (b"x", 1)]]
    results += [sdf.test({"a": 3}, b"x", 8), sdf.test({"a": 3}, b"y", 9, [("h", b"1")])]

    assert results == [
        [(1, b"x", 7, None)],
        [],
        [(2, b"x", 8, None)],
        [(1, b"y", 9, [("h", b"1")])],
    ]


def test_a_frame_that_was_continued_is_tested_as_it_is_now():
    sdf = frame().apply(lambda value: value + 1)
    before = sdf.test(1)
    sdf = sdf.apply(lambda value: value * 10)

    assert (before, sdf.test(1)) == ([(2, b"key", 0, None)], [(20, b"key", 0, None)])


def test_a_frame_of_several_topics_is_tested_by_topic():
    app = mp.Application(loglevel=None)
    one, other = app.topic("one"), app.topic("other")
    sdf = app.dataframe(one).concat(app.dataframe(other))

    assert sdf.test(5, topic=other) == [(5, b"key", 0, None)]
    with pytest.raises(ConfigError, match="Fix:"):
        sdf.test(5)


def test_what_a_list_sink_tells_of_a_record_comes_before_its_fields_and_never_hides_one():
    sink = mp.ListSink(metadata=True)
    sdf = frame()
    sdf.sink(sink)

    run_local(sdf, [("k", {"a": 1, "_key": "mine"}, 5)])

    (record,) = sink
    names = ["_key", "_timestamp", "_headers", "_topic", "_partition", "_offset", "a"]
    assert list(record) == names
    assert (record["_key"], record["_timestamp"]) == ("mine", 5)
