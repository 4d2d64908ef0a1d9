"""The same in plain PySpark, from a socket to files: python latency_pyspark.py FOLDER PORT."""

import sys

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from raw_pyspark import open_spark

folder, port = sys.argv[1:]


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += 1
            yield Row(user_id=row.user_id, sent=row.sent, total=total)
        self.total.update((total,))

    def close(self):
        pass


spark = open_spark()
lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
click = F.from_json("value", "user_id string, sent long").alias("click")
clicks = lines.select(click).select("click.*").groupBy("user_id")
schema = "user_id string, sent long, total long"
totals = clicks.transformWithState(Count(), schema, "append", "None")
writer = totals.writeStream.format("json").option("checkpointLocation", f"{folder}/checkpoint")
writer.start(f"{folder}/out").awaitTermination()
