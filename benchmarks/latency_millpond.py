"""A running count per user, from one topic to another: python latency_millpond.py FOLDER."""

import sys
from pathlib import Path

import millpond as mp

folder = Path(sys.argv[1])
app = mp.Application(
    consumer_group="latency",
    state_dir=folder / "state",
    topics_dir=folder / "topics",
    auto_offset_reset="earliest",
    loglevel=None,
)


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {**value, "total": total}


app.dataframe(app.topic("clicks")).apply(count, stateful=True).to_topic(app.topic("totals"))
app.run()
