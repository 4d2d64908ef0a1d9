"""A program whose state tests look into: totals by user, counts by kind, and payments for it."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["PAYMENTS", "USERS", "outputs", "payments", "produce", "total_of"]

USERS = [f"user-{number}" for number in range(7)]
PAYMENTS = [
    (USERS[n % 7], {"amount": n, "kind": "even" if n % 2 == 0 else "odd"}, 1_000_000 + 1000 * n)
    for n in range(100)
]


def add(value, state):
    total = state.get("total", 0) + value["amount"]
    state.set("total", total)
    state.set("seen", {"last": value["amount"]}, ttl=timedelta(hours=1))
    state.set_timer("quiet", after=timedelta(minutes=10))
    return {"kind": value["kind"], "total": total}


def went_quiet(key, state, timer):
    return {"kind": "quiet", "total": state.get("total")}


def count(value, state):
    state.set("count", state.get("count", 0) + 1)
    return {"kind": value["kind"], "count": state.get("count"), "total": value["total"]}


def payments(make_app, group="payments", source="payments", **options):
    """Totals by user, counts by kind: two changes of key, a timer, a value that expires."""
    app = make_app(group, max_records_per_batch=10, **options)
    topic = app.topic(source, key_deserializer="str", max_future=None)
    totals = app.dataframe(topic).apply(add, stateful=True, on_timer=went_quiet)
    totals.group_by("kind").apply(count, stateful=True).to_topic(app.topic(f"{group}-out"))
    return app


def produce(app, records, source="payments"):
    with app.get_producer() as producer:
        for key, value, timestamp in records:
            producer.produce(source, key=key, value=value, timestamp=timestamp)


def outputs(app, group="payments"):
    with app.get_consumer() as consumer:
        return [record.value for record in consumer.read(f"{group}-out")]


def total_of(user, payments):
    return sum(value["amount"] for key, value, _ in payments if key == user)
