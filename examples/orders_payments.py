"""Orders and their payments: which were paid within half an hour, and which were not.

The payment of order 3 comes too late. That it does is known when order 4 and its payment have
moved the time on.

Prints:

    order 2: paid 35 after 1 min
    order 1: paid 20 after 10 min
    order 4: paid 10 after 0 min
    order 3: not paid
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import millpond as mp


def at(minute: int) -> datetime:
    return datetime(2024, 5, 1, 10, minute, tzinfo=UTC)


ORDERS = [
    {"order": 1, "at": at(0)},
    {"order": 2, "at": at(5)},
    {"order": 3, "at": at(6)},
    {"order": 4, "at": at(50)},
]
PAYMENTS = [
    {"order": 2, "at": at(6), "sum": 35},
    {"order": 1, "at": at(10), "sum": 20},
    {"order": 3, "at": at(40), "sum": 50},
    {"order": 4, "at": at(50), "sum": 10},
]


def outcome(order: dict[str, Any], payment: dict[str, Any] | None) -> str:
    if payment is None:
        return f"order {order['order']}: not paid"
    waited = payment["at"] - order["at"]
    return f"order {order['order']}: paid {payment['sum']} after {waited.seconds // 60} min"


app = mp.Application(consumer_group="orders", persistence="none", loglevel="WARNING")

orders = app.dataframe(source=mp.ListSource(ORDERS, name="orders")).watermark(on="at")
payments = app.dataframe(source=mp.ListSource(PAYMENTS, name="payments")).watermark(on="at")

orders.group_by("order").join_interval(
    payments.group_by("order"), "left", outcome, forward_ms=timedelta(minutes=30)
).print()

app.run()
