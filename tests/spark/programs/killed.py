"""The program of the kill test: totals per key, from 4 partitions to 2.

Usage: killed.py FOLDER
"""

import sys

import millpond as mp

folder = sys.argv[1]
app = mp.Application(
    consumer_group="killed",
    state_dir=f"{folder}/state",
    topics_dir=f"{folder}/topics",
    auto_offset_reset="earliest",
    max_records_per_batch=5_000,
    loglevel=None,
)


def total(value, state):
    count = state.get("count", 0) + 1
    amount = state.get("amount", 0) + value["amount"]
    last = state.get("last", [])
    state.set("count", count)
    state.set("amount", amount)
    state.set("last", [*last, value["id"]][-3:])
    return {"id": value["id"], "count": count, "amount": amount, "last": last}


payments = app.topic("payments", config=mp.TopicConfig(num_partitions=4))
totals = app.topic("totals", config=mp.TopicConfig(num_partitions=2))
app.dataframe(payments).apply(total, stateful=True).to_topic(totals)

if __name__ == "__main__":
    app.run(drain=True, collect=False)
