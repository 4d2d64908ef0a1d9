"""Adds up the even and the odd numbers from 0 to 100: two keys, two states.

Prints:

    odd: 2500
    even: 2550
"""

import millpond as mp

app = mp.Application(consumer_group="even-odd", persistence="none", loglevel="WARNING")


def parity(number: int) -> str:
    return "even" if number % 2 == 0 else "odd"


def add(key, value, total):
    total = total + value
    return {"parity": key, "sum": total}, total


app.dataframe(source=range(101)).key_by(parity).stateful_map("sum", add, initial=0)
results = app.run()

# Results come in the order of the input, so the last two are the final ones: 99, then 100.
for result in results[-2:]:
    print(f"{result['parity']}: {result['sum']}")
