"""The quick start, told its folder and its master: quickstart.py FOLDER [MASTER]."""

import sys

import helper  # a module beside the program: it must reach the workers by itself

import millpond as mp

folder, master = sys.argv[1], (sys.argv[2:] or [None])[0]
app = mp.Application(
    consumer_group="quickstart",
    state_dir=f"{folder}/state",
    topics_dir=f"{folder}/topics",
    auto_offset_reset="earliest",
    master=master,
    loglevel=None,
)
clicks, totals = app.topic("clicks"), app.topic("totals")


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + helper.ONE
    state.set("total", total)
    return helper.with_total(value, total)


app.dataframe(clicks).apply(count, stateful=True).to_topic(totals)

if __name__ == "__main__":
    with app.get_producer() as producer:
        for i in range(1000):
            producer.produce(clicks, key=f"user-{i % 10}", value={"i": i})
    app.run(drain=True)
    last = {record.key: record.value["total"] for record in app.get_consumer().read(totals)}
    print(sorted(last.items()))
