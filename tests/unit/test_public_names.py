import millpond
from millpond import testing


def test_the_public_names_are_these():
    assert sorted(millpond.__all__) == [
        "Application",
        "Column",
        "Consumer",
        "FileSource",
        "ListSink",
        "ListSource",
        "MessageContext",
        "Producer",
        "RateSource",
        "Record",
        "Sink",
        "SinkBatch",
        "SparkSource",
        "State",
        "StreamingDataFrame",
        "StreamingSeries",
        "TimestampType",
        "Topic",
        "TopicConfig",
        "message_context",
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
        "frame",
        "run_local",
    ]


def test_every_public_name_is_there():
    assert all(hasattr(millpond, name) for name in millpond.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_the_methods_of_a_frame_are_these():
    public = {name for name in dir(millpond.StreamingDataFrame) if not name.startswith("_")}

    assert public == {
        "apply", "concat", "contains", "drop", "fill", "filter", "group_by", "key_by", "print",
        "set_headers", "set_timestamp", "sink", "stateful_map", "to_topic", "update",
    }  # fmt: skip


def test_the_methods_of_state_are_these():
    public = {name for name in dir(millpond.State) if not name.startswith("_")}

    assert public == {"delete", "exists", "get", "get_bytes", "keys", "set", "set_bytes"}
