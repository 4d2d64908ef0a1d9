"""Splits a stream of orders in two, treats each part in its own way, and joins them again.

A frame that is used twice is two branches. Each gets its own copy of every value.

Prints:

    {'id': 2, 'amount': 700, 'check': True}
    {'id': 4, 'amount': 900, 'check': True}
    large: [2, 4]
    all: [1, 2, 3, 4]
    together: 1650
"""

import tempfile

import millpond as mp

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
orders = [
    {"id": 1, "amount": 20},
    {"id": 2, "amount": 700},
    {"id": 3, "amount": 30},
    {"id": 4, "amount": 900},
]

app = mp.Application(
    consumer_group="branches",
    state_dir=f"{folder.name}/state",
    topics_dir=f"{folder.name}/topics",
    loglevel="WARNING",
)
to_check = app.topic("large-orders")
everything = mp.ListSink()


def add_up(key, value, total):
    total = total + value["amount"]
    return {**value, "so_far": total}, total


sdf = app.dataframe(source=orders)

large = sdf[sdf["amount"] > 100]
large["check"] = True
large.print()
large.to_topic(to_check)

small = sdf.filter(lambda order: order["amount"] <= 100)
small.concat(large).stateful_map("total", add_up, initial=0).sink(everything)

app.run()

print("large:", [record.value["id"] for record in app.get_consumer().read(to_check)])
print("all:", [order["id"] for order in everything])
print("together:", everything[-1]["so_far"])
