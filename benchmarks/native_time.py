"""Spark's own aggregation of JSON, no Python at all: the bar for windows and running totals.

python native_time.py FOLDER KEYS RECORDS window|total      prints one line of JSON
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import data
from pyspark.sql import functions as F
from raw_pyspark import open_spark, rates


def main() -> None:
    folder, keys, records, what = (Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4])
    source = data.as_parquet(folder, keys, records)
    checkpoint = folder / f"checkpoint-native-{what}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    spark = open_spark()
    schema = "key binary, value binary, timestamp long"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(str(source))
    fields = "user_id string, amount double, event string"
    parsed = frame.select(
        F.timestamp_millis("timestamp").alias("time"),
        F.from_json(F.col("value").cast("string"), fields).alias("click"),
    ).select("time", "click.*")
    totals = (F.count("*").alias("n"), F.sum("amount").alias("amount"))
    if what == "window":
        timed = parsed.withWatermark("time", "0 seconds")
        result = timed.groupBy(F.window("time", f"{data.WINDOW_MS} milliseconds"), "user_id")
        mode = "append"
    else:
        result, mode = parsed.groupBy("user_id"), "update"
    began = time.monotonic()
    writer = result.agg(*totals).writeStream.format("noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    print(json.dumps(rates(query, time.monotonic() - began)))


main()
