"""Fixtures that every tier may use. One Spark session serves all tests that need one."""

from __future__ import annotations

import pytest
from hypothesis import is_hypothesis_test, settings

# A busy machine is no failure: properties have no time limit for an example.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")

# What Spark remembers for a page that is not shown.
_SHORT_MEMORY = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}


def pytest_collection_modifyitems(items):
    """Measure coverage by examples only: property tests would take more than twice as long."""
    for item in items:
        if is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def spark(request):
    """A Spark session. The connector of S3 is fetched where a test in `remote` runs, only."""
    from millpond.spark.session import open_session

    config = dict(_SHORT_MEMORY)
    if any(item.path.parent.name == "remote" for item in request.session.items):
        from stores import s3_jars

        config["spark.jars"] = s3_jars()
    session = open_session("local[2]", None, config, "tests")
    yield session
    session.stop()
