import json
import math
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest

from millpond.connectors.json_serde import JSONDeserializer, JSONSerializer
from millpond.connectors.serde import StringDeserializer, StringSerializer, deserializer, serializer
from millpond.connectors.topic import TopicConfig, check_name, make_topic
from millpond.errors import ConfigError, SerializationError
from millpond.wire import any_value
from millpond.wire.headers import decode_headers, encode_headers


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("json", {"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        ("json", "text", b'"text"'),
        ("json", 0, b"0"),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("bytes", b"", b""),
        ("str", "ä", "ä".encode()),
        ("string", "", b""),
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("integer", 2**31 - 1, b"\x7f\xff\xff\xff"),
        ("double", 0.5, b"\x3f\xe0\0\0\0\0\0\0"),
    ],
)
def test_values_are_written_as_kafka_clients_write_them_and_read_back(name, value, data):
    assert serializer(name)(value) == data
    assert deserializer(name)(data) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json", object()),
        ("json", {1, object()}),
        ("json", "\ud800"),
        ("bytes", "\ud800"),
        ("bytes", 5),
        ("str", b"bytes"),
        ("str", "\ud800"),
        ("int", 2**31),
        ("int", "5"),
        ("int", 1.5),
        ("double", "x"),
    ],
)
def test_what_cannot_be_written_gives_a_fix(name, value):
    with pytest.raises(SerializationError, match="cannot write as(.|\n)*Fix:"):
        serializer(name)(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("json", b""),
        ("json", b"{"),
        ("json", b"\xff"),
        ("json", b"nan"),
        ("str", b"\xff"),
        ("int", b""),
        ("int", b"12345"),
        ("double", b"1"),
    ],
)
def test_what_cannot_be_read_gives_a_fix(name, data):
    with pytest.raises(SerializationError, match="cannot read as(.|\n)*Fix:"):
        deserializer(name)(data)


def test_an_error_never_prints_a_whole_record():
    with pytest.raises(SerializationError) as caught:
        deserializer("json")(b"{" + b"x" * 10**6)

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("named", ["json", "bytes", "str", "int", "double"])
def test_serializers_travel_to_the_workers(named):
    for made in (serializer(named), deserializer(named)):
        assert type(pickle.loads(pickle.dumps(made))) is type(made)


def test_own_functions_of_json_travel_along():
    write = pickle.loads(pickle.dumps(JSONSerializer(dumps=json.dumps)))
    read = pickle.loads(pickle.dumps(JSONDeserializer(loads=json.loads)))

    assert write({"a": 1}) == b'{"a": 1}'
    assert read(b'{"a": 1}') == {"a": 1}


def test_own_functions_of_json_that_fail_give_a_fix():
    with pytest.raises(SerializationError, match="Fix:"):
        JSONSerializer(dumps=json.dumps)(date(2026, 1, 1))


def test_another_encoding_of_text():
    assert StringSerializer("latin-1")("ä") == b"\xe4"
    assert StringDeserializer("latin-1")(b"\xe4") == "ä"


def test_a_class_a_function_and_an_object_are_serializers():
    assert serializer(JSONSerializer)({}) == b"{}"
    assert serializer(str.encode)("a") == b"a"
    assert serializer(JSONSerializer())({}) == b"{}"


@pytest.mark.parametrize("wrong", ["yaml", 5, None])
def test_other_things_are_refused(wrong):
    with pytest.raises(ConfigError, match="Fix:"):
        serializer(wrong)
    with pytest.raises(ConfigError, match="Fix:"):
        deserializer(wrong)


# --- headers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, None),
        ([], None),
        ({}, None),
        ([("a", b"1"), ("a", b"2")], [("a", b"1"), ("a", b"2")]),
        ({"a": "ä", "b": None}, [("a", "ä".encode()), ("b", None)]),
        ((("a", b""),), [("a", b"")]),
    ],
)
def test_headers_come_back_as_pairs(headers, expected):
    assert decode_headers(encode_headers(headers)) == expected


@pytest.mark.parametrize(
    "wrong", [5, "ab", [1], [("a",)], [(1, b"x")], [("a", 5)], {"a": [1]}, [("\ud800", b"")]]
)
def test_other_headers_are_refused(wrong):
    with pytest.raises(SerializationError, match="headers must be(.|\n)*Fix:"):
        encode_headers(wrong)


# --- values in flight -----------------------------------------------------------------------


class Own:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        10**30,
        "ä",
        "\ud800",
        b"",
        (1, [2]),
        {"a": {1}},
        {(1, 2): 3},
        date(2026, 1, 1),
        pytest.param(Own([1]), id="Own([1])"),
    ],
    ids=repr,
)
def test_any_value_moves_and_arrives_as_a_copy(value):
    back = any_value.decode(any_value.encode(value))

    assert back == value
    assert type(back) is type(value)
    assert any_value.copy_value(value) == value


def test_a_copy_shares_nothing_with_the_original():
    value = {"a": [Own([1])]}

    copy = any_value.copy_value(value)
    copy["a"][0].x.append(2)

    assert value["a"][0].x == [1]


def test_a_function_moves_by_value():
    assert any_value.decode(any_value.encode(lambda x: x + 1))(1) == 2


def test_what_cannot_move_gives_a_fix():
    with pytest.raises(SerializationError, match="cannot move to another stage(.|\n)*Fix:"):
        any_value.encode(i for i in ())


# --- topics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_c.1", "x" * 200, ".a", "..."[:0] + "a."])
def test_names_that_kafka_takes_are_taken(name):
    check_name(name, "topic")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a b", "ä", "x" * 201, None, 5, b"a", "a\n"]
)
def test_other_names_are_refused(name):
    with pytest.raises(ConfigError, match="cannot be the name of a topic(.|\n)*Fix:"):
        check_name(name, "topic")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", True, None])
def test_a_topic_has_at_least_one_partition(wrong):
    with pytest.raises(ConfigError, match="num_partitions(.|\n)*Fix:"):
        TopicConfig(num_partitions=wrong)


def test_a_timestamp_extractor_must_be_a_function():
    with pytest.raises(ConfigError, match="timestamp_extractor(.|\n)*Fix:"):
        make_topic("a", timestamp_extractor=5)


def test_a_topic_shows_its_name():
    assert str(make_topic("clicks")) == "clicks"


NUMPY = np.int64(1)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (math.nan, b"null"),
        ({"a": [math.inf]}, b'{"a":[null]}'),
        (Decimal("1.10"), b'"1.10"'),
        (datetime(2026, 1, 1, 12), b'"2026-01-01T12:00:00"'),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), b'"2026-01-01T12:00:00Z"'),
        (date(2026, 1, 1), b'"2026-01-01"'),
        (timedelta(seconds=90), b'"PT90S"'),
        ({3}, b"[3]"),
        ((1, (2,)), b"[1,[2]]"),
        (b"xy", b'"eHk="'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ({1: "a", 1.5: "b", b"x": "c"}, b'{"1":"a","1.5":"b","eA==":"c"}'),
        (2**70, b"1180591620717411303424"),
    ],
    ids=str,
)
def test_types_that_json_lacks_are_written_as_the_documents_say(value, data):
    assert serializer("json")(value) == data


@pytest.mark.parametrize(
    "value",
    [{None: 1}, {True: 1}, {(1, 2): 3}, NUMPY, 1j, pytest.param(object(), id="object()")],
    ids=str,
)
def test_a_value_that_json_cannot_have_is_an_error_that_says_what_to_do(value):
    with pytest.raises(SerializationError, match=r"write as json(.|\n)*Fix: turn the value into"):
        serializer("json")(value)


@pytest.mark.parametrize("data", [b"NaN", b'{"a": -Infinity}'])
def test_nan_as_python_writes_it_is_an_error_whose_fix_reads_it(data):
    with pytest.raises(SerializationError, match=r"Fix: .*JSONDeserializer\(loads=json.loads\)"):
        deserializer("json")(data)

    assert repr(JSONDeserializer(loads=json.loads)(data)) == repr(json.loads(data))
