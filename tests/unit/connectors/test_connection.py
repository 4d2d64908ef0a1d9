"""Addresses and secrets of a broker."""

import pickle

import pytest

import millpond as mp
from millpond.errors import ConfigError


def test_an_address_is_all_that_is_needed():
    config = mp.ConnectionConfig("localhost:9092")

    assert config.as_librdkafka_dict() == {"bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    "address", ["kafka:9092", "a:1,b:2", "10.0.0.1:9092", "[::1]:9092", "kafka-1.example.org"]
)
def test_addresses_that_work_are_taken(address):
    assert mp.ConnectionConfig(address).bootstrap_servers == address


@pytest.mark.parametrize("address", ["", " ", "kafka:port", "http://kafka:9092", "a:1,,b:2", 9092])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="Fix:"):
        mp.Application(address)


def test_a_user_is_let_in_by_password_over_tls_by_default():
    config = mp.ConnectionConfig("kafka:9093", sasl_username="ann", sasl_password="secret")

    assert config.as_librdkafka_dict() == {
        "bootstrap.servers": "kafka:9093",
        "sasl.username": "ann",
        "sasl.password": "secret",
        "sasl.mechanism": "PLAIN",
        "security.protocol": "sasl_ssl",
    }


def test_secrets_are_never_shown():
    config = mp.ConnectionConfig(
        "kafka:9093",
        sasl_username="ann",
        sasl_password="hunter2",
        ssl_key_password="hunter3",
        extra={
            "sasl.oauthbearer.client.secret": "hunter4",
            "ssl.key.pem": "hunter5",
            "socket.timeout.ms": 7,
        },
    )
    app = mp.Application(config, producer_extra_config={"ssl.keystore.password": "hunter6"})

    shown = f"{config!r} {config} {app.config!r}"
    assert "hunter" not in shown
    assert "'ann'" in shown and "'socket.timeout.ms': 7" in shown


def test_settings_of_librdkafka_come_back_as_they_went_in():
    settings = {
        "bootstrap.servers": "kafka:9093",
        "sasl.mechanism": "SCRAM-SHA-256",
        "security.protocol": "ssl",
        "socket.timeout.ms": 7,
    }

    config = mp.ConnectionConfig.from_librdkafka_dict(settings)

    assert config.sasl_mechanism == "SCRAM-SHA-256"
    assert config.extra == {"socket.timeout.ms": 7}
    assert config.as_librdkafka_dict() == settings


def test_settings_without_an_address_are_refused():
    with pytest.raises(ConfigError, match=r"bootstrap\.servers(.|\n)*Fix:"):
        mp.ConnectionConfig.from_librdkafka_dict({"security.protocol": "ssl"})


@pytest.mark.parametrize(
    "address", ["ann:hunter2@kafka:9093", "k:1,kafka://ann:hunt,er2@kafka:9093"]
)
def test_a_password_in_an_address_is_not_shown(address):
    with pytest.raises(ConfigError, match=r"'\*\*\*@kafka:9093' is not the address") as caught:
        mp.ConnectionConfig(address)

    assert "hunt" not in str(caught.value)
    assert "er2" not in str(caught.value)
    assert "Fix: sasl_username= and sasl_password=" in str(caught.value)


def test_it_is_sent_to_workers_whole():
    config = mp.ConnectionConfig("kafka:9093", sasl_username="ann", sasl_password="secret")

    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    "options", [{"processing_guarantee": "maybe"}, {"on_lost_records": "cry"}], ids=str
)
def test_options_for_kafka_that_cannot_work_are_refused(options):
    with pytest.raises(ConfigError, match="Fix:"):
        mp.Application("localhost:9092", **options)
