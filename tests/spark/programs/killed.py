"""The program of the kill test: totals per key, windows and a timer, from 4 partitions to 2.

Usage: killed.py FOLDER [BROKER PREFIX BASE]

With a broker, topics are those of Kafka, their names begin with PREFIX, and BASE is the time of
the first record.
"""

import sys

import millpond as mp

folder, broker, prefix, base = sys.argv[1:] if len(sys.argv) > 2 else (sys.argv[1], None, "", 0)
app = mp.Application(
    broker,
    consumer_group=f"{prefix}killed",
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


payments = app.topic(f"{prefix}payments", config=mp.TopicConfig(num_partitions=4))
totals = app.topic(f"{prefix}totals", config=mp.TopicConfig(num_partitions=2))
sdf = app.dataframe(payments)
sdf.apply(total, stateful=True).to_topic(totals)


def watch(value, state):
    if not state.exists("watched"):
        state.set("watched", True)
        state.set_timer("checked", at=int(base) + 10_000)


def check(key, state, timer):
    return {"key": key.decode(), "at": timer.at}


# The lateness is longer than what four partitions are apart, so nothing depends on the batches.
timed = sdf.watermark(30_000)
window = timed.tumbling_window(10_000).agg(n=mp.Count(), amount=mp.Sum("amount"))
window.final().to_topic(app.topic(f"{prefix}windows"))
window.late().to_topic(app.topic(f"{prefix}late"))
timed.apply(watch, stateful=True, on_timer=check).filter(bool).to_topic(
    app.topic(f"{prefix}checks")
)

if __name__ == "__main__":
    app.run(drain=True, collect=False)
