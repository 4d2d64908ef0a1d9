"""Keywords and arguments of calls, as programs for Quix Streams 3.28.1 pass them."""

import inspect
import logging
import math

import pytest

import millpond as mp
from millpond.errors import ConfigError

# Of Application.__init__ of Quix Streams 3.28.1; those that Millpond has as well are not here.
IGNORED = {
    "quix_sdk_token": "token",
    "quix_portal_api": "https://portal",
    "quix_config_builder": object(),
    "commit_every": 100,
    "rocksdb_options": object(),
    "on_consumer_error": print,
    "on_producer_error": print,
    "on_message_processed": print,
    "consumer_poll_timeout": 1.0,
    "producer_poll_timeout": 0.0,
    "use_changelog_topics": False,
    "auto_recover_from_source_offset_out_of_range": True,
    "state_recovery_offset_reset": "latest",
    "topic_manager": object(),
    "request_timeout": 30,
    "topic_create_timeout": 60,
    "max_partition_buffer_size": 10_000,
}
SHARED = {
    "broker_address": None,
    "consumer_group": None,
    "auto_offset_reset": "earliest",
    "commit_interval": 5.0,
    "consumer_extra_config": None,
    "producer_extra_config": None,
    "state_dir": None,
    "on_processing_error": None,
    "loglevel": None,
    "auto_create_topics": True,
    "processing_guarantee": "at-least-once",
    "broker_availability_timeout": 120.0,
}


def test_an_application_takes_every_keyword_of_quix_and_warns_once_of_those_it_ignores(caplog):
    with caplog.at_level(logging.WARNING, logger="millpond"):
        app = mp.Application(**SHARED, **IGNORED)

    (record,) = caplog.records
    assert all(name in record.getMessage() for name in IGNORED)
    assert "Fix: leave them out." in record.getMessage()
    assert "test_quix_keywords.py" in record.getMessage()
    assert (app.config.consumer_group, app.config.state_dir) == ("default", "state")


def test_an_application_that_is_given_no_foreign_keyword_warns_of_nothing(caplog):
    with caplog.at_level(logging.WARNING, logger="millpond"):
        mp.Application(**SHARED)

    assert caplog.records == []


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("consumr_group", "did you mean 'consumer_group'"),
        ("commit_intervall", "did you mean 'commit_interval'"),
        ("use_changelog_topic", "did you mean 'use_changelog_topics'"),
        ("zzz", "leave it out"),
    ],
)
def test_a_misspelt_keyword_is_refused_with_the_one_that_is_close(misspelt, meant):
    with pytest.raises(TypeError, match=rf"keyword argument '{misspelt}'(.|\n)*Fix: {meant}"):
        mp.Application(**{misspelt: 1})


@pytest.mark.parametrize(("given", "waits"), [(120.0, 120.0), (0, math.inf), (None, 600.0)])
def test_how_long_a_broker_is_waited_for_is_an_argument_as_in_quix(given, waits):
    app = mp.Application("localhost:1", broker_availability_timeout=given, loglevel=None)

    assert app.config.connection.patience == waits


@pytest.mark.parametrize("given", [-1, "60"])
def test_a_time_to_wait_for_a_broker_must_be_seconds(given):
    with pytest.raises(ConfigError, match=r"broker_availability_timeout is seconds(.|\n)*Fix:"):
        mp.Application("localhost:1", broker_availability_timeout=given, loglevel=None)


def names_of(function):
    return [*inspect.signature(function).parameters][1:]


def test_arguments_by_position_have_the_order_of_quix():
    assert names_of(mp.Application.topic)[:7] == [
        *("name", "value_deserializer", "key_deserializer", "value_serializer", "key_serializer"),
        *("config", "timestamp_extractor"),
    ]
    assert names_of(mp.Application.run)[:5] == [
        *("dataframe", "timeout", "count", "collect", "metadata"),
    ]
    assert names_of(mp.StreamingDataFrame.test) == [
        *("value", "key", "timestamp", "headers", "ctx", "topic"),
    ]
    assert names_of(mp.Column.apply) == ["func"]
    assert names_of(mp.Column.isin) == ["other"]


def test_a_timestamp_extractor_in_the_place_of_the_config_is_refused():
    app = mp.Application(loglevel=None)

    with pytest.raises(ConfigError, match=r"config must be a TopicConfig(.|\n)*Fix:"):
        app.topic("in", "json", "bytes", "json", "bytes", lambda *record: 5)


def test_a_consumer_warns_that_it_commits_nothing(tmp_path, caplog):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)

    with caplog.at_level(logging.WARNING, logger="millpond"):
        app.get_consumer()
        app.get_consumer(auto_commit_enable=False)

    assert len(caplog.records) == 1
    assert "auto_commit_enable (this consumer joins no group" in caplog.text


def test_a_producer_has_no_transactions(tmp_path):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)
    app.get_producer(transactional=False)

    with pytest.raises(ConfigError, match=r"no transactions(.|\n)*Fix: leave transactional out"):
        app.get_producer(transactional=True)
