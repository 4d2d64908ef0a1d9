"""A running count per user, from topic to topic: python latency_millpond.py FOLDER both|one.

The second word says which of Java's compilers it has.
"""

import sys
from pathlib import Path

from first import ONE_COMPILER

import millpond as mp

folder, compilers = Path(sys.argv[1]), sys.argv[2]
app = mp.Application(
    consumer_group="latency",
    state_dir=folder / "state",
    topics_dir=folder / "topics",
    auto_offset_reset="earliest",
    spark_config={"spark.driver.extraJavaOptions": ONE_COMPILER} if compilers == "one" else None,
    loglevel=None,
)


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {**value, "total": total}


app.dataframe(app.topic("clicks")).apply(count, stateful=True).to_topic(app.topic("totals"))
app.run()
