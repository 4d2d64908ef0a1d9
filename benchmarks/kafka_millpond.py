"""A running count per key from topic to topic on Kafka, in Millpond.

python kafka_millpond.py BROKER FOLDER TOPIC OUT SECONDS      runs until it is quiet for SECONDS
"""

from __future__ import annotations

import sys

import millpond as mp

broker, folder, topic, out, seconds = sys.argv[1:]


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


app = mp.Application(
    broker,
    consumer_group=out,
    state_dir=folder,
    auto_offset_reset="earliest",
    loglevel=None,
)
app.dataframe(app.topic(topic)).apply(count, stateful=True).to_topic(app.topic(out))

if __name__ == "__main__":
    app.run(timeout=float(seconds), collect=False)
