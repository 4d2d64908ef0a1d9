"""Programs with mistakes: each marked line has an error, with this text from mypy."""

import millpond as mp

app = mp.Application(auto_offset_reset="newest")  # E: "auto_offset_reset"
mp.Application(on_error="ignore")  # E: "on_error"
mp.Application(processing_guarantee="once")  # E: "processing_guarantee"
mp.KafkaOptions(processing_guarantee="once")  # E: "processing_guarantee"
mp.Application(kafka={})  # E: "kafka"
mp.Application(recover="yes")  # E: "recover"
mp.StateOptions(durability="disk")  # E: "durability"
app.topic("clicks", value_deserializer="jsn")  # E: "value_deserializer"
sdf = app.dataframe(app.topic("clicks"))


def of_value(value: int) -> int:
    return value


def of_state(value: int, state: mp.State) -> int:
    return value


def of_key(value: int, key: str, timestamp: int, headers: object) -> int:
    return value


def to_text(values: str) -> str:
    return values


sdf.apply(of_state)  # E: "apply"
sdf.apply(of_value, stateful=True)  # E: "apply"
sdf.apply(of_state, stateful=True, metadata=True)  # E: "apply"
sdf.apply(of_value, expand=True)  # E: "apply"
sdf.apply(lambda value: value, stateful=True)  # E: "apply"
sdf.apply(of_value, on_timer=of_key)  # E: "apply"
sdf.update(of_key)  # E: "update"
sdf.filter(of_value, metadata=True)  # E: "filter"
sdf["a"].group_by("b")  # E: "Column" has no attribute "group_by"
sdf[["a"]].isnull()  # E: "StreamingDataFrame" has no attribute "isnull"
sdf[1]  # E: "__getitem__"
sdf.agg(n=mp.Count(), emit="batches")  # E: "emit"
sdf.agg(n="count")  # E: "agg"
sdf.tumbling_window("1s")  # E: "tumbling_window"
sdf.tumbling_window(1000).final()  # E: "final"
sdf.tumbling_window(1000).count().final("keys")  # E: "final"
sdf.to_topic("totals")  # E: "to_topic"
sdf.sink(of_value)  # E: "sink"
app.get_producer().send("clicks", b"")  # E: "send"
app.get_producer().produce("clicks", timestamp="now")  # E: "produce"
app.get_consumer().poll("now")  # E: "poll"
app.migration("default", from_version=1)(to_text)  # E: "Lift"
number: int = app.explain()  # E: Incompatible types in assignment


class Half(mp.Source):
    name = "half"

    def ends(self) -> dict[str, int]:
        return {}


class Names(mp.Source):
    name = "names"

    def ends(self) -> list[str]:  # E: "ends"
        return []

    def read(self, partition: str, start: int, end: int) -> list[int]:
        return []


Half()  # E: Cannot instantiate abstract class "Half"
app.dataframe(source=5)  # E: "dataframe"
