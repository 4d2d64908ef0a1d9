"""What cannot be sent to workers is told before Spark is started, with its step and place."""

import sqlite3
import threading

import pytest

import millpond as mp
from millpond.errors import ConfigError


@pytest.fixture
def app(tmp_path):
    return mp.Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)


def test_a_function_that_holds_a_connection(app):
    connection = sqlite3.connect(":memory:")

    def look_up(value):
        return connection.execute("select 1").fetchone()

    app.dataframe(source=[1]).apply(lambda value: value).apply(look_up)

    with pytest.raises(ConfigError, match=r"apply \(test_shipping\.py:\d+\).*sqlite3(.|\n)*Fix:"):
        app.run()


def test_a_function_that_holds_the_application(app):
    app.dataframe(source=[1]).apply(lambda value: app.config)

    with pytest.raises(ConfigError, match=r"apply \(test_shipping\.py:\d+\)(.|\n)*Fix:"):
        app.run()


def test_an_error_function_that_holds_a_lock(tmp_path):
    lock = threading.Lock()
    app = mp.Application(
        state_dir=tmp_path, loglevel=None, on_processing_error=lambda *_: lock.locked()
    )
    app.dataframe(source=[1]).apply(lambda value: value)

    with pytest.raises(ConfigError, match=r"function of the application(.|\n)*Fix:"):
        app.run()
