"""The program that is disturbed: totals per key, windows and a timer, from 4 partitions to 2.

Some of its records cannot be read, and some of its outputs have a time that Kafka does not take.
"""

from __future__ import annotations

import argparse

import millpond as mp

# One output in so many has a time ten days ahead of its record.
AHEAD, TEN_DAYS = 500, 10 * 24 * 3_600_000


def total(value, state):
    count = state.get("count", 0) + 1
    amount = state.get("amount", 0) + value["amount"]
    last = state.get("last", [])
    state.set("count", count)
    state.set("amount", amount)
    state.set("last", [*last, value["id"]][-3:])
    return {"id": value["id"], "count": count, "amount": amount, "last": last}


def check(key, state, timer):
    return {"key": key.decode(), "at": timer.at}


def program(folder, broker=None, prefix="", base=0, **options) -> mp.Application:
    """Return the program.

    Args:
        folder: Where its state is, and its topics where there is no broker.
        broker: The address of a Kafka broker.
        prefix: What the names of topics begin with.
        base: The time of the first record.
        options: More of the application.
    """
    app = mp.Application(
        broker,
        consumer_group=f"{prefix}payments",
        state_dir=f"{folder}/state",
        topics_dir=f"{folder}/topics",
        auto_offset_reset="earliest",
        max_records_per_batch=2_000,
        on_error="dead-letter",
        loglevel=None,
        **options,
    )
    payments = app.topic(f"{prefix}payments", config=mp.TopicConfig(num_partitions=4))
    totals = app.topic(f"{prefix}totals", config=mp.TopicConfig(num_partitions=2))
    sdf = app.dataframe(payments)
    sdf.apply(total, stateful=True).to_topic(totals)

    some = sdf.filter(lambda value: value["id"] % AHEAD == 0)
    some = some.set_timestamp(lambda value, key, timestamp, headers: timestamp + TEN_DAYS)
    some.to_topic(app.topic(f"{prefix}ahead"))

    def watch(value, state):
        if not state.exists("watched"):
            state.set("watched", True)
            state.set_timer("checked", at=base + 10_000)

    # The lateness is longer than what four partitions are apart, so nothing depends on the
    # batches.
    timed = sdf.watermark(30_000)
    window = timed.tumbling_window(10_000).agg(n=mp.Count(), amount=mp.Sum("amount"))
    window.final().to_topic(app.topic(f"{prefix}windows"))
    window.late().to_topic(app.topic(f"{prefix}late"))
    timed.apply(watch, stateful=True, on_timer=check).filter(bool).to_topic(
        app.topic(f"{prefix}checks")
    )
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--broker")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--base", type=int, default=0)
    parser.add_argument("--master")
    parser.add_argument("--die-before")
    options = vars(parser.parse_args())
    call = options.pop("die_before")
    if call:
        from kafka_calls import die_before

        die_before(call)
    program(**options).run(drain=True, collect=False)
