"""Topics and frames: what an application reads, and what it may write to.

Takes names, formats and sources; gives topics, and frames whose first step reads one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from millpond.app.not_here import NotHere
from millpond.arguments.callsite import here
from millpond.arguments.duration import Duration, milliseconds
from millpond.arguments.windows import MAX_FUTURE_MS
from millpond.config import Config
from millpond.connectors.as_source import as_source
from millpond.connectors.protocols import PollSource, Source, SourceSettings
from millpond.connectors.serde import Deserializer, Serializer
from millpond.connectors.topic import TimestampExtractor, Topic, TopicConfig, make_topic
from millpond.errors import ConfigError
from millpond.frame import StreamingDataFrame, clocking
from millpond.options import Format
from millpond.program.graph import Graph
from millpond.program.steps import Read, SourceInfo
from millpond.state.codec import Codec
from millpond.table import Table

__all__ = ["Frames"]


class Frames(NotHere):
    """The methods of an application that make topics and frames."""

    config: Config
    graph: Graph
    codec: Codec
    topics: dict[str, Topic]

    def topic(
        self,
        name: str,
        value_deserializer: Format | Deserializer | type[Any] = "json",
        key_deserializer: Format | Deserializer | type[Any] = "bytes",
        value_serializer: Format | Serializer | type[Any] = "json",
        key_serializer: Format | Serializer | type[Any] = "bytes",
        config: TopicConfig | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        *,
        lateness: Duration = 0,
        max_future: Duration | None = MAX_FUTURE_MS,
        idle_after: Duration | None = None,
    ) -> Topic:
        """Return a topic to read from or to write to.

        >>> from millpond import Application
        >>> app = Application(consumer_group="shop")
        >>> app.topic("names", value_serializer="str").serialize(key="1", value="ann").value
        b'ann'

        Args:
            name: Its name.
            value_deserializer: "json", "bytes", "str", "int", "double", or an own one.
            key_deserializer: Likewise, for keys.
            value_serializer: Likewise, for values that are written.
            key_serializer: Likewise, for keys that are written.
            config: How the topic is made where it is missing.
            timestamp_extractor: Function of (value, headers, timestamp, timestamp type) that
                gives the time of a record in milliseconds.
            lateness: How late records may come and still be on time; see
                `StreamingDataFrame.watermark`.
            max_future: How far ahead of the wall clock a record's time may be; None: no limit.
            idle_after: After how long without a record the wall clock takes over.
        """
        topic = make_topic(
            name,
            value_deserializer,
            key_deserializer,
            value_serializer,
            key_serializer,
            config,
            timestamp_extractor,
            clocking(lateness, max_future, idle_after),
        )
        self.topics[name] = topic
        return topic

    def dataframe(
        self,
        topic: Topic | None = None,
        source: SourceSettings | Source | PollSource | Iterable[Any] | None = None,
        *,
        state_ttl: Duration | None = None,
    ) -> StreamingDataFrame:
        """Return a frame of the records of a topic or a source.

        >>> from millpond.testing import run_local
        >>> from millpond import Application
        >>> app = Application(consumer_group="shop")
        >>> clicks = app.dataframe(app.topic("clicks"))
        >>> run_local(clicks.apply(lambda value: value["page"]), [{"page": "/"}])
        ['/']

        Args:
            topic: A topic of this application.
            source: A `ListSource`, `RateSource`, `FileSource` or `SparkSource`, or one of your own:
                an object that implements `Source` or `PollSource`. A plain list or other iterable
                becomes a `ListSource`.
            state_ttl: How long state of this frame is seen that is set without a `ttl`.
                Default: that of the application.
        """
        if (topic is None) == (source is None):
            msg = "dataframe() takes a topic or a source.\nFix: app.dataframe(app.topic('clicks'))."
            raise ConfigError(msg)
        given = topic if topic is not None else source
        settings = self.graph.add_source(as_source(given, self.codec, self.graph.sources))
        read = Read(call_site=here(), name=settings.name, source=SourceInfo.of(settings))
        ttl_ms = self.config.state_ttl_ms
        if state_ttl is not None:
            ttl_ms = milliseconds(state_ttl, "state_ttl")
        return StreamingDataFrame(self.graph, self.graph.add(read), ttl_ms)

    def table(
        self,
        topic: Topic | None = None,
        source: SourceSettings | Source | PollSource | Iterable[Any] | None = None,
        *,
        history: Duration | None = None,
        idle_after: Duration = timedelta(seconds=5),
    ) -> Table:
        """Return the last value of each key of a topic or a source, as a table.

        A new consumer group reads it from its beginning. A value of None deletes a row.

        >>> from millpond import Application
        >>> from millpond.testing import LocalEngine
        >>> app = Application(consumer_group="shop")
        >>> customers = app.table(app.topic("customers", key_deserializer="str"))
        >>> orders = app.dataframe(app.topic("orders"))
        >>> engine = LocalEngine(orders.join_table(customers, on="customer"))
        >>> engine.feed({"customers": [("c1", {"name": "Ann"})]})
        >>> engine.feed({"orders": [("o1", {"customer": "c1"})]})
        >>> engine.run()
        [{'customer': 'c1', 'name': 'Ann'}]

        Args:
            topic: A topic of this application.
            source: Instead of a topic; see `dataframe`.
            history: How long it is known how rows were: a record meets the row as it was at its
                own time, and may be so much later than the watermark. Default: rows as they are.
            idle_after: With history, records wait for the watermark of the table. After how long
                without a change the wall clock takes over there.
        """
        changes = self.dataframe(topic, source)
        read = changes._head
        assert isinstance(read, Read)
        self.graph.tables.add(read.source.name)
        clocking = read.source.clocking
        if history is not None and clocking.idle_after_ms is None:
            changes = changes.watermark(clocking.lateness_ms, idle_after=idle_after)
        return changes.as_table(history=history, name=read.source.name)
