"""Fixtures that every tier may use. One Spark session serves all tests that need one."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine is no failure: properties have no time limit for an example.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")


@pytest.fixture(scope="session")
def spark():
    from stores import s3_jars

    from millpond.spark.session import open_session

    session = open_session("local[2]", None, {"spark.jars": s3_jars()}, "tests")
    yield session
    session.stop()
