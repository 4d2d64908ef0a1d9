import millpond
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
        "agg", "apply", "concat", "connect", "contains", "drop", "drop_duplicates", "fill",
        "filter", "group_by", "hopping_count_window", "hopping_window", "join_asof",
        "join_interval", "key_by", "print", "session_window", "set_headers", "set_timestamp",
        "sink", "sliding_count_window", "sliding_window", "stateful_map", "test", "to_topic",
        "tumbling_count_window", "tumbling_window", "update", "update_state", "watermark",
    }  # fmt: skip


def test_the_methods_of_state_are_these():
    public = {name for name in dir(millpond.State) if not name.startswith("_")}

    assert public == {
        "cancel_timer", "delete", "exists", "get", "get_bytes", "keys", "set", "set_bytes",
        "set_timer", "timers", "timestamp",
    }  # fmt: skip
