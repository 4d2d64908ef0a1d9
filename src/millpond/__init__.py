"""Stateful stream processing in plain Python, on Spark.

If you are here to read the code, start with ARCHITECTURE.md, then `steps/kinds.py`,
`plan/cut.py`, `runtime/stage.py`, `state/layout.py` and `spark/compile.py`.
"""

from millpond.app import Application
from millpond.column import Column, StreamingSeries
from millpond.connectors.clients import Consumer, Producer
from millpond.connectors.protocols import Sink, SinkBatch
from millpond.connectors.sinks import ListSink
from millpond.connectors.sources import FileSource, ListSource, RateSource, SparkSource
from millpond.connectors.topic import TimestampType, Topic, TopicConfig
from millpond.frame import StreamingDataFrame
from millpond.record import MessageContext, Record, message_context
from millpond.state.view import State

__version__ = "0.1.0"

__all__ = [
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
