"""Fixtures that every tier may use. One Spark session serves all tests that need one."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine is no failure: properties have no time limit for an example.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")


@pytest.fixture(scope="session")
def spark(request):
    """A Spark session. The connector of S3 is fetched where a test in `remote` runs, only."""
    from millpond.spark.session import open_session

    config = {}
    if any(item.path.parent.name == "remote" for item in request.session.items):
        from stores import s3_jars

        config["spark.jars"] = s3_jars()
    session = open_session("local[2]", None, config, "tests")
    yield session
    session.stop()
