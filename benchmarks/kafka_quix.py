"""The same in Quix Streams, whose virtual environment this is run with.

python kafka_quix.py BROKER FOLDER TOPIC OUT SECONDS      runs until it is quiet for SECONDS
"""

from __future__ import annotations

import sys

from quixstreams import Application

broker, folder, topic, out, seconds = sys.argv[1:]


def count(value, state):
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


app = Application(
    broker_address=broker,
    consumer_group=out,
    state_dir=folder,
    auto_offset_reset="earliest",
    loglevel="ERROR",
)
sdf = app.dataframe(app.topic(topic, value_deserializer="json"))
sdf.apply(count, stateful=True).to_topic(app.topic(out, value_serializer="json"))

if __name__ == "__main__":
    app.run(timeout=float(seconds), collect=False)
