"""The same in plain PySpark, from a socket to files: python latency_pyspark.py FOLDER PORT."""

import sys

from pyspark.sql import functions as F
from raw_pyspark import Count, open_spark

folder, port = sys.argv[1:]


spark = open_spark()
lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
key = F.get_json_object("value", "$.user_id").cast("binary").alias("key")
clicks = lines.select(key, F.col("value").cast("binary")).groupBy("key")
totals = clicks.transformWithState(Count(), "key binary, value binary", "append", "None")
writer = totals.select(F.col("value").cast("string")).writeStream.format("text")
writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
writer.start(f"{folder}/out").awaitTermination()
