"""Passwords of a broker and of a registry are nowhere where others could read them."""

from __future__ import annotations

import planted
import pytest
from broker import Broker
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kit import admin_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PROGRAM = """
import logging

import planted

watch = planted.Watch()
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("py4j").setLevel(logging.DEBUG)

import millpond as mp

SECRET = planted.SECRET
connection = mp.ConnectionConfig(
    "ADDRESS",
    security_protocol="sasl_plaintext",
    sasl_mechanism="PLAIN",
    sasl_username="ann",
    sasl_password=SECRET + "-sasl",
    extra={"ssl.key.password": SECRET + "-extra"},
)
app = mp.Application(
    connection,
    consumer_group="secrets",
    state_dir="state",
    auto_offset_reset="earliest",
    loglevel="DEBUG",
    spark_config=planted.settings(),
    consumer_extra_config={"ssl.keystore.password": SECRET + "-consumer"},
    producer_extra_config={"ssl.keystore.password": SECRET + "-producer"},
)
registry = mp.SchemaRegistryClientConfig(
    f"http://user:{SECRET}-url@127.0.0.1:1", ssl_key_password=SECRET + "-registry"
)
avro = app.topic(
    "avro", value_deserializer=mp.AvroDeserializer(schema_registry_client_config=registry)
)
clicks, totals = app.topic("clicks"), app.topic("totals")


def count(value, state):
    state.set("n", state.get("n", 0) + value)
    return state.get("n")


with app.get_producer() as producer:
    for n in (1, 2):
        producer.produce("clicks", n, "ann")
sdf = app.dataframe(clicks).concat(app.dataframe(avro))
sdf.group_by(lambda value: 1, name="one").apply(count, stateful=True).to_topic(totals)
assert app.run(drain=True) == [1, 3]
planted.report(app, watch, registry=planted.is_in(repr((registry, avro, connection)).encode()))
"""


def test_passwords_of_a_broker_and_a_registry_are_in_no_command_line_log_page_or_file(
    tmp_path_factory,
):
    users = {"ann": f"{planted.SECRET}-sasl"}
    with Broker(tmp_path_factory.mktemp("broker"), users) as broker:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        rights = [
            AclBinding(
                *(kind, "*", ResourcePatternType.LITERAL, "User:ann", "*"),
                *(AclOperation.ALL, AclPermissionType.ALLOW),
            )
            for kind in kinds
        ]
        admin = admin_of(broker)
        for made in admin.create_acls(rights).values():
            made.result(10)

        program = PROGRAM.replace("ADDRESS", broker.sasl_address)
        found = planted.run(tmp_path_factory.mktemp("program"), program)

    # The broker reads its users from a file of its own.
    assert found == {**planted.NOWHERE, "registry": False}
