"""What a topic takes of a record, and which records of a batch it would refuse.

Takes the limits of a topic, Arrow columns and the time of the batch; gives the rows that are
refused, each with the reason. The embedded log has no limits; Kafka's are settings of a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BrokerError

__all__ = ["Limits", "RecordsRefused", "refused"]

# Bytes around a record: its own lengths (librdkafka counts with the most, 36), and those of the
# batch that the topic measures (61).
_OF_RECORD, _OF_BATCH = 36, 61

# What is assumed of a topic whose settings nobody may see: Kafka's defaults (bytes, ms).
_KEPT, _AHEAD = 1_048_588, 3_600_000

# The last time of a record (ms).
_LAST = 2**63 - 1

# How far two clocks may differ where a topic has refused a time that seemed right (ms).
_DIFFERENCE = 300_000


class RecordsRefused(BrokerError):
    """A broker refuses a record of a batch, and does not say which one."""

    def __init__(self, text: str, at: int = 0) -> None:
        super().__init__(text)
        self.at = at
        """When it did, by the wall clock."""


@dataclass(frozen=True)
class Limits:
    """What a topic takes of a record."""

    sent: int
    """Bytes of the largest record that the producer sends."""
    kept: int | None = None
    """Bytes of the largest record that the topic keeps, after compression; None: not known."""
    old: int | None = None
    """Milliseconds that a time may be before the broker's clock; None: any, or not known."""
    ahead: int | None = None
    """And after it."""
    has_times: bool = True
    """Whether the topic keeps the times of records; if not, it has its own."""
    needs_key: bool = False

    @property
    def largest(self) -> int:
        """The bytes of a record that is taken in any case."""
        return self.sent if self.kept is None else min(self.sent, self.kept)

    def times(self, now: int, wall: int | None = None) -> tuple[int, int]:
        """Return the first and the last time that the topic takes in a batch.

        Args:
            now: The time of the batch. The same whenever it is replayed, and so is the answer.
            wall: The time by the wall clock, where the broker has refused a batch that seemed
                right: it may be replayed much later than it was planned, and clocks may differ.
        """
        if not self.has_times:
            return -_LAST - 1, _LAST
        low, high = 0, _LAST
        old, ahead, then = self.old, self.ahead, now
        if wall is not None:
            old, ahead = _less(old), _less(_AHEAD if ahead is None else ahead)
            now, then = min(now, wall), wall
        if old is not None:
            low = max(low, then - old)
        if ahead is not None:
            high = min(high, now + ahead)
        return low, high


def _less(distance: int | None) -> int | None:
    return None if distance is None else distance - min(_DIFFERENCE, distance // 2)


def refused(
    limits: Limits, topic: str, batch: pa.RecordBatch, now: int, wall: int | None = None
) -> dict[int, str]:
    """Return the rows of a batch that a topic refuses, and why.

    Args:
        limits: Those of the topic.
        topic: Its name.
        batch: Records with key, value, timestamp and perhaps headers.
        now: The time of the batch.
        wall: The time by the wall clock, where the broker has refused the batch as a whole. Then
            records are refused, too, that the topic may take or not.
    """
    times, sizes, keys = batch.column("timestamp"), _sizes(batch), batch.column("key")
    found: dict[int, str] = {}

    def look(wrong: pa.Array, why: Callable[[int], str]) -> None:
        if pc.any(wrong).as_py():
            for row in pc.indices_nonzero(wrong).to_pylist():
                found.setdefault(row, why(row))

    low, high = limits.times(now, wall)
    note = "" if wall is None else ", with room for clocks that differ"
    look(pc.less(times, low), lambda row: _early(topic, times[row].as_py(), low, note))
    look(pc.greater(times, high), lambda row: _late(topic, times[row].as_py(), now, high, note))
    kept = _KEPT if limits.kept is None else limits.kept
    room = min(limits.sent, kept - _OF_BATCH) if wall is not None else limits.sent
    most = room - _OF_RECORD
    look(pc.greater(sizes, most), lambda row: _large(topic, sizes[row].as_py(), most))
    if limits.needs_key:
        look(pc.is_null(keys), lambda row: _keyless(topic))
    return found


def _sizes(batch: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each record; packed headers take no less than those of Kafka."""
    names = [name for name in ("key", "value", "headers") if name in batch.schema.names]
    lengths = (pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in names)
    return reduce(pc.add, (pc.cast(length, pa.int64()) for length in lengths))


def _early(topic: str, moment: int, low: int, note: str) -> str:
    if moment < 0:
        return (
            f"the record's time, {moment}, is before 1970, which topic {topic!r} does not take.\n"
            "Fix: give it another one with set_timestamp() before to_topic()."
        )
    return (
        f"the record's time, {moment}, is before {low}, the first one that topic {topic!r} takes "
        f"now (its setting message.timestamp.before.max.ms{note}).\n"
        "Fix: give it another one with set_timestamp() before to_topic(), or raise the setting."
    )


def _late(topic: str, moment: int, now: int, high: int, note: str) -> str:
    return (
        f"the record's time, {moment}, is {moment - now} ms ahead of the time of the batch, and "
        f"topic {topic!r} takes {high - now} at most (its setting "
        f"message.timestamp.after.max.ms{note}).\n"
        "Fix: give it another one with set_timestamp() before to_topic() (is it in milliseconds?), "
        "or raise the setting."
    )


def _large(topic: str, size: int, most: int) -> str:
    return (
        f"the record has {size} bytes, and topic {topic!r} takes {most} at most.\n"
        "Fix: write less into one record, or raise max.message.bytes of the topic and "
        'producer_extra_config={"message.max.bytes": ...}.'
    )


def _keyless(topic: str) -> str:
    return (
        f"the record has no key, and topic {topic!r} is compacted by keys.\n"
        "Fix: give it a key with group_by(), or write to a topic that is not compacted."
    )
