"""A running count per key as the PySpark guide writes it: transformWithState, a group per key.

python raw_pyspark.py FOLDER KEYS RECORDS      prints one line of JSON
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import data
import msgspec
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += 1
            value = {**msgspec.json.decode(bytes(row.value)), "total": total}
            yield Row(key=row.key, value=msgspec.json.encode(value))
        self.total.update((total,))

    def close(self):
        pass


def open_spark() -> SparkSession:
    """Return a session with what the guide recommends for state."""
    state = "spark.sql.streaming.stateStore"
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", os.cpu_count())
        .config("spark.sql.session.timeZone", "UTC")
        .config(
            f"{state}.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def rates(query, seconds: float) -> dict:
    """Return records per second, over all and of the best batch."""
    batches = [
        (p["numInputRows"], p["durationMs"]["triggerExecution"]) for p in query.recentProgress
    ]
    done = sum(rows for rows, _ in batches)
    best = max(rows / ms * 1000 for rows, ms in batches)
    return {"records": done, "all": done / seconds, "best": best}


def main() -> None:
    folder, keys, records = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    source = data.as_parquet(folder, keys, records)
    checkpoint = folder / "checkpoint-raw"
    shutil.rmtree(checkpoint, ignore_errors=True)
    spark = open_spark()
    frame = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 4)
    grouped = frame.parquet(str(source)).groupBy("key")
    counted = grouped.transformWithState(Count(), "key binary, value binary", "append", "None")
    began = time.monotonic()
    writer = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(json.dumps(rates(query, time.monotonic() - began)))


if __name__ == "__main__":
    main()
