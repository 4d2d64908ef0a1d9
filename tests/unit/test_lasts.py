"""Which runs are to last: what starts Java is told, and it gets both compilers then."""

from __future__ import annotations

import pytest

import millpond as mp
from millpond.errors import DamagedStateError
from millpond.spark import session


class Started(Exception):
    """Stands for a start of Spark."""


@pytest.fixture
def told(monkeypatch):
    found = []

    def open_session(*_, lasts=False):
        found.append(lasts)
        raise Started

    monkeypatch.setattr(session, "open_session", open_session)
    return found


def make(tmp_path, *sources, **settings):
    settings.setdefault("state_dir", tmp_path / "state")
    app = mp.Application(consumer_group="g", topics_dir=tmp_path / "topics", **settings)
    for source in sources:
        app.dataframe(source=source).print()
    if not sources:
        app.dataframe(app.topic("in")).print()
    return app


@pytest.mark.parametrize("settings", [{}, {"state_dir": "hdfs://127.0.0.1:1/state"}])
@pytest.mark.parametrize(
    ("limits", "lasts"),
    [({}, True), ({"drain": True}, False), ({"timeout": 5}, False), ({"count": 3}, False)],
)
def test_a_run_without_end_lasts(tmp_path, told, settings, limits, lasts):
    with pytest.raises(Started):
        make(tmp_path, **settings).run(**limits)
    assert told == [lasts]


def test_lists_end_and_what_has_another_source_does_not(tmp_path, told):
    for sources, lasts in [
        ([mp.ListSource([1])], False),
        ([mp.ListSource([1]), mp.RateSource(5)], True),
    ]:
        with pytest.raises(Started):
            make(tmp_path, *sources).run()
        assert told.pop() is lasts


def test_history_and_what_comes_behind_it_last(tmp_path, told):
    with pytest.raises(Started):
        make(tmp_path).backfill()
    assert told == [True]


def test_a_look_at_state_far_away_in_front_of_a_run_does_not_decide_for_it(tmp_path, told):
    app = make(tmp_path, state_dir="hdfs://127.0.0.1:1/state")
    with pytest.raises(Started):
        app.check()
    assert told == [True]


def test_a_repair_starts_spark_as_the_run_behind_it_wants_it(tmp_path, told, monkeypatch):
    app = make(tmp_path, recover="auto")

    def damaged(*_):
        raise DamagedStateError("offsets/3 is damaged.\nFix: repair.")

    monkeypatch.setattr(app._runner, "_start", damaged)
    for limits, lasts in [({}, True), ({"drain": True}, False)]:
        with pytest.raises(Started):
            app.run(**limits)
        assert told.pop() is lasts
