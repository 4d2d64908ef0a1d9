"""Schemas in a real registry.

It knows no passwords by itself, so a small proxy stands before it where a test is about passwords,
TLS or a registry that is away.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import ssl
import subprocess
import threading
import traceback
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import cloudpickle
import pytest

pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from machine import free_ports
from registry import A_CLICK, A_PERSON, AN_ORDER, CLICK, NEWER, PERSON, Apicurio, Order

import millpond as mp
from millpond.connectors.topic import make_topic
from millpond.errors import RegistryError, SerializationError

pytestmark = pytest.mark.kafka


class Proxy:
    """Stands before a registry: counts requests, asks for a password, speaks TLS, goes away."""

    def __init__(self, url: str, user: str | None = None, certificate: Path | None = None) -> None:
        (port,) = free_ports(1)
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.requests: list[str] = []
        self._address, self._certificate = ("127.0.0.1", port), certificate
        self._handler = self._make_handler(url, user)

    def _make_handler(self, url: str, user: str | None) -> type[BaseHTTPRequestHandler]:
        wanted = user and "Basic " + base64.b64encode(user.encode()).decode()
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                requests.append(f"{self.command} {self.path.partition('?')[0]}")
                if wanted and self.headers.get("Authorization") != wanted:
                    self.answer(401, b'{"error_code": 40101, "message": "who are you?"}')
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                headers = {n: v for n, v in self.headers.items() if n in ("Accept", "Content-Type")}
                request = urllib.request.Request(
                    url + self.path, body, headers, method=self.command
                )
                try:
                    with urllib.request.urlopen(request, timeout=20) as response:
                        self.answer(response.status, response.read())
                except HTTPError as error:
                    self.answer(error.code, error.read())

            do_GET = do_POST = do_PUT = do_DELETE = do

            def answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __enter__(self) -> Proxy:
        self._server = ThreadingHTTPServer(self._address, self._handler)
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def topic():
    return f"topic-{uuid.uuid4().hex[:8]}"


def config(url: str, **settings) -> mp.SchemaRegistryClientConfig:
    return mp.SchemaRegistryClientConfig(url, extra={"max.retries": 0}, **settings)


def pair(kind: str, where: mp.SchemaRegistryClientConfig, topic: str, field: str = "value", **more):
    """A serializer and a deserializer of a topic."""
    options = {"schema_registry_client_config": where, **more}
    made = {
        "avro": (mp.AvroSerializer, mp.AvroDeserializer, CLICK),
        "json": (mp.JSONSerializer, mp.JSONDeserializer, PERSON),
        "protobuf": (mp.ProtobufSerializer, mp.ProtobufDeserializer, Order),
    }
    writer, reader, schema = made[kind]
    if kind == "avro":
        both = writer(schema, **options), reader(**options)
    elif kind == "json":
        both = writer(schema=schema, **options), reader(**options)
    else:
        both = writer(schema, **options), reader(schema, **options)
    return tuple(travelled(one.bind(topic, field)) for one in both)


def travelled(made):
    """As it comes to a worker."""
    return pickle.loads(cloudpickle.dumps(made))


def asked(registry: Apicurio, path: str, body: object = None, method: str | None = None):
    """What the registry itself says, without Confluent's client."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(registry.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def id_of(data: bytes) -> int:
    assert data[0] == 0
    return int.from_bytes(data[1:5])


KINDS = {"avro": A_CLICK, "json": A_PERSON, "protobuf": AN_ORDER}


# --- there and back -------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_comes_back_and_its_schema_is_registered(registry, topic, kind, field):
    write, read = pair(kind, config(registry.url), topic, field)

    data = write(KINDS[kind])

    assert read(data) == KINDS[kind]
    assert asked(registry, f"/subjects/{topic}-{field}/versions/latest")["id"] == id_of(data)


def test_a_topic_binds_its_serializers(registry, topic):
    write = mp.AvroSerializer(CLICK, schema_registry_client_config=config(registry.url))
    key = mp.AvroSerializer("string", schema_registry_client_config=config(registry.url))

    made = make_topic(topic, value_serializer=write, key_serializer=key)
    made.value_serializer(A_CLICK)
    made.key_serializer("ann")

    subjects = asked(registry, "/subjects")
    assert {f"{topic}-key", f"{topic}-value"} <= set(subjects)


def confluents(kind: str, client: SchemaRegistryClient):
    conf = {"subject.name.strategy": topic_subject_name_strategy}
    if kind == "avro":
        text = json.dumps(CLICK)
        return AvroSerializer(client, text, conf=conf), AvroDeserializer(client, conf=conf)
    if kind == "json":
        text = json.dumps(PERSON)
        return JSONSerializer(text, client, conf=conf), JSONDeserializer(text)
    write, read = ProtobufSerializer(Order, client, conf=conf), ProtobufDeserializer(Order)
    return (
        lambda value, context: write(json_format.ParseDict(value, Order()), context),
        lambda data, context: json_format.MessageToDict(read(data, context)),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_confluents_own_clients_write_is_read_and_the_other_way(registry, topic, kind):
    write, read = pair(kind, config(registry.url), topic)
    theirs, their_read = confluents(kind, SchemaRegistryClient({"url": registry.url}))
    context, value = SerializationContext(topic, "value"), KINDS[kind]

    data = theirs(value, context)

    assert write(value) == data
    assert read(data) == value
    assert their_read(data, context) == value


def test_kafka_has_what_other_consumers_understand(registry, broker, topic):
    """Written to Kafka with Confluent's serializer, read by ours; and the other way."""
    from kit import new_topic

    topic = new_topic(broker)
    write, read = pair("avro", config(registry.url), topic)
    client = SchemaRegistryClient({"url": registry.url})
    theirs, their_read = confluents("avro", client)
    context = SerializationContext(topic, "value")
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})

    producer.produce(topic, theirs(A_CLICK, context))
    producer.produce(topic, write({"user": "bob", "count": 3}))
    assert producer.flush(10) == 0
    first, second = consumed(broker, topic, 2)

    assert read(first) == A_CLICK
    assert their_read(second, context) == {"user": "bob", "count": 3}


def consumed(broker, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [consumer.poll(10).value() for _ in range(count)]
    consumer.close()
    return found


def test_strict_avro_is_strict_with_a_registry_too(registry, topic):
    where = {"schema_registry_client_config": config(registry.url)}
    loose = mp.AvroSerializer(NEWER, **where).bind(topic, "value")
    strict = mp.AvroSerializer(NEWER, strict=True, **where).bind(topic, "value")
    allowing = mp.AvroSerializer(NEWER, strict_allow_default=True, **where).bind(topic, "value")

    assert allowing(A_CLICK) == loose(A_CLICK) == loose({**A_CLICK, "other": 1})
    for write, value in ((strict, A_CLICK), (allowing, {**A_CLICK, "other": 1})):
        with pytest.raises(SerializationError, match="cannot write as avro(.|\n)*Fix:"):
            write(value)


def test_own_functions_of_json_are_used(registry, topic):
    options = {"schema_registry_client_config": config(registry.url)}
    write = mp.JSONSerializer(lambda value: json.dumps(value, indent=1), PERSON, **options)
    read = mp.JSONDeserializer(lambda data: json.loads(data) | {"own": 1}, **options)

    data = write.bind(topic, "value")(A_PERSON)

    assert data[5:] == b'{\n "name": "ann"\n}'
    assert read.bind(topic, "value")(data) == {"name": "ann", "own": 1}


def test_a_schema_of_the_readers_own_takes_the_place_of_the_writers(registry, topic):
    where = {"schema_registry_client_config": config(registry.url)}
    data = mp.JSONSerializer(schema=PERSON, **where).bind(topic, "value")(A_PERSON)
    ann_only = {"properties": {"name": {"const": "ann"}}}

    read = mp.JSONDeserializer(schema=ann_only, **where).bind(topic, "value")

    assert read(data) == A_PERSON
    assert read(data[:5] + b"5") == 5  # the writer's schema would refuse it
    with pytest.raises(SerializationError, match="does not fit(.|\n)*Fix:"):
        read(data[:5] + b'{"name": "bob"}')


def test_json_must_fit_the_schema_it_was_written_with(registry, topic):
    write, read = pair("json", config(registry.url), topic)
    data = write(A_PERSON)

    with pytest.raises(SerializationError, match="does not fit(.|\n)*Fix:"):
        write({"name": 5})
    with pytest.raises(SerializationError, match="not of type 'string'(.|\n)*Fix:"):
        read(data[:5] + b'{"name": 5}')


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_do_not_fit_and_broken_bytes_give_a_fix(registry, topic, kind):
    write, read = pair(kind, config(registry.url), topic)
    data = write(KINDS[kind])

    with pytest.raises(SerializationError, match="Fix:") as written:
        write({"name": 5, "user": 5})
    with pytest.raises(SerializationError, match="Fix:") as broken:
        read(data[:-1])
    assert not isinstance(written.value, RegistryError)
    assert not isinstance(broken.value, RegistryError)


def test_imported_files_of_protobuf_are_registered_too(registry, topic):
    write, _ = pair("protobuf", config(registry.url), topic)
    write(AN_ORDER)
    assert references(registry, topic) == ["money.proto"]

    everything = mp.SchemaRegistrySerializationConfig(
        skip_known_types=False,
        reference_subject_name_strategy=lambda context, file: f"{context.topic}/{file.name}",
    )
    other = f"{topic}-2"
    more = {"schema_registry_serialization_config": everything}
    write, read = pair("protobuf", config(registry.url), other, **more)

    assert read(write(AN_ORDER)) == AN_ORDER
    assert references(registry, other) == ["money.proto", "google/protobuf/timestamp.proto"]
    assert f"{other}/money.proto" in asked(registry, "/subjects")


def test_a_message_of_protobufs_own_comes_back(registry, topic):
    where = {"schema_registry_client_config": config(registry.url)}
    write = mp.ProtobufSerializer(Struct, **where).bind(topic, "value")
    read = mp.ProtobufDeserializer(Struct, **where).bind(topic, "value")

    assert read(write({"a": [1, "x"]})) == {"a": [1, "x"]}


def references(registry: Apicurio, topic: str) -> list[str]:
    latest = asked(registry, f"/subjects/{topic}-value/versions/latest")
    return [reference["name"] for reference in latest.get("references") or []]


# --- schemas that change --------------------------------------------------------------------


def test_old_records_are_read_as_the_new_schema_and_new_ones_as_the_old(registry, topic):
    where = {"schema_registry_client_config": config(registry.url)}
    old = mp.AvroSerializer(CLICK, **where).bind(topic, "value")(A_CLICK)
    new = mp.AvroSerializer(NEWER, **where).bind(topic, "value")({**A_CLICK, "page": "/a"})

    assert id_of(old) != id_of(new)
    as_written = mp.AvroDeserializer(**where).bind(topic, "value")
    assert [as_written(old), as_written(new)] == [A_CLICK, {**A_CLICK, "page": "/a"}]
    as_new = mp.AvroDeserializer(NEWER, **where).bind(topic, "value")
    assert as_new(old) == {**A_CLICK, "page": "/"}
    as_old = mp.AvroDeserializer(NEWER, reader_schema=CLICK, **where).bind(topic, "value")
    assert as_old(new) == A_CLICK


def test_the_latest_schema_is_used_if_wanted(registry, topic):
    subject, client = f"{topic}-value", SchemaRegistryClient({"url": registry.url})
    latest = mp.SchemaRegistrySerializationConfig(
        auto_register_schemas=False, use_latest_version=True
    )
    more = {"schema_registry_serialization_config": latest}
    client.register_schema(subject, Schema(json.dumps(NEWER), "AVRO"))

    write, read = pair("avro", config(registry.url), topic, **more)

    assert read(write(A_CLICK)) == {**A_CLICK, "page": "/"}


def test_a_schema_that_does_not_fit_those_before_it_is_refused(registry, topic):
    asked(registry, f"/config/{topic}-value", {"compatibility": "BACKWARD"}, "PUT")
    where = {"schema_registry_client_config": config(registry.url)}
    mp.AvroSerializer(CLICK, **where).bind(topic, "value")(A_CLICK)
    other = {**CLICK, "fields": [{"name": "user", "type": "int"}]}

    with pytest.raises(RegistryError, match=f"refuses the schema(.|\n)*{topic}(.|\n)*Fix:"):
        mp.AvroSerializer(other, **where).bind(topic, "value")({"user": 5})


def test_schemas_are_not_registered_if_not_wanted(registry, topic):
    only_known = mp.SchemaRegistrySerializationConfig(auto_register_schemas=False)
    more = {"schema_registry_serialization_config": only_known}
    write, read = pair("avro", config(registry.url), topic, **more)

    with pytest.raises(RegistryError, match=f"does not have(.|\n)*{topic}(.|\n)*Fix: register"):
        write(A_CLICK)
    asked(
        registry,
        f"/subjects/{topic}-value/versions",
        {"schema": json.dumps(CLICK), "schemaType": "AVRO"},
    )

    assert read(write(A_CLICK)) == A_CLICK


def test_subjects_can_have_other_names(registry, topic):
    by_record = mp.SchemaRegistrySerializationConfig(
        subject_name_strategy=record_subject_name_strategy
    )
    by_function = mp.SchemaRegistrySerializationConfig(
        subject_name_strategy=lambda context, record: f"{context.topic}/{context.field}/{record}"
    )

    for settings, subject in (
        (by_record, "shop.Click"),
        (by_function, f"{topic}/value/shop.Click"),
    ):
        write, read = pair(
            "avro", config(registry.url), topic, schema_registry_serialization_config=settings
        )
        assert read(write(A_CLICK)) == A_CLICK
        assert subject in asked(registry, "/subjects")


# --- a registry that says no ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_schema_is_the_fault_of_the_record(registry, topic, kind):
    write, read = pair(kind, config(registry.url), topic)
    data = write(KINDS[kind])

    with pytest.raises(SerializationError, match=f"no schema 999999(.|\n)*{topic}(.|\n)*Fix:") as e:
        read(b"\0" + (999_999).to_bytes(4) + data[5:])

    assert not isinstance(e.value, RegistryError)
    assert read(data)


def test_an_address_where_no_registry_is(registry, topic):
    wrong = registry.url.removesuffix("/apis/ccompat/v7") + "/nothing"
    write, _ = pair("avro", config(wrong), topic)

    with pytest.raises(RegistryError, match="does not know Confluent's API(.|\n)*Fix:"):
        write(A_CLICK)


def test_a_password_lets_in_and_is_never_shown(registry, topic):
    with Proxy(registry.url, user="ann:tr0ub4dor") as proxy:
        write, read = pair("avro", config(proxy.url, basic_auth_user_info="ann:tr0ub4dor"), topic)
        assert read(write(A_CLICK)) == A_CLICK
        address = proxy.url.replace("http://", "http://ann:tr0ub4dor@")
        assert pair("avro", config(address), topic)[1](write(A_CLICK)) == A_CLICK

        for wrong in (
            config(proxy.url, basic_auth_user_info="ann:Tr0ub4dor&3"),
            config(proxy.url.replace("http://", "http://ann:Tr0ub4dor&3@")),
            config(proxy.url),
        ):
            with pytest.raises(RegistryError, match="let us in(.|\n)*Fix: set basic_auth") as e:
                pair("avro", wrong, topic)[0](A_CLICK)
            assert "Tr0ub4dor&3" not in "".join(traceback.format_exception(e.value))


def test_a_registry_with_tls_is_trusted_by_its_authority(registry, topic, tmp_path):
    certificate = tmp_path / "registry.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate,
         "-out", tmp_path / "ca.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "ca.pem").read_bytes())

    with Proxy(registry.url, certificate=certificate) as proxy:
        trusting = config(proxy.url, ssl_ca_location=str(tmp_path / "ca.pem"))
        write, read = pair("avro", trusting, topic)
        assert read(write(A_CLICK)) == A_CLICK
        with pytest.raises(RegistryError, match="does not answer(.|\n)*CERTIFICATE(.|\n)*Fix:"):
            pair("avro", config(proxy.url), topic)[0](A_CLICK)


def test_a_registry_that_was_away_is_asked_again(registry, topic):
    proxy = Proxy(registry.url)
    write, read = pair("avro", config(proxy.url), topic)

    with pytest.raises(RegistryError, match="does not answer(.|\n)*Fix:"):
        write(A_CLICK)
    with proxy:
        data = write(A_CLICK)
        assert read(data) == A_CLICK
    assert read(data) == A_CLICK  # what is known needs no registry
    assert read(write(A_CLICK)) == A_CLICK
    with pytest.raises(RegistryError, match="does not answer"):
        read(b"\0" + (999_999).to_bytes(4) + data[5:])


# --- workers --------------------------------------------------------------------------------


def test_a_process_asks_for_a_schema_once_however_often_a_plan_is_unpickled(registry, topic):
    with Proxy(registry.url) as proxy:
        write, read = pair("avro", config(proxy.url), topic)
        for _ in range(5):
            assert travelled(read)(travelled(write)(A_CLICK)) == A_CLICK

        assert len(proxy.requests) <= 2, proxy.requests


def test_a_forked_process_has_a_client_of_its_own(registry, topic):
    """Spark forks its workers; two processes on one connection would mix up their answers."""
    with Proxy(registry.url) as proxy:
        write, read = pair("avro", config(proxy.url), topic)
        data = write(A_CLICK)
        assert read(data) == A_CLICK
        before = len(proxy.requests)

        child = os.fork()
        if child == 0:
            os._exit(0 if read(data) == A_CLICK and write(A_CLICK) == data else 1)
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert len(proxy.requests) > before
        assert read(data) == A_CLICK


@pytest.mark.spark
def test_spark_workers_read_and_write_with_a_registry(registry, topic, spark, tmp_path):
    options = {"schema_registry_client_config": config(registry.url)}
    app = mp.Application(
        consumer_group=topic,
        state_dir=tmp_path / "state",
        topics_dir=tmp_path / "topics",
        auto_offset_reset="earliest",
        loglevel=None,
        spark=spark,
    )
    clicks = app.topic(
        "clicks",
        value_serializer=mp.AvroSerializer(CLICK, **options),
        value_deserializer=mp.AvroDeserializer(**options),
        key_serializer="str",
        key_deserializer="str",
    )
    orders = app.topic(
        "orders",
        value_serializer=mp.ProtobufSerializer(Order, **options),
        value_deserializer=mp.ProtobufDeserializer(Order, **options),
    )
    with app.get_producer() as producer:
        for user, count in (("ann", 2), ("bob", 5), ("ann", 3)):
            producer.produce(clicks, {"user": user, "count": count}, user)

    def add(click, state):
        total = state.get("total", 0) + click["count"]
        state.set("total", total)
        return {"user": click["user"], "total": {"cents": total}}

    app.dataframe(clicks).apply(add, stateful=True).to_topic(orders)
    app.run(drain=True)

    with app.get_consumer() as consumer:
        consumer.subscribe([orders])
        values = [consumer.poll(10).value for _ in range(3)]
    totals = sorted((order["user"], order["total"]["cents"]) for order in values)
    assert totals == [("ann", 2), ("ann", 5), ("bob", 5)]
