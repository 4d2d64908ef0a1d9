"""The program that is disturbed: totals per key, windows and a timer, from 4 partitions to 2."""

from __future__ import annotations

import argparse

import millpond as mp

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--broker", help="topics are those of Kafka, not in the folder")
parser.add_argument("--prefix", default="", help="what the names of topics begin with")
parser.add_argument("--base", type=int, default=0, help="the time of the first record")
parser.add_argument("--master", help="the Spark master")
told = parser.parse_args()

app = mp.Application(
    told.broker,
    consumer_group=f"{told.prefix}payments",
    state_dir=f"{told.folder}/state",
    topics_dir=f"{told.folder}/topics",
    auto_offset_reset="earliest",
    max_records_per_batch=2_000,
    master=told.master,
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


payments = app.topic(f"{told.prefix}payments", config=mp.TopicConfig(num_partitions=4))
totals = app.topic(f"{told.prefix}totals", config=mp.TopicConfig(num_partitions=2))
sdf = app.dataframe(payments)
sdf.apply(total, stateful=True).to_topic(totals)


def watch(value, state):
    if not state.exists("watched"):
        state.set("watched", True)
        state.set_timer("checked", at=told.base + 10_000)


def check(key, state, timer):
    return {"key": key.decode(), "at": timer.at}


# The lateness is longer than what four partitions are apart, so nothing depends on the batches.
timed = sdf.watermark(30_000)
window = timed.tumbling_window(10_000).agg(n=mp.Count(), amount=mp.Sum("amount"))
window.final().to_topic(app.topic(f"{told.prefix}windows"))
window.late().to_topic(app.topic(f"{told.prefix}late"))
timed.apply(watch, stateful=True, on_timer=check).filter(bool).to_topic(
    app.topic(f"{told.prefix}checks")
)

if __name__ == "__main__":
    app.run(drain=True, collect=False)
