import inspect
import re

import millpond
import millpond.admin
from millpond import testing


def test_the_public_names_are_these():
    assert sorted(millpond.__all__) == [
        "Aggregation",
        "Aggregator",
        "Application",
        "AvroDeserializer",
        "AvroSerializer",
        "BaseAggregator",
        "BaseCollector",
        "Collect",
        "Collector",
        "Column",
        "ConnectionConfig",
        "Consumer",
        "Count",
        "CountDistinct",
        "Deserializer",
        "Earliest",
        "FileSource",
        "First",
        "IgnoreMessage",
        "JSONDeserializer",
        "JSONSerializer",
        "KafkaOptions",
        "Last",
        "Latest",
        "ListSink",
        "ListSource",
        "Max",
        "Mean",
        "MessageContext",
        "Min",
        "PollSource",
        "Producer",
        "ProtobufDeserializer",
        "ProtobufSerializer",
        "RateSource",
        "Record",
        "Reduce",
        "Resource",
        "SchemaRegistryClientConfig",
        "SchemaRegistrySerializationConfig",
        "SerializationContext",
        "Serializer",
        "Sink",
        "SinkBatch",
        "Source",
        "SparkOptions",
        "SparkSource",
        "State",
        "StateOptions",
        "StdDev",
        "StreamingDataFrame",
        "StreamingSeries",
        "Sum",
        "Timer",
        "TimestampType",
        "Topic",
        "TopicConfig",
        "TopicConsumer",
        "TopicProducer",
        "Variance",
        "message_context",
        "resource",
    ]


def test_the_names_of_the_test_kit_are_these():
    assert sorted(testing.__all__) == [
        "CRASH",
        "END",
        "ListSource",
        "LocalEngine",
        "ManualClock",
        "MemoryStore",
        "Run",
        "check_sink",
        "check_source",
        "frame",
        "run_local",
    ]


def test_every_public_name_is_there():
    assert all(hasattr(millpond, name) for name in millpond.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_the_methods_of_a_frame_are_these():
    public = {name for name in dir(millpond.StreamingDataFrame) if not name.startswith("_")}

    assert public == {
        "agg", "apply", "as_table", "concat", "connect", "contains", "drop", "drop_duplicates",
        "fill", "filter", "group_by", "hopping_count_window", "hopping_window", "join_asof",
        "join_interval", "join_table", "key_by", "print", "session_window", "set_headers",
        "set_timestamp", "sink", "sliding_count_window", "sliding_window", "stateful_map", "test",
        "to_topic", "tumbling_count_window", "tumbling_window", "update",
        "update_state", "watermark",
    }  # fmt: skip


def test_the_methods_of_state_are_these():
    public = {name for name in dir(millpond.State) if not name.startswith("_")}

    assert public == {
        "cancel_timer", "delete", "exists", "get", "get_bytes", "keys", "set", "set_bytes",
        "set_timer", "timers", "timestamp",
    }  # fmt: skip


# Public methods that return `Any`, by the reason why a type checker cannot know more.
ANY_BECAUSE = {
    "it is a value of the user's": {
        "Application.run",
        "ListSource.draw",
        "PollSource.poll",
        "Source.read",
        "State.get",
        "State.keys",
        "StreamingDataFrame.test",
        "Admin.get",
        "LocalEngine.state",
        "LocalEngine.values",
        "Run.state",
    },
    "it is the state or the result of an aggregation, which the aggregation chooses": {
        *(f"Aggregation.{name}" for name in ("add", "add_many", "agg", "initialize")),
        *(f"Aggregation.{name}" for name in ("merge", "plain", "result", "start")),
        "Aggregation.result_by_arrival",
        "Aggregator.agg",
        "Aggregator.initialize",
        "Aggregator.result",
        *(f"Collect.{name}" for name in ("add", "add_many", "merge", "result", "start")),
        "Collect.result_by_arrival",
        "Collector.result",
        *(f"{name}.merge" for name in ("First", "Last", "Mean")),
        "Mean.plain",
        "Reduce.add",
        "Reduce.merge",
        *(f"Sum.{name}" for name in ("merge", "plain", "result")),
        "Variance.merge",
    },
    "it has what another library takes": {
        "ConnectionConfig.as_librdkafka_dict",
        "JSONDeserializer.fast",
        "JSONSerializer.fast",
        "SchemaRegistryClientConfig.as_dict",
        *(
            f"SchemaRegistrySerializationConfig.for_{name}"
            for name in ("reading", "references", "writing")
        ),
    },
    "its type is of pandas or of pyspark, which `import millpond` does not load": {
        "Admin.sql",
        "Admin.to_pandas",
        "Admin.to_spark",
    },
    "each entry has fields of its own": {"Admin.audit"},
}


def functions_of(module):
    """The public functions of a module, and those of its classes, with their names."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            yield name, thing
        if not inspect.isclass(thing):
            continue
        for method, found in vars(thing).items():
            if isinstance(found, property):
                found = found.fget
            found = getattr(found, "__func__", found)
            if inspect.isfunction(found) and not method.startswith("_"):
                yield f"{thing.__name__}.{method}", found


def test_a_method_returns_any_only_for_a_reason():
    found = {
        name
        for module in (millpond, testing, millpond.admin)
        for name, function in functions_of(module)
        if re.search(r"\bAny\b", str(function.__annotations__.get("return")))
    }

    assert found == {name for names in ANY_BECAUSE.values() for name in names}
