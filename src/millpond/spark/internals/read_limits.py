"""How much a batch may read, in the words of Spark's API of Python sources.

Relies on: `ReadAllAvailable`, `ReadMaxRows` and `SupportsTriggerAvailableNow` of
    `pyspark.sql.streaming.datasource`; `getDefaultReadLimit` and `prepareForTriggerAvailableNow`,
    which Spark calls on a reader; a `latestOffset` that gets the start and the limit.
Seen with: 4.3.
Without it: the source does not load, so no query starts.
For Spark 4.4: `pyspark/sql/streaming/datasource.py`, `python_streaming_source_runner.py`.
"""

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
