"""A run that goes on starts Java with both compilers, one that has an end with one."""

from __future__ import annotations

import pytest

import millpond as mp
from millpond.connectors.sources import ListSource
from millpond.spark import run


class Seen(Exception):
    """What was asked for is known; Spark need not be started."""


@pytest.fixture
def asked(monkeypatch):
    found = []

    def told(*_, goes_on):
        found.append(goes_on)
        raise Seen

    monkeypatch.setattr(run, "open_session", told)
    return found


@pytest.mark.parametrize(
    ("limits", "goes_on"),
    [({}, True), ({"drain": True}, False), ({"timeout": 5}, False), ({"count": 5}, False)],
)
def test_what_has_no_limit_goes_on(asked, tmp_path, limits, goes_on):
    app = mp.Application(
        consumer_group="g", state_dir=tmp_path / "state", topics_dir=tmp_path / "topics"
    )
    app.dataframe(app.topic("in")).print()

    with pytest.raises(Seen):
        app.run(**limits)

    assert asked == [goes_on]


def test_lists_have_an_end(asked, tmp_path):
    app = mp.Application(consumer_group="g", state_dir=tmp_path / "state")
    app.dataframe(source=ListSource([1, 2, 3])).print()

    with pytest.raises(Seen):
        app.run()

    assert asked == [False]
