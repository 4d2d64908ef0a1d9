"""Where the topics of an application live: in the embedded log, or on a Kafka broker."""

from __future__ import annotations

from pathlib import Path

from millpond.config import Config
from millpond.connectors.embedded import EmbeddedBroker
from millpond.connectors.log import Log
from millpond.connectors.protocols import Broker
from millpond.connectors.topic import Topic

__all__ = ["make_broker"]


def make_broker(config: Config, topics: dict[str, Topic]) -> Broker:
    """Return the broker of an application; `topics` are all that it has named."""
    creates, skips_lost = config.auto_create_topics, config.on_lost_records == "skip"
    if config.connection is None:
        log = Log(Path(config.topics_dir).absolute())
        return EmbeddedBroker(log, topics, creates=creates, skips_lost=skips_lost)
    from millpond.connectors.kafka.broker import KafkaBroker
    from millpond.connectors.kafka.connection import Connection

    connection = Connection(
        config.connection, config.consumer_extra_config, config.producer_extra_config
    )
    return KafkaBroker(
        connection,
        topics,
        creates=creates,
        guarantee=config.processing_guarantee,
        skips_lost=skips_lost,
    )
