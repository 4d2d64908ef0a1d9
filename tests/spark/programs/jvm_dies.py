"""Kills its own JVM in the middle of a run, then runs again: jvm_dies.py FOLDER."""

import os
import signal
import sys
import threading
import time

import millpond as mp
from millpond.errors import EngineError

folder = sys.argv[1]
app = mp.Application(
    consumer_group="dies",
    state_dir=f"{folder}/state",
    topics_dir=f"{folder}/topics",
    max_records_per_batch=50,
    loglevel=None,
)
sums = app.topic("sums")


def add(key, value, total):
    return total + value, total + value


def kill_jvm():
    from pyspark import SparkContext

    while not app.log.exists("sums") or app.log.end("sums", 0) < 100:
        time.sleep(0.02)
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)


app.dataframe(source=range(500)).stateful_map("sum", add, initial=0).to_topic(sums)
threading.Thread(target=kill_jvm, daemon=True).start()
try:
    app.run(collect=False)
except EngineError:
    print("EngineError")
app.run(collect=False)
values = [record.value for record in app.get_consumer().read("sums")]
print(values == [n * (n + 1) // 2 for n in range(500)])
