"""A program as a user writes it, with types: `mypy --strict` and pyright accept all of it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypedDict

import millpond as mp
from millpond.options import OffsetReset
from millpond.testing import check_sink, check_source


class Order(TypedDict):
    user: str
    amount: float


class Spent(TypedDict):
    user: str
    total: float


def make_app(reset: OffsetReset = "earliest") -> mp.Application:
    return mp.Application(
        consumer_group="shop", auto_offset_reset=reset, on_error="dead-letter", state_ttl=60_000
    )


app = make_app()
orders = app.topic("orders", key_deserializer="str", lateness=timedelta(minutes=10))
totals = app.topic("totals", value_serializer="json")


def add(order: Order, state: mp.State) -> Spent:
    total: float = state.get("total", 0.0) + order["amount"]
    state.set("total", total, ttl=timedelta(days=1))
    state.set_timer("quiet", after=timedelta(hours=1))
    return {"user": order["user"], "total": total}


def quiet(key: str, state: mp.State, timer: mp.Timer) -> dict[str, Any]:
    return {"user": key, "total": state.get("total"), "at": timer.at}


def parts(order: Order) -> Iterator[Order]:
    yield order


def note(order: Order, key: str, timestamp: int, headers: Any) -> None:
    print(key, timestamp, headers, mp.message_context().offset)


def is_new(order: Order, key: str, timestamp: int, headers: Any, state: mp.State) -> bool:
    return not state.exists("total")


def fold(key: str, order: Order, total: float) -> tuple[float, float]:
    return total + order["amount"], total + order["amount"]


@app.migration("default", from_version=1)
def to_cents(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "total": round(values["total"] * 100)}


@app.register_type
class Basket:
    pass


def save(records: list[mp.Record], delivery_id: str) -> None:
    print(len(records), delivery_id)


sdf = app.dataframe(orders)
sdf["amount"] = sdf["amount"] * 2
sdf = sdf[(sdf["amount"] > 1) & sdf["user"].notnull()].update(note, metadata=True)
names = sdf[["user"]].apply(lambda value: value["user"]).apply(len)
spent = sdf.group_by("user").apply(add, stateful=True, on_timer=quiet).to_topic(totals)
sdf.apply(parts, expand=True).filter(is_new, stateful=True, metadata=True).print()
sdf.stateful_map("spent", fold, initial=0.0).sink(mp.ListSink())
spent.tumbling_window(timedelta(minutes=1)).agg(n=mp.Count(), most=mp.Max("total")).final()
spent.agg(n=mp.Count(), emit="batch").sink(save, name="saved")
small: mp.StreamingDataFrame = sdf[sdf["amount"] < 5]
lifted: dict[str, Any] = to_cents({"total": 1.0})
kept: type[Basket] = Basket


def send(producer: mp.TopicProducer, order: Order) -> None:
    producer.produce(orders, key=order["user"], value=order, headers={"from": b"test"})


def main() -> list[Any]:
    with app.get_producer() as producer:
        send(producer, {"user": "ann", "amount": 1.0})
    with app.get_consumer() as consumer:
        consumer.subscribe([totals])
        record = consumer.poll(timeout=1.0)
        print(record.value if record else [r.key for r in consumer.read("totals")])
    return app.run(drain=True, timeout=5.0)


class Table(mp.Source):
    def __init__(self, name: str) -> None:
        self.name = name

    def ends(self) -> dict[str, int]:
        return {"eu": 1}

    def read(self, partition: str, start: int, end: int) -> Iterator[mp.Record]:
        yield mp.Record("ann", {"amount": 1.0}, 1_000, offset=start)


class Pages(mp.PollSource):
    name = "pages"
    interval = 5.0

    def poll(self, position: int | None) -> tuple[list[Order], int]:
        return [], position or 0


options = mp.KafkaOptions(processing_guarantee="at-least-once", broker_availability_timeout=60)
mp.Application("host:9092", kafka=options, spark=mp.SparkOptions(master="local[2]"))
mp.Application(state=mp.StateOptions(ttl=timedelta(days=1), on_change="accept"))
mp.Application(master="local[2]", spark_config={"spark.ui.enabled": "true"}, commit_every=100)
mp.Application(consumer_group="sources").dataframe(source=Table("table")).concat(
    app.dataframe(source=Pages())
)
check_source(lambda: Table("table"))
check_sink(mp.ListSink, list[Any])
