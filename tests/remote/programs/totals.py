"""Totals per key with state in a store: totals.py FOLDER URL CONFIG MASTER.

Runs, looks into the state, goes back, runs again, and goes on in more parts; says what it saw.
"""

import json
import sys

import millpond as mp
from millpond import admin

folder, url, config, master = sys.argv[1:]
app = mp.Application(
    consumer_group="totals",
    state_dir=url,
    topics_dir=f"{folder}/topics",
    auto_offset_reset="earliest",
    max_records_per_batch=100,
    master=master,
    spark_config=json.loads(config),
)
source, out = app.topic("in", key_deserializer="str"), app.topic("out", key_deserializer="str")


def total(value: int, state: mp.State) -> int:
    new = state.get("total", 0) + value
    state.set("total", new)
    return new


app.dataframe(source).apply(total, stateful=True).to_topic(out)

if __name__ == "__main__":
    app.run(drain=True, collect=False)
    with admin.open(app) as state:
        seen = {"at batch 4": state.get("k3", at=4), "at the end": state.get("k3")}
        seen["problems"] = state.verify().problems
        state.rewind(5)
        seen["rewound to 5"] = state.get("k3")
    app.run(drain=True, collect=False)
    with admin.open(app) as state:
        seen["run again"] = state.get("k3")
        state.set("k3", {"total": 0})
        state.rescale(3)
    with app.get_producer() as producer:
        producer.produce(source, key="k3", value=7)
    app.run(drain=True, collect=False)
    with admin.open(app) as state:
        seen["set and rescaled"] = state.get("k3")
    print(json.dumps(seen))
