"""`millpond topics` on Kafka and on the embedded log."""

from __future__ import annotations

import json

import pytest
from kit import new_name
from typer.testing import CliRunner

from millpond.cli.main import command
from millpond.errors import BrokerError, ConfigError, TopicError

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["embedded", "kafka"])
def place(request, broker, tmp_path):
    return (
        ["--broker", broker.address]
        if request.param == "kafka"
        else ["--topics-dir", str(tmp_path)]
    )


def call(*arguments, text=None):
    return CliRunner().invoke(command, ["topics", *arguments], input=text)


def test_create_write_read_and_list(place):
    topic = new_name()
    lines = "".join(f'{{"user": "u{i % 3}", "n": {i}}}\n' for i in range(6))

    made = call("create", topic, "--partitions", "2", *place)
    wrote = call("write", topic, "--key-field", "user", *place, text=lines)
    read = call("read", topic, *place)
    some = call("read", topic, "--limit", "2", *place)
    listed = call("ls", *place)

    assert made.stdout == f"{topic} has 2 partitions.\n", made
    assert wrote.stdout == f"6 records written to {topic}.\n"
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert sorted(r["value"]["n"] for r in records) == list(range(6))
    assert all(r["key"] == r["value"]["user"] for r in records)
    assert len(some.stdout.splitlines()) == 2
    assert topic in listed.stdout


def test_a_topic_is_deleted_and_one_that_is_not_there_is_an_error(place):
    topic = new_name()
    call("create", topic, *place)
    call("write", topic, *place, text="1\n")

    deleted = call("delete", topic, "--yes", *place)

    assert deleted.stdout.startswith(f"{topic} is deleted.")
    assert topic not in call("ls", *place).stdout
    again = call("delete", topic, "--yes", *place)
    assert isinstance(again.exception, TopicError)
    assert "\nFix: " in str(again.exception)


def test_a_setting_of_the_topic_and_of_the_client(broker):
    topic, place = new_name(), ["--broker", broker.address]

    made = call("create", topic, "--config", "cleanup.policy=compact", "-X", "client.id=me", *place)

    assert made.exit_code == 0
    assert isinstance(call("create", topic, "--config", "compact", *place).exception, ConfigError)


def test_a_wrong_address_is_a_clear_error():
    found = call("ls", "--broker", "127.0.0.1:1")

    assert isinstance(found.exception, BrokerError)
    assert "Fix: check the address" in str(found.exception)
