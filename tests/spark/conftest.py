from __future__ import annotations

import pytest

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
