"""The fence: everything that relies on what Spark or PySpark does not promise, one module for each.

Nothing else in this package touches a private name of PySpark or py4j, a class of Spark's, a text
by which something is recognised, or a setting that chooses a format of the checkpoint
(`tests/unit/test_fence.py`). Each module says

    Relies on       what it takes for granted
    Seen with       the versions of Spark it was seen with
    Without it      what happens where that is not so
    For Spark 4.4   where to look

and has a test against the real Spark in `tests/spark/test_internals.py`. The formats of files are
in `storage.spark_files`, which has no Spark.
"""
