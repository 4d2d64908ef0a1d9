"""The job of `first_pyspark.py` in Millpond: a running count per user, from a folder of JSON."""

import json
import os
from pathlib import Path

import millpond as mp

folder = Path(os.environ["FOLDER"])
app = mp.Application(
    consumer_group="first",
    state_dir=folder / "state",
    topics_dir=folder / "out",
    auto_offset_reset="earliest",
    spark_config=json.loads(os.environ.get("SPARK_CONFIG", "{}")),
)


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {**value, "total": total}


clicks = app.dataframe(source=mp.FileSource(folder / "in", "json", key="user_id"))
clicks.apply(count, stateful=True).to_topic(app.topic("totals"))
