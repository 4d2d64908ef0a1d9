"""Adds up the numbers from 0 to 100 with `stateful_map`, the form of Malstrom.

The numbers have no key, so they share one state. The list ends, and the run with it.

Prints:

    101 sums, the last is 5050
"""

import millpond as mp

# persistence="none": the state lives in a temporary folder and goes away with the run.
app = mp.Application(consumer_group="running-sum", persistence="none", loglevel="WARNING")


def add(key, value, total):
    total = total + value
    return total, total  # what goes on, and the new state


app.dataframe(source=range(101)).stateful_map("sum", add, initial=0)
sums = app.run()

print(f"{len(sums)} sums, the last is {sums[-1]}")
