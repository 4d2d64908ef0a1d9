"""Stateful stream processing in plain Python, on Spark.

If you are here to read the code, start with ARCHITECTURE.md, then `program/steps.py`,
`program/cut.py`, `worker/record_loop.py`, `state/layout.py` and `spark/compile.py`.
"""

from millpond.aggregations import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    StdDev,
    Sum,
    Variance,
)
from millpond.aggregations.user_defined import Aggregator, BaseAggregator, BaseCollector, Collector
from millpond.app import Application
from millpond.column import Column, StreamingSeries
from millpond.connectors.avro_serde import AvroDeserializer, AvroSerializer
from millpond.connectors.clients import Consumer, Producer
from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.json_serde import JSONDeserializer, JSONSerializer
from millpond.connectors.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from millpond.connectors.protocols import (
    PollSource,
    Sink,
    SinkBatch,
    Source,
    TopicConsumer,
    TopicProducer,
)
from millpond.connectors.registry import (
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
)
from millpond.connectors.serde import Deserializer, SerializationContext, Serializer
from millpond.connectors.sinks import ListSink
from millpond.connectors.sources import FileSource, ListSource, RateSource, SparkSource
from millpond.connectors.topic import TimestampType, Topic, TopicConfig
from millpond.errors import IgnoreMessage
from millpond.frame import StreamingDataFrame
from millpond.options import KafkaOptions, SparkOptions, StateOptions
from millpond.record import MessageContext, Record, message_context
from millpond.resource import Resource, resource
from millpond.state.timers import Timer
from millpond.state.view import State

__version__ = "0.1.0"

__all__ = [
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
