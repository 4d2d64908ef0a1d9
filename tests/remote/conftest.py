from __future__ import annotations

from uuid import uuid4

import pytest
import stores

from millpond.spark.internals.hadoop import HadoopFiles
from millpond.spark.session import open_session
from millpond.storage.files import Location


@pytest.fixture(scope="session")
def s3(spark, tmp_path_factory):
    with stores.s3(tmp_path_factory.mktemp("s3")) as store:
        yield _known(store, spark)


@pytest.fixture(scope="session")
def hdfs(spark, tmp_path_factory):
    with stores.hdfs(tmp_path_factory.mktemp("hdfs")) as store:
        yield _known(store, spark)


def _known(store, spark):
    """Tell a session that runs already how a store is reached."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in store.spark_config.items():
        if name.startswith("spark.hadoop."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)
    open_session(None, spark, {}, "tests", store.url)  # as a run does before it reads a file there
    return store


@pytest.fixture(params=["hdfs", "s3"])
def store(request, spark):
    """A folder in each store that is not there yet."""
    url = request.getfixturevalue(request.param).url
    return Location(HadoopFiles(spark), f"{url}/{uuid4().hex}")
