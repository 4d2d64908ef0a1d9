"""What programs for Quix Streams pass and Millpond has no use for.

Takes the keywords of a call that are not Millpond's own; says once which were ignored and why, and
refuses those that nobody knows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

from millpond.arguments.callsite import here

__all__ = [
    "APPLICATION",
    "PRODUCE",
    "PRODUCE_OWN",
    "SUBSCRIBE",
    "SUBSCRIBE_OWN",
    "ApplicationKeywords",
    "ProduceKeywords",
    "SubscribeKeywords",
    "check_keywords",
    "warn_ignored",
]

logger = logging.getLogger("millpond")


class ApplicationKeywords(TypedDict, total=False):
    """Keywords of `Application` of Quix Streams 3.28.1 that have no meaning here."""

    quix_sdk_token: Any
    quix_portal_api: Any
    quix_config_builder: Any
    commit_every: Any
    rocksdb_options: Any
    on_consumer_error: Any
    on_producer_error: Any
    on_message_processed: Any
    consumer_poll_timeout: Any
    producer_poll_timeout: Any
    use_changelog_topics: Any
    auto_recover_from_source_offset_out_of_range: Any
    state_recovery_offset_reset: Any
    topic_manager: Any
    request_timeout: Any
    topic_create_timeout: Any
    max_partition_buffer_size: Any


_CLOUD = "there is no Quix Cloud here; topics are those of broker_address, or of the embedded log"
_POLL = "a batch reads what is there; commit_interval is the least time between two"
_CHANGELOG = "state is kept in state_dir, with its offsets, and in no changelog topics"
_LOST = "state is never deleted; on_lost_records says what happens when records are gone"

APPLICATION: Mapping[str, str] = {
    "quix_sdk_token": _CLOUD,
    "quix_portal_api": _CLOUD,
    "quix_config_builder": _CLOUD,
    "commit_every": "each batch is a commit; max_records_per_batch bounds it",
    "rocksdb_options": "spark_config has the settings of Spark's RocksDB",
    "on_consumer_error": "is not called; on_processing_error and on_error settle bad records",
    "on_producer_error": "is not called; a batch that cannot be written ends the run",
    "on_message_processed": "is not called; app.reports has what each batch did",
    "consumer_poll_timeout": _POLL,
    "producer_poll_timeout": _POLL,
    "use_changelog_topics": _CHANGELOG,
    "auto_recover_from_source_offset_out_of_range": _LOST,
    "state_recovery_offset_reset": _LOST,
    "topic_manager": "topics are made by the application itself",
    "request_timeout": "ConnectionConfig(patience=...) is how long a broker is waited for",
    "topic_create_timeout": "ConnectionConfig(patience=...) is how long a broker is waited for",
    "max_partition_buffer_size": "max_records_per_batch bounds what a batch reads",
}


class ProduceKeywords(TypedDict, total=False):
    """Keywords of `Producer.produce` that have no meaning here."""

    poll_timeout: Any
    buffer_error_max_tries: Any


_BUFFER = "produce() waits until there is room"

PRODUCE_OWN = ("topic", "value", "key", "headers", "partition", "timestamp", "on_delivery")
PRODUCE: Mapping[str, str] = {"poll_timeout": _BUFFER, "buffer_error_max_tries": _BUFFER}


class SubscribeKeywords(TypedDict, total=False):
    """Keywords of `Consumer.subscribe` that have no meaning here."""

    on_assign: Any
    on_revoke: Any
    on_lost: Any


_GROUP = "this consumer joins no group: all partitions are its own from the beginning"

SUBSCRIBE_OWN = ("topics", "from_end")
SUBSCRIBE: Mapping[str, str] = {"on_assign": _GROUP, "on_revoke": _GROUP, "on_lost": _GROUP}


def check_keywords(
    call: str, given: Mapping[str, object], known: Mapping[str, str], own: Iterable[str]
) -> None:
    """Refuse a keyword that neither Millpond nor Quix Streams has.

    Args:
        call: What was called.
        given: The keywords that are not Millpond's own.
        known: Those of Quix Streams, each with the reason why it is ignored.
        own: Millpond's own, for what was misspelt.
    """
    for name in given:
        if name not in known:
            close = get_close_matches(name, [*own, *known], n=1)
            fix = f"did you mean {close[0]!r}?" if close else "leave it out."
            msg = f"{call} got an unexpected keyword argument {name!r} ({here()})."
            raise TypeError(f"{msg}\nFix: {fix}")


def warn_ignored(call: str, given: Iterable[str], known: Mapping[str, str]) -> None:
    """Say which keywords were ignored, and why: one warning for all of a call."""
    by_reason: dict[str, list[str]] = {}
    for name in given:
        by_reason.setdefault(known[name], []).append(name)
    if by_reason:
        reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        logger.warning("%s at %s ignores %s.\nFix: leave them out.", call, here(), reasons)
