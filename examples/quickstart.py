"""Counts the clicks of each user, on topics of the embedded log.

Prints:

    ann 1
    bob 1
    ann 2
    ann 3
"""

import tempfile

import millpond as mp

# A program that stays would leave these out: ./state and ./topics are the defaults.
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

app = mp.Application(
    consumer_group="clicks",
    state_dir=f"{folder.name}/state",
    topics_dir=f"{folder.name}/topics",
    auto_offset_reset="earliest",
    loglevel="WARNING",
)
clicks = app.topic("clicks")
totals = app.topic("totals", key_deserializer="str")

with app.get_producer() as producer:
    for user in ["ann", "bob", "ann", "ann"]:
        producer.produce(clicks, key=user, value={"page": "/"})


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {**value, "total": total}


app.dataframe(clicks).apply(count, stateful=True).to_topic(totals)
app.run(drain=True)

with app.get_consumer() as consumer:
    for record in consumer.read(totals):
        print(record.key, record.value["total"])
