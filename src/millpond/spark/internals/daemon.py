"""The process that forks Python workers, with the imports of a worker done before it forks.

Spark starts one of these per machine and forks it for every worker, so each import is paid
once instead of once per worker. Used with a local master, where this package is installed.

Relies on: `spark.python.daemon.module`, which is not documented; `pyspark.daemon.manager`, and the
    modules that `pyspark.worker` imports for `mapInArrow` and `transformWithState`.
Seen with: 4.3.
Without it: workers do not start. `spark_config={"spark.python.daemon.module": "pyspark.daemon"}` is
    Spark's own; its workers import for themselves.
For Spark 4.4: `PythonWorkerFactory`, `pyspark/daemon.py`, the imports of `pyspark/worker.py`.
"""

from __future__ import annotations

import gc

import google.protobuf  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.sql.streaming.stateful_processor_api_client
import pyspark.sql.streaming.stateful_processor_util
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import millpond.spark.compile
import millpond.spark.stages  # noqa: F401

# A batch makes many values that live until it is over; looking through them for cycles again
# and again took a sixth of a stage's time. What was imported is never garbage.
gc.freeze()
gc.set_threshold(50_000, 20, 50)

if __name__ == "__main__":
    manager()
