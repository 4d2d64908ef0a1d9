from __future__ import annotations

import shutil

import pytest
from changing import Programs
from ledger import PAYMENTS, payments, produce

import millpond as mp


@pytest.fixture
def make_app(spark, tmp_path):
    """Applications on the shared session, each test in its own folders."""

    def make(group: str = "test", **options) -> mp.Application:
        defaults = {
            "consumer_group": group,
            "state_dir": tmp_path / "state",
            "topics_dir": tmp_path / "topics",
            "auto_offset_reset": "earliest",
            "loglevel": None,
            "spark": spark,
        }
        return mp.Application(**{**defaults, **options})

    return make


@pytest.fixture(scope="session")
def saved(spark, tmp_path_factory):
    """Ten batches of ten payments, run once for all tests."""
    folder = tmp_path_factory.mktemp("saved")
    places = {"state_dir": folder / "state", "topics_dir": folder / "topics", "loglevel": None}
    options = {"auto_offset_reset": "earliest", "spark": spark, **places}
    app = payments(lambda group, **more: mp.Application(consumer_group=group, **options, **more))
    produce(app, PAYMENTS)
    app.run(drain=True)
    return folder


@pytest.fixture
def app(saved, make_app, tmp_path):
    """A copy of that, in a folder of its own."""
    for name in ("state", "topics"):
        shutil.copytree(saved / name, tmp_path / name)
    return payments(make_app)


@pytest.fixture
def programs(spark, tmp_path):
    (tmp_path / "g").mkdir()
    return Programs(tmp_path / "g")
