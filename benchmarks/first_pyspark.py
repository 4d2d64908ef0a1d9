"""A running count per user from a folder of JSON, in plain PySpark with its defaults."""

import os

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

folder = os.environ["FOLDER"]
FIELDS = "user_id string, amount double, event string"


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += 1
            yield Row(user_id=row.user_id, amount=row.amount, event=row.event, total=total)
        self.total.update((total,))

    def close(self):
        pass


provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
builder = SparkSession.builder.config("spark.sql.streaming.stateStore.providerClass", provider)
spark = builder.getOrCreate()
clicks = spark.readStream.schema(FIELDS).json(f"{folder}/in").groupBy("user_id")
totals = clicks.transformWithState(Count(), f"{FIELDS}, total long", "append", "None")
writer = totals.writeStream.format("json").option("checkpointLocation", f"{folder}/checkpoint")
writer.start(f"{folder}/out").awaitTermination()
