"""Avro, Protobuf and JSON with a schema: there and back, bad data, travelling, secrets.

What needs a registry that answers is in tests/kafka/test_registry.py.
"""

import builtins
import json
import pickle
import subprocess
import sys
import traceback

import cloudpickle
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.api_pb2 import Method, Mixin
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker
from jsonschema.validators import extend

import millpond as mp
from millpond.connectors.serde import fast
from millpond.connectors.topic import make_topic
from millpond.errors import ConfigError, RegistryError, SerializationError, StepError
from millpond.testing import run_local

CLICK = {
    "type": "record",
    "name": "shop.Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "count", "type": "long", "default": 1},
        {"name": "ref", "type": ["null", "string"], "default": None},
    ],
}
PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
# Nobody listens there, and nobody is asked twice.
NOWHERE = mp.SchemaRegistryClientConfig(
    "http://127.0.0.1:9", basic_auth_user_info="ann:tr0ub4dor", extra={"max.retries": 0}
)


def travelled(made):
    """As it comes to a worker."""
    return pickle.loads(cloudpickle.dumps(made))


def order_class(pool, package="shop", name="shop.proto"):
    """A class as protoc would write it: a message inside a message, a map, an enum, an import."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="GREY", number=0)
    colour.value.add(name="RED", number=1)
    order = file.message_type.add(name="Order")
    counts = order.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    counts.field.add(name="value", number=2, type=field.TYPE_INT32, label=1)
    order.field.add(name="user_id", number=1, type=field.TYPE_STRING, label=1)
    order.field.add(name="amount", number=2, type=field.TYPE_INT64, label=1)
    for number, (field_name, label, type_name, kind) in enumerate(
        [
            ("colour", 1, "Colour", field.TYPE_ENUM),
            ("counts", 3, "Order.CountsEntry", field.TYPE_MESSAGE),
        ],
        start=3,
    ):
        order.field.add(
            name=field_name,
            number=number,
            label=label,
            type=kind,
            type_name=f".{package}.{type_name}",
        )
    at = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=5, label=1, type=field.TYPE_MESSAGE, type_name=at)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


Order = order_class(descriptor_pool.Default())


# --- Avro -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (CLICK, {"user": "ann", "count": 2, "ref": None}),
        (json.dumps(CLICK), {"user": "ä", "count": -1, "ref": "x"}),
        ("string", "ann"),
        ('"long"', 5),
        ({"type": "long"}, 2**63 - 1),
        (["null", "double", "string"], 0.5),
        ({"type": "array", "items": "bytes"}, [b"", b"\0"]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B"),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab"),
    ],
    ids=str,
)
def test_avro_comes_back_as_it_was(schema, value):
    assert mp.AvroDeserializer(schema)(mp.AvroSerializer(schema)(value)) == value


def test_avro_is_written_as_avro_says():
    assert mp.AvroSerializer(CLICK)({"user": "ann", "count": 2}) == b"\x06ann\x04\x00"


names = st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
kinds = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "double", "bytes", "string"]),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        inner.filter(lambda kind: kind != "null").map(lambda kind: ["null", kind]),
        st.dictionaries(names, inner, max_size=4).map(
            lambda fields: {
                "type": "record",
                "fields": [{"name": n, "type": t} for n, t in fields.items()],
            }
        ),
    ),
    max_leaves=8,
)
PLAIN = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(),
    "string": st.text(),
}


def named(kind, number=iter(range(10**9))):
    """The same schema, with a name for each record, and no union right inside a union."""
    if isinstance(kind, list):
        inner = named(kind[1])
        return inner if isinstance(inner, list) else ["null", inner]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "record":
        fields = [{"name": f["name"], "type": named(f["type"])} for f in kind["fields"]]
        return {"type": "record", "name": f"R{next(number)}", "fields": fields}
    inside = "items" if kind["type"] == "array" else "values"
    return {**kind, inside: named(kind[inside])}


def values_of(kind):
    if isinstance(kind, list):
        return st.none() | values_of(kind[1])
    if isinstance(kind, str):
        return PLAIN[kind]
    if kind["type"] == "array":
        return st.lists(values_of(kind["items"]), max_size=4)
    if kind["type"] == "map":
        return st.dictionaries(st.text(), values_of(kind["values"]), max_size=4)
    return st.fixed_dictionaries({f["name"]: values_of(f["type"]) for f in kind["fields"]})


@st.composite
def records(draw):
    fields = draw(st.dictionaries(names, kinds, max_size=4))
    schema = named(
        {"type": "record", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    )
    return schema, draw(values_of(schema))


@given(records())
def test_any_record_of_any_schema_comes_back(case):
    schema, value = case
    write, read = travelled(mp.AvroSerializer(schema)), travelled(mp.AvroDeserializer(schema))

    assert read(write(value)) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    """Whatever a producer wrote, the error is ours: it names the record and a fix."""
    for read in (
        mp.AvroDeserializer(CLICK),
        mp.ProtobufDeserializer(Order),
        mp.JSONDeserializer(schema=PERSON),
        mp.AvroDeserializer(schema_registry_client_config=NOWHERE).bind("t", "value"),
    ):
        try:
            read(data)
        except SerializationError as error:
            assert "Fix:" in str(error)
            assert len(str(error)) < 700


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"user": 5},
        {"user": None},
        {"user": "\ud800"},
        {"user": "ann", "count": "many"},
        {"user": "ann", "count": 2**63},
        {"user": "ann", "ref": 5},
        [],
        5,
        "text",
        pytest.param(object(), id="object()"),
    ],
    ids=repr,
)
def test_what_avro_cannot_write_gives_a_fix(value):
    with pytest.raises(SerializationError, match="cannot write as avro(.|\n)*Fix:"):
        mp.AvroSerializer(CLICK)(value)


def test_strict_avro_refuses_a_field_too_many_or_too_few():
    too_many, too_few = {"user": "a", "count": 1, "ref": None, "x": 1}, {"user": "a"}

    for value in (too_many, too_few):
        mp.AvroSerializer(CLICK)(value)
        with pytest.raises(SerializationError, match="Fix:"):
            mp.AvroSerializer(CLICK, strict=True)(value)
    mp.AvroSerializer(CLICK, strict_allow_default=True)(too_few)
    with pytest.raises(SerializationError, match="Fix:"):
        mp.AvroSerializer(CLICK, strict_allow_default=True)(too_many)


@pytest.mark.parametrize("data", [b"", b"\x06an", b"\x07", b"\x02\xff\x02\x00", b"\xff" * 20])
def test_what_avro_cannot_read_gives_a_fix(data):
    with pytest.raises(SerializationError, match="cannot read as avro(.|\n)*Fix:"):
        mp.AvroDeserializer(CLICK)(data)


def test_bytes_that_are_left_over_show_that_the_schema_is_another():
    data = mp.AvroSerializer(CLICK)({"user": "ann", "count": 2})

    with pytest.raises(SerializationError, match="2 of 6 bytes are left over(.|\n)*Fix:"):
        mp.AvroDeserializer("string")(data)


def test_records_are_read_as_a_newer_schema():
    newer = {**CLICK, "fields": [*CLICK["fields"], {"name": "n", "type": "int", "default": 7}]}
    data = mp.AvroSerializer(CLICK)({"user": "ann"})

    assert mp.AvroDeserializer(CLICK, reader_schema=newer)(data)["n"] == 7


def test_names_of_records_in_unions():
    other = {"type": "record", "name": "Other", "fields": []}
    data = mp.AvroSerializer([CLICK, other])(("shop.Click", {"user": "ann"}))

    read = mp.AvroDeserializer([CLICK, other], return_record_name=True)

    assert read(data)[0] == "shop.Click"


def test_a_schema_that_was_parsed_before_is_taken():
    import fastavro

    parsed = fastavro.parse_schema(CLICK)

    assert mp.AvroSerializer(parsed)({"user": "a"}) == mp.AvroSerializer(CLICK)({"user": "a"})


@pytest.mark.parametrize("schema", ["nonsense", "{", {"type": "record"}, 5, {}], ids=repr)
@pytest.mark.parametrize("kind", [mp.AvroSerializer, mp.AvroDeserializer])
def test_what_is_no_avro_schema_is_refused_at_once(kind, schema):
    with pytest.raises(ConfigError, match="no Avro schema(.|\n)*Fix:"):
        kind(schema)


@pytest.mark.parametrize("kind", [mp.AvroSerializer, mp.AvroDeserializer])
def test_avro_needs_a_schema(kind):
    with pytest.raises(ConfigError, match="schema(.|\n)*Fix:"):
        kind(None)


# --- Protobuf -------------------------------------------------------------------------------

AN_ORDER = {
    "userId": "ann",
    "amount": "5",
    "colour": "RED",
    "counts": {"a": 1},
    "at": "2026-01-01T00:00:00Z",
}


def test_protobuf_comes_back_in_its_json_form():
    data = mp.ProtobufSerializer(Order)(AN_ORDER)

    assert data == json_format.ParseDict(AN_ORDER, Order()).SerializeToString()
    assert mp.ProtobufDeserializer(Order)(data) == AN_ORDER


def test_fields_that_were_not_set_are_there_with_their_defaults():
    assert mp.ProtobufDeserializer(Order)(b"") == {
        "userId": "",
        "amount": "0",
        "colour": "GREY",
        "counts": {},
    }


def test_how_messages_become_dicts():
    data = mp.ProtobufSerializer(Order)(AN_ORDER)

    read = mp.ProtobufDeserializer(
        Order, use_integers_for_enums=True, preserving_proto_field_name=True
    )

    assert (read(data)["colour"], read(data)["user_id"]) == (1, "ann")


def test_messages_themselves_can_be_written_and_read():
    message = Order(user_id="ann", amount=5)

    back = mp.ProtobufDeserializer(Order, to_dict=False)(mp.ProtobufSerializer(Order)(message))

    assert back == message
    assert type(back) is Order


def test_a_message_of_a_class_of_the_same_name_is_the_same():
    other = order_class(_pool())

    assert mp.ProtobufSerializer(Order)(other(user_id="ann")) == b"\n\x03ann"


def test_types_that_are_a_text_in_json():
    write, read = mp.ProtobufSerializer(Duration), mp.ProtobufDeserializer(Duration)

    assert read(write("1.500s")) == "1.500s"


@pytest.mark.parametrize(
    "value",
    [
        {"user": "ann"},
        {"userId": 5},
        {"userId": "\ud800"},
        {"amount": 2**63},
        {"amount": "many"},
        {"colour": "BLUE"},
        {"at": "soon"},
        {5: 5},
        [],
        "",
        5,
        Mixin(),
        pytest.param(object(), id="object()"),
    ],
    ids=repr,
)
def test_what_protobuf_cannot_write_gives_a_fix(value):
    with pytest.raises(SerializationError, match="cannot write as protobuf(.|\n)*Fix:"):
        mp.ProtobufSerializer(Order)(value)


def test_fields_that_a_message_has_not_can_be_left_out():
    write = mp.ProtobufSerializer(Order, ignore_unknown_fields=True)

    assert write({"userId": "ann", "other": 1}) == b"\n\x03ann"


@pytest.mark.parametrize("data", [b"\n", b"\n\x05an", b"\xff", b"\n\x01\xff", b"\0\0\0\0\1\0"])
def test_what_protobuf_cannot_read_gives_a_fix(data):
    with pytest.raises(SerializationError, match="cannot read as protobuf(.|\n)*Fix:"):
        mp.ProtobufDeserializer(Order)(data)


def test_the_same_message_gives_the_same_bytes_where_that_is_asked_for():
    write = mp.ProtobufSerializer(Order, deterministic=True)
    one = {"counts": {str(n): n for n in range(50)}}
    other = {"counts": {str(n): n for n in reversed(range(50))}}

    assert write(one) == write(other)


@pytest.mark.parametrize("wrong", [None, 5, "Order", dict, Order()], ids=str)
@pytest.mark.parametrize("kind", [mp.ProtobufSerializer, mp.ProtobufDeserializer])
def test_a_message_class_is_needed(kind, wrong):
    with pytest.raises(ConfigError, match="msg_type(.|\n)*Fix:"):
        kind(wrong)


def _pool():
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(Timestamp.DESCRIPTOR.file.serialized_pb)
    return pool


# --- JSON with a schema ---------------------------------------------------------------------


def test_json_that_fits_its_schema_comes_back():
    value = {"name": "ann", "age": 5}

    data = mp.JSONSerializer(schema=PERSON)(value)

    assert data == b'{"name":"ann","age":5}'
    assert mp.JSONDeserializer(schema=PERSON)(data) == value


@pytest.mark.parametrize(
    ("value", "where"),
    [({}, r"\$,"), ([], r"\$,"), ({"name": "a", "age": -1}, r"\$.age"), ({"name": 5}, r"\$.name")],
)
def test_json_that_does_not_fit_its_schema_says_where(value, where):
    with pytest.raises(SerializationError, match=f"does not fit(.|\n)*{where}(.|\n)*Fix:"):
        mp.JSONSerializer(schema=PERSON)(value)
    with pytest.raises(SerializationError, match=f"does not fit(.|\n)*{where}(.|\n)*Fix:"):
        mp.JSONDeserializer(schema=PERSON)(json.dumps(value).encode())


def test_an_error_of_a_schema_never_prints_a_whole_record():
    with pytest.raises(SerializationError) as caught:
        mp.JSONSerializer(schema=PERSON)({"name": ["x" * 10**6]})

    assert len("".join(traceback.format_exception(caught.value))) < 5000


def test_a_schema_says_which_draft_it_is():
    """In draft 7 a list of schemas is for the first items; later ones call that prefixItems."""
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}

    with pytest.raises(SerializationError, match="Fix:"):
        mp.JSONSerializer(schema=draft_7)([5])
    with pytest.raises(ConfigError, match="Fix:"):
        mp.JSONSerializer(schema={"items": [{"type": "string"}]})


def test_a_validator_takes_the_place_of_the_schemas_own():
    dated = Draft7Validator({"format": "date"}, format_checker=FormatChecker())
    write = mp.JSONSerializer(schema=PERSON, validator=dated)

    assert write("2026-01-01") == b'"2026-01-01"'
    with pytest.raises(SerializationError, match="is not a 'date'"):
        write("soon")


def test_nothing_is_fetched_for_a_schema():
    away = {"$ref": "http://127.0.0.1:9/person.json"}

    with pytest.raises(SerializationError, match="Unresolvable(.|\n)*Fix:"):
        mp.JSONSerializer(schema=away)({})


@pytest.mark.parametrize("wrong", [{"type": "person"}, {"type": 5}, 5, "text", []], ids=repr)
@pytest.mark.parametrize("kind", [mp.JSONSerializer, mp.JSONDeserializer])
def test_what_is_no_json_schema_is_refused_at_once(kind, wrong):
    with pytest.raises(ConfigError, match="no JSON schema(.|\n)*Fix:"):
        kind(schema=wrong)


def test_what_is_no_validator_is_refused_at_once():
    with pytest.raises(ConfigError, match="no JSON schema(.|\n)*Fix:"):
        mp.JSONSerializer(validator=PERSON)


def test_plain_json_alone_takes_the_short_way():
    for kind in (mp.JSONSerializer, mp.JSONDeserializer):
        assert fast(kind()) is not None
        assert isinstance(fast(kind()), builtins.type(len))
        for slow in (kind(json.dumps), kind(schema=PERSON), kind(validator=Draft7Validator({}))):
            assert slow.fast is None
            assert fast(slow) is slow


def test_json_that_is_too_deep_gives_a_fix():
    with pytest.raises(SerializationError, match="Fix:"):
        mp.JSONDeserializer()(b"[" * 10**5)


# --- travelling -----------------------------------------------------------------------------

CLICK_DATA = b"\x06ann\x04\x00"


@pytest.mark.parametrize(
    ("made", "given", "expected"),
    [
        (mp.AvroSerializer(CLICK), {"user": "ann", "count": 2}, CLICK_DATA),
        (mp.AvroDeserializer(CLICK), CLICK_DATA, {"user": "ann", "count": 2, "ref": None}),
        (mp.ProtobufSerializer(Order), {"userId": "ann"}, b"\n\x03ann"),
        (mp.ProtobufDeserializer(Order, to_dict=False), b"\n\x03ann", Order(user_id="ann")),
        (mp.JSONSerializer(), [1], b"[1]"),
        (mp.JSONSerializer(json.dumps, PERSON), {"name": "a"}, b'{"name": "a"}'),
        (mp.JSONDeserializer(json.loads, PERSON), b'{"name": "a"}', {"name": "a"}),
        (
            mp.JSONDeserializer(validator=Draft202012Validator(PERSON)),
            b'{"name": "a"}',
            {"name": "a"},
        ),
        (mp.JSONSerializer(dumps=lambda value: "x"), 5, b"x"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_serializers_travel_to_the_workers(made, given, expected):
    assert made(given) == expected
    assert travelled(travelled(made))(given) == expected


def test_a_validator_with_rules_of_its_own_travels_too():
    def even(validator, wanted, value, schema):
        from jsonschema import ValidationError

        if value % 2:
            yield ValidationError(f"{value} is odd")

    own = extend(Draft202012Validator, {"even": even})({"even": True})

    with pytest.raises(SerializationError, match="5 is odd"):
        travelled(mp.JSONSerializer(validator=own))(5)


def test_a_message_class_is_the_same_in_the_same_process():
    assert travelled(mp.ProtobufDeserializer(Order, to_dict=False))._class.type is Order


def test_a_message_class_of_another_pool_stays_out_of_the_default_one():
    hidden = order_class(_pool(), "hidden", "hidden.proto")

    assert travelled(mp.ProtobufSerializer(hidden))({"userId": "a"}) == b"\n\x01a"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("hidden.proto")


def in_another_process(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_modules_of_protoc_are_not_needed_in_a_worker():
    made = cloudpickle.dumps(mp.ProtobufDeserializer(Order)).hex()
    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))(b'\\n\\x03ann'))"

    assert "'userId': 'ann'" in in_another_process(code, made)


def test_the_modules_of_protoc_can_be_imported_after_it():
    """The file is in the pool already then, and the class must be the same one."""
    made = cloudpickle.dumps(mp.ProtobufDeserializer(Method, to_dict=False)).hex()
    code = (
        "import pickle, sys; read = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "from google.protobuf.api_pb2 import Method\n"
        "print(type(read(b'')) is Method)"
    )

    assert in_another_process(code, made) == "True"


def test_a_worker_that_has_another_file_of_the_same_name_is_no_problem():
    made = cloudpickle.dumps(mp.ProtobufDeserializer(Order)).hex()
    code = (
        "import pickle, sys\n"
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "file = descriptor_pb2.FileDescriptorProto(name='shop.proto', package='other')\n"
        "descriptor_pool.Default().AddSerializedFile(file.SerializeToString())\n"
        "print(pickle.loads(bytes.fromhex(sys.argv[1]))(b'\\n\\x03ann')['userId'])"
    )

    assert in_another_process(code, made) == "ann"


# --- in a program ---------------------------------------------------------------------------


def counted(app):
    clicks = app.topic("clicks", **avro_and_back(CLICK))
    sdf = app.dataframe(clicks).apply(lambda click: {**click, "count": click["count"] * 2})
    sdf.to_topic(app.topic("doubled", value_serializer=mp.AvroSerializer(CLICK)))
    return sdf


def avro_and_back(schema):
    return {
        "value_serializer": mp.AvroSerializer(schema),
        "value_deserializer": mp.AvroDeserializer(schema),
    }


def test_a_program_reads_and_writes_avro():
    run = run_local(counted(mp.Application(loglevel=None)), [{"user": "ann", "count": 3}])

    assert [record.value for record in run.topics["doubled"]] == [b"\x06ann\x0c\x00"]


def test_bad_data_stops_a_run_or_is_put_aside():
    records = [CLICK_DATA, b"\xff", CLICK_DATA]

    with pytest.raises(StepError, match="reading of 'clicks'(.|\n)*cannot read as avro"):
        run_local(counted(mp.Application(loglevel=None)), records)
    run = run_local(counted(mp.Application(loglevel=None)), records, on_error="dead-letter")

    assert len(run.topics["doubled"]) == 2
    assert [record.value for record in run.dead_letters] == [b"\xff"]


# --- where a registry is --------------------------------------------------------------------

WITH_REGISTRY = {
    "avro, writing": mp.AvroSerializer(CLICK, schema_registry_client_config=NOWHERE),
    "avro, reading": mp.AvroDeserializer(schema_registry_client_config=NOWHERE),
    "protobuf, writing": mp.ProtobufSerializer(Order, schema_registry_client_config=NOWHERE),
    "protobuf, reading": mp.ProtobufDeserializer(Order, schema_registry_client_config=NOWHERE),
    "json, writing": mp.JSONSerializer(schema=PERSON, schema_registry_client_config=NOWHERE),
    "json, reading": mp.JSONDeserializer(schema_registry_client_config=NOWHERE),
}
GIVEN = {
    "avro, writing": {"user": "ann"},
    "protobuf, writing": {"userId": "ann"},
    "json, writing": {"name": "ann"},
    "avro, reading": b"\0\0\0\0\1{}",
    "protobuf, reading": b"\0\0\0\0\1\0",
    "json, reading": b"\0\0\0\0\1{}",
}


@pytest.mark.parametrize("what", WITH_REGISTRY)
def test_a_registry_that_is_away_is_named_and_its_secrets_are_not(what):
    made = travelled(WITH_REGISTRY[what].bind("clicks", "value"))

    with pytest.raises(RegistryError, match="127.0.0.1:9 does not answer(.|\n)*Fix:") as caught:
        made(GIVEN[what])

    everything = "".join(traceback.format_exception(caught.value)) + repr(made)
    assert "tr0ub4dor" not in everything
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), RegistryError)


@pytest.mark.parametrize("what", [what for what in WITH_REGISTRY if "reading" in what])
@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b'{"name": "ann"}', b"\x06ann\x04\x00"])
def test_bytes_that_were_written_without_a_registry_are_recognised(what, data):
    with pytest.raises(SerializationError, match="not written with a schema registry(.|\n)*Fix:"):
        WITH_REGISTRY[what].bind("clicks", "value")(data)


@pytest.mark.parametrize("what", WITH_REGISTRY)
def test_a_registry_needs_a_topic(what):
    with pytest.raises(ConfigError, match="by topic(.|\n)*Fix:"):
        WITH_REGISTRY[what](GIVEN[what])


def test_a_topic_tells_its_serializers_its_name_and_their_field():
    both = WITH_REGISTRY["avro, writing"]

    topic = make_topic("clicks", value_serializer=both, key_serializer=both)

    assert topic.value_serializer._registry._place == ("clicks", "value")
    assert topic.key_serializer._registry._place == ("clicks", "key")
    assert both._registry._place is None


def test_own_serializers_get_the_context_too_if_they_take_it():
    class Own:
        def __call__(self, value):
            return b"unbound"

        def bind(self, topic, field):
            return lambda value: f"{topic} {field} {value}".encode()

    assert make_topic("clicks", value_serializer=Own()).value_serializer(5) == b"clicks value 5"


def test_without_a_registry_there_is_nothing_to_tell():
    write = mp.AvroSerializer(CLICK)

    assert write.bind("clicks", "value") is write


def test_secrets_are_not_shown():
    config = mp.SchemaRegistryClientConfig(
        "https://registry:8081",
        basic_auth_user_info="ann:tr0ub4dor",
        ssl_key_password="tr0ub4dor",
        extra={"bearer.auth.token": "tr0ub4dor", "proxy": "http://ann:tr0ub4dor@proxy"},
    )

    for shown in (repr(config), str(config), f"{[config]}", repr(mp.AvroDeserializer(
        CLICK, schema_registry_client_config=config))):  # fmt: skip
        assert "tr0ub4dor" not in shown
    assert "https://registry:8081" in repr(config)
    assert config.as_dict()["basic.auth.user.info"] == "ann:tr0ub4dor"
    assert config.as_dict()["bearer.auth.token"] == "tr0ub4dor"


@pytest.mark.parametrize(
    ("url", "bare", "user"),
    [
        ("http://r:8081", "http://r:8081", None),
        ("https://ann:pass@r:8081/api", "https://r:8081/api", "ann:pass"),
        ("http://a%40b:p%3Aq@r", "http://r", "a@b:p:q"),
        ("http://r1, http://r2", "http://r1,http://r2", None),
        ("http://ann:p@r1,http://ann:p@r2", "http://r1,http://r2", "ann:p"),
    ],
)
def test_a_user_in_an_address_is_taken_out_of_it(url, bare, user):
    config = mp.SchemaRegistryClientConfig(url)

    assert (config.url, config.basic_auth_user_info) == (bare, user)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    "url", ["", "registry:8081", "ftp://ann:tr0ub4dor@r", "http://", "http://ann:tr0ub4dor@[", 5]
)
def test_what_is_no_address_of_a_registry_is_refused(url):
    with pytest.raises(ConfigError, match="Fix:") as caught:
        mp.SchemaRegistryClientConfig(url)

    assert "tr0ub4dor" not in "".join(traceback.format_exception(caught.value))


def test_two_users_are_refused():
    with pytest.raises(ConfigError, match="name two(.|\n)*Fix:") as caught:
        mp.SchemaRegistryClientConfig("http://ann:tr0ub4dor@r", basic_auth_user_info="bob:pass")

    assert "tr0ub4dor" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_ca_location": "/nowhere.pem"},
        {"extra": {"no.such.setting": 1}},
    ],
)
def test_settings_that_cannot_work_are_named_with_the_first_record(settings):
    config = mp.SchemaRegistryClientConfig("http://127.0.0.1:9", **settings)
    read = mp.AvroDeserializer(schema_registry_client_config=config).bind("clicks", "value")

    with pytest.raises(RegistryError, match="cannot work(.|\n)*Fix:"):
        read(b"\0\0\0\0\1{}")


@pytest.mark.parametrize("wrong", ["tr0ub4dor", 5, ("ann", "tr0ub4dor")])
def test_a_user_has_a_password(wrong):
    with pytest.raises(ConfigError, match="user:password(.|\n)*Fix:") as caught:
        mp.SchemaRegistryClientConfig("http://r", basic_auth_user_info=wrong)

    assert "tr0ub4dor" not in str(caught.value)


LATEST = mp.SchemaRegistrySerializationConfig(use_latest_version=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mp.SchemaRegistrySerializationConfig(use_deprecated_format=True),
        lambda: mp.AvroSerializer(CLICK, schema_registry_serialization_config=LATEST),
        lambda: mp.AvroSerializer(
            CLICK,
            schema_registry_client_config=NOWHERE,
            schema_registry_serialization_config=LATEST,
        ),
        lambda: mp.AvroSerializer(CLICK, schema_registry_client_config={"url": "http://r"}),
        lambda: mp.AvroSerializer(
            CLICK, disable_tuple_notation=True, schema_registry_client_config=NOWHERE
        ),
        lambda: mp.AvroDeserializer(return_named_type=True, schema_registry_client_config=NOWHERE),
        lambda: mp.AvroDeserializer(
            handle_unicode_errors="ignore", schema_registry_client_config=NOWHERE
        ),
        lambda: mp.ProtobufSerializer(
            Order, deterministic=True, schema_registry_client_config=NOWHERE
        ),
        lambda: mp.JSONSerializer(schema_registry_client_config=NOWHERE),
        lambda: mp.JSONSerializer(
            validator=Draft7Validator({}), schema_registry_client_config=NOWHERE
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused_at_once(make):
    with pytest.raises(ConfigError, match="Fix:"):
        make()


# --- what is not installed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "extra", "make"),
    [
        ("fastavro", "avro", lambda: mp.AvroSerializer(CLICK)),
        ("fastavro", "avro", lambda: mp.AvroDeserializer(CLICK)),
        ("jsonschema", "jsonschema", lambda: mp.JSONSerializer(schema=PERSON)),
        (
            "confluent_kafka.schema_registry",
            "registry",
            lambda: mp.AvroDeserializer(schema_registry_client_config=NOWHERE),
        ),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch, missing, extra, make
):
    for name in [name for name in sys.modules if name.split(".")[0] == missing or name == missing]:
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigError, match=rf"Fix: pip install 'millpond\[{extra}\]'"):
        make()


def test_formats_are_loaded_when_they_are_used():
    wanted = "('fastavro', 'jsonschema', 'google.protobuf', 'confluent_kafka.schema_registry')"
    code = f"import sys, millpond; print([name for name in {wanted} if name in sys.modules])"

    assert in_another_process(code) == "[]"


@pytest.mark.parametrize("options", [{"on_error": "dead-letter"}, {}], ids=str)
def test_a_registry_that_is_away_is_no_reason_to_put_records_aside(options):
    def read(data):
        raise RegistryError("the registry does not answer.\nFix: start it.")

    app = mp.Application(loglevel=None)
    sdf = app.dataframe(app.topic("clicks", value_deserializer=read))

    with pytest.raises(StepError, match="the registry does not answer"):
        run_local(sdf, [("a", b"1")], **options)
