"""Plain PySpark's side of the benchmarks: python spark_side.py FOLDER, then requests."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import data
import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from raw_pyspark import Count, open_spark, rates
from serving import serve

FOLDER = Path(sys.argv[1])
FIELDS = "user_id string, amount double, event string"


def clicks(keys: int, records: int, files: int = 4) -> DataFrame:
    source = data.as_parquet(FOLDER, keys, records)
    schema = "key binary, value binary, timestamp long"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
    return reader.parquet(str(source))


def measured(frame: DataFrame, mode: str = "append", out: bool = False) -> dict:
    """Run a query over what waits; return its rates."""
    for name in ("checkpoint", "out"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
    began = time.monotonic()
    if out:
        query = writer.format("parquet").option("path", str(FOLDER / "out")).start()
    else:
        query = writer.format("noop").start()
    query.awaitTermination()
    return rates(query, time.monotonic() - began)


def counts(keys: int, records: int, files: int) -> dict:
    """As PySpark's guide writes it: transformWithState, a group per key."""
    grouped = clicks(keys, records, files).groupBy("key")
    schema = "key binary, value binary"
    return measured(grouped.transformWithState(Count(), schema, "append", "None"))


def native(keys: int, records: int, files: int) -> dict:
    """Spark's own aggregation of the parsed JSON, without Python."""
    parsed = F.from_json(F.col("value").cast("string"), FIELDS).alias("click")
    rows = clicks(keys, records, files).select(parsed).select("click.*")
    totals = rows.groupBy("user_id").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
    return measured(totals, "update")


def arrow(records: int) -> dict:
    """The five steps of `data` in one function, written by hand for mapInArrow."""

    def five(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
        for batch in batches:
            keys, values = [], []
            for key, raw in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                value = data.cents(decode(raw))
                if data.is_large(value):
                    value = data.noted(data.sized(data.renamed(value)))
                    keys.append(key)
                    values.append(encode(value))
            arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, ["key", "value"])

    frame = clicks(10_000, records).select("key", "value")
    return measured(frame.mapInArrow(five, "key binary, value binary"), out=True)


def udfs(records: int) -> dict:
    """The five steps as five Python functions of Spark, over one batch."""
    parsed = F.from_json(F.col("value").cast("string"), FIELDS).alias("click")
    rows = clicks(10_000, records, data.FILES).select("key", parsed).select("key", "click.*")
    cents = F.udf(lambda amount: round(amount * 100), "long")
    large = F.udf(lambda cents: cents > 10, "boolean")
    renamed = F.udf(lambda user_id: user_id, "string")
    sized = F.udf(lambda cents: "large" if cents > 50 else "small", "string")
    noted = F.udf(lambda user, size: f"{user} paid a {size} amount", "string")
    frame = rows.withColumn("cents", cents("amount")).where(large("cents"))
    frame = frame.withColumn("user", renamed("user_id")).withColumn("size", sized("cents"))
    frame = frame.withColumn("note", noted("user", "size"))
    value = F.to_json(F.struct("user", "cents", "event", "size", "note"))
    return measured(frame.select("key", value.alias("value")), out=True)


if __name__ == "__main__":
    spark = open_spark()
    serve(counts=counts, native=native, arrow=arrow, udfs=udfs)
