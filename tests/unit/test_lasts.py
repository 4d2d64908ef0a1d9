"""Which runs are long: whoever starts Java is informed, and it gets both compilers then."""

from __future__ import annotations

import pytest

import millpond as mp
from millpond.errors import DamagedStateError
from millpond.spark import session


class Started(Exception):
    """Stands for a start of Spark."""


@pytest.fixture
def opened_long(monkeypatch):
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
def test_a_run_without_end_is_a_long_run(tmp_path, opened_long, settings, limits, lasts):
    with pytest.raises(Started):
        make(tmp_path, **settings).run(**limits)
    assert opened_long == [lasts]


def test_a_run_over_lists_is_short_and_one_with_another_source_is_long(tmp_path, opened_long):
    for sources, lasts in [
        ([mp.ListSource([1])], False),
        ([mp.ListSource([1]), mp.RateSource(5)], True),
    ]:
        with pytest.raises(Started):
            make(tmp_path, *sources).run()
        assert opened_long.pop() is lasts


def test_a_backfill_and_what_comes_after_it_are_long_runs(tmp_path, opened_long):
    with pytest.raises(Started):
        make(tmp_path).backfill()
    assert opened_long == [True]


def test_a_look_at_state_far_away_in_front_of_a_run_does_not_decide_for_it(tmp_path, opened_long):
    app = make(tmp_path, state_dir="hdfs://127.0.0.1:1/state")
    with pytest.raises(Started):
        app.check()
    assert opened_long == [True]


def test_a_repair_starts_spark_as_the_run_after_it_wants_it(tmp_path, opened_long, monkeypatch):
    app = make(tmp_path, recover="auto")

    def damaged(*_):
        raise DamagedStateError("offsets/3 is damaged.\nFix: repair.")

    monkeypatch.setattr(app._runner, "_start", damaged)
    for limits, lasts in [({}, True), ({"drain": True}, False)]:
        with pytest.raises(Started):
            app.run(**limits)
        assert opened_long.pop() is lasts
