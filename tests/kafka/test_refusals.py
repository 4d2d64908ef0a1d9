"""When a broker cannot be used: an error soon, which says what is wrong and what to do."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kit import admin_of, new_name, new_topic

import millpond as mp
from millpond.errors import BrokerError, TopicError

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker that asks for a password, and that grants nothing by itself."""
    from broker import Broker

    with Broker(tmp_path_factory.mktemp("guarded"), users={"ann": "river", "bob": "lake"}) as made:
        yield made


def sasl(broker, user, password):
    return mp.ConnectionConfig(
        broker.sasl_address,
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=password,
    )


def grant(broker, user, *rights):
    """Allow (kind, name, operation), ..."""
    admin = admin_of(broker)
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    for future in admin.create_acls(bindings).values():
        future.result(10)


def run(tmp_path, address, topic="clicks", out=None, **options):
    """Run a program; return the error and how long it took, Spark's start not needed for it."""
    options = {"auto_offset_reset": "earliest", "loglevel": None, **options}
    app = mp.Application(address, state_dir=tmp_path / "state", **options)
    sdf = app.dataframe(app.topic(topic))
    if out:
        sdf.to_topic(app.topic(out))
    app.broker.connect()
    app.broker.prepare(app.topics[topic])
    if out:
        app.broker.prepare(app.topics[out])
        app.broker.writer("default", "s", True, lambda batch: {})


def error_of(call, kind, text):
    began = time.monotonic()
    with pytest.raises(kind, match=text):
        call()
    assert time.monotonic() - began < 30


def test_nobody_listens_at_the_address(tmp_path):
    error_of(
        lambda: run(tmp_path, "127.0.0.1:1"),
        BrokerError,
        r"127\.0\.0\.1:1(.|\n)*Fix: check the address",
    )


def test_the_name_of_the_broker_is_not_known(tmp_path):
    error_of(
        lambda: run(tmp_path, "no-such-host.invalid:9092"),
        BrokerError,
        r"no-such-host(.|\n)*Fix: check the address",
    )


def test_application_run_says_so_before_spark_is_started(tmp_path):
    app = mp.Application("127.0.0.1:1", state_dir=tmp_path, loglevel=None)
    app.dataframe(app.topic("clicks"))

    error_of(app.run, BrokerError, "Fix: check the address")


def test_the_password_is_wrong(guarded, tmp_path):
    error_of(
        lambda: run(tmp_path, sasl(guarded, "ann", "wrong")),
        BrokerError,
        "(?s)credentials of 'ann': check(?!.*wrong)",
    )


def test_a_password_is_asked_for_and_none_is_given(guarded, tmp_path):
    error_of(lambda: run(tmp_path, guarded.sasl_address), BrokerError, "Fix: ")


def test_the_topic_is_missing_and_may_not_be_created(broker, tmp_path):
    error_of(
        lambda: run(tmp_path, broker.address, new_name(), auto_create_topics=False),
        TopicError,
        r"does not exist(.|\n)*Fix: create it \(millpond topics create",
    )


def test_a_topic_that_is_missing_is_created_as_it_was_configured(broker, tmp_path):
    name = new_name()
    app = mp.Application(broker.address, state_dir=tmp_path, loglevel=None)
    config = mp.TopicConfig(num_partitions=3, extra_config={"retention.ms": "7200000"})

    app.broker.prepare(app.topic(name, config=config))

    assert (name, 3, 0) in app.broker.listed()


def test_a_user_without_rights_gets_an_error_that_says_which(guarded, tmp_path):
    topic, out = new_topic(guarded), new_topic(guarded)
    config = sasl(guarded, "bob", "lake")
    error_of(
        lambda: run(tmp_path, config, topic),
        BrokerError,
        f"{topic}(.|\n)*Fix: ask who runs the broker for the right, for user 'bob'",
    )
    grant(guarded, "bob", (ResourceType.TOPIC, topic, AclOperation.READ))
    run(tmp_path, config, topic)

    error_of(
        lambda: run(tmp_path, config, topic, out),
        BrokerError,
        f"{out}(.|\n)*Fix: ask who runs the broker for the right, for user 'bob'",
    )
    grant(guarded, "bob", (ResourceType.TOPIC, out, AclOperation.DESCRIBE))

    error_of(
        lambda: run(tmp_path, config, topic, out),
        BrokerError,
        r"default\.batches(.|\n)*Fix: ask who runs the broker for the right, for user 'bob'",
    )


def test_a_producer_without_the_right_to_write_gets_an_error(guarded):
    topic = new_topic(guarded)
    grant(guarded, "bob", (ResourceType.TOPIC, topic, AclOperation.DESCRIBE))
    producer = mp.Application(sasl(guarded, "bob", "lake"), loglevel=None).get_producer()
    producer.produce(topic, value=b"x")

    error_of(producer.flush, BrokerError, "Fix: ask who runs the broker for the right")


def test_a_fatal_error_that_the_client_lost_is_read_from_its_log(guarded):
    topic = new_topic(guarded)
    grant(guarded, "bob", (ResourceType.TOPIC, topic, AclOperation.DESCRIBE))
    producer = mp.Application(sasl(guarded, "bob", "lake"), loglevel=None).get_producer()
    producer.produce(topic, value=b"x")
    with pytest.raises(BrokerError):
        producer.flush()

    lost = producer._connection.raised(SystemError("returned NULL without setting an exception"))

    assert lost.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert lost.args[0].str().startswith("Broker: Cluster authorization failed")
