"""Times in seconds where milliseconds are expected."""

import logging

import pytest

import millpond as mp
from millpond.testing import frame, run_local

SECONDS = 1_700_000_000


def watched_topic(app):
    return app.dataframe(app.topic("in", timestamp_extractor=lambda value, *rest: value))


PROGRAMS = {
    "timestamp_extractor": watched_topic,
    "set_timestamp": lambda app: app.dataframe(app.topic("in")).set_timestamp(lambda v, *_: v),
    "watermark": lambda app: app.dataframe(app.topic("in")).watermark(on=lambda value: value),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_times_that_look_like_seconds_are_warned_of_once_a_source(name, caplog):
    app = mp.Application(loglevel=None)
    window = PROGRAMS[name](app).tumbling_window(10_000).count()

    with caplog.at_level(logging.WARNING, logger="millpond"):
        run_local(window.final("key"), [(b"k", SECONDS + n * 60) for n in range(5)], batches=1)

    warnings = [record.getMessage() for record in caplog.records]
    assert [text for text in warnings if "look like seconds" in text] == warnings
    assert len(warnings) == 1
    assert "int(seconds * 1000)" in warnings[0]


@pytest.mark.parametrize("moment", [0, 999_999_999, 4_000_000_000, SECONDS * 1000])
def test_other_times_are_not_warned_of(moment, caplog):
    with caplog.at_level(logging.WARNING, logger="millpond"):
        run_local(frame().tumbling_window(10).count().final(), [("k", 1, moment)])

    assert caplog.records == []
