"""Totals per key with state in a store, on a cluster: totals.py FOLDER URL CONFIG MASTER."""

import json
import sys

import helper  # a module beside the program: it must reach the workers by itself

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
app.dataframe(source).apply(helper.total, stateful=True).to_topic(out)

if __name__ == "__main__":
    app.run(drain=True)
    with admin.open(app) as state:
        seen = [state.get("k3", at=1), state.get("k3"), state.verify().problems]
    print(json.dumps(seen))
