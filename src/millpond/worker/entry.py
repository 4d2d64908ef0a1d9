"""Where records enter a stage: one `Entry` per source or arriving edge.

Takes the plan, gives for each way in how the bytes of a record are read, and the function it
meets first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.arguments.duration import EARLIEST_MS, LATEST_MS
from millpond.program.clocks import ClockPoint
from millpond.program.plan import Edge, Plan, Stage
from millpond.program.steps import Read, Step
from millpond.state.codec import Codec
from millpond.wire import any_value
from millpond.worker.compose import Composer
from millpond.worker.emit import Push, StepFailure

__all__ = ["Entry", "latest_of", "make_entries"]


@dataclass(frozen=True)
class Entry:
    """How records enter a stage: how their bytes are read, and the function they meet first."""

    read: Step
    decode_value: Callable[[bytes], Any]
    decode_key: Callable[[bytes], Any]
    push: Push
    is_raw_value: bool = False
    """Whether a value's bytes are a producer's own."""
    is_raw_key: bool = False
    point: ClockPoint | None = None
    """Where time is read from the timestamps of the columns; None: elsewhere, or not at all."""
    clocked: Push | None = None
    """The same as `push` with a look at each record's time."""

    def guarded(self) -> Entry:
        """Return the entry for a batch in which a time is absurd."""
        return self if self.clocked is None else replace(self, push=self.clocked)

    def unreadable(self, raw: bytes | None, error: Exception) -> StepFailure:
        """Return what is wrong with a record's bytes, in the words of the slower reader."""
        try:
            if raw is not None:
                self.decode_value(raw)
        except Exception as better:
            error = better
        return StepFailure(self.read, error)


def make_entries(plan: Plan, stage: Stage, composer: Composer, codec: Codec) -> dict[int, Entry]:
    """Return the entries of a stage: of stage 0 by source, of others by edge."""
    if stage.number == 0:
        return {number: _of_source(plan, read, composer) for number, read in enumerate(plan.reads)}
    arriving = [edge for edge in plan.edges if edge.target == stage.number]
    return {edge.number: _of_edge(plan, edge, composer, codec) for edge in arriving}


def _of_source(plan: Plan, read: Read, composer: Composer) -> Entry:
    source = read.source
    is_topic = source.kind == "topic"
    point = next(point for point in plan.points if point.step is read)
    push = composer.reading(read)
    return Entry(
        read,
        source.value_deserializer,
        source.key_deserializer,
        push,
        is_raw_value=is_topic,
        is_raw_key=is_topic,
        point=None if source.timestamp_extractor else point,
        clocked=composer.clocked(read, push),
    )


def _of_edge(plan: Plan, edge: Edge, composer: Composer, codec: Codec) -> Entry:
    raw = None if edge.raw_of is None else plan.reads[edge.raw_of].source
    key = None if edge.raw_key_of is None else plan.reads[edge.raw_key_of].source
    return Entry(
        edge.after,
        raw.value_deserializer if raw else any_value.decode,
        key.key_deserializer if key else codec.decode,
        composer.arriving(edge),
        is_raw_value=raw is not None and raw.kind == "topic",
        is_raw_key=key is not None and key.kind == "topic",
    )


def latest_of(entry: Entry, times: pa.Array, now: int) -> tuple[int | None, bool]:
    """Return the largest of some timestamps that can be true, and whether to look at each record.

    Each is looked at where one of them is no time of a record, or too far ahead of the wall clock.
    """
    if entry.point is None or not len(times):
        return None, False
    found = times.to_numpy()
    least, latest = int(found.min()), int(found.max())
    ahead = entry.point.clocking.max_future_ms
    limit = LATEST_MS if ahead is None else min(LATEST_MS, now + ahead)
    if least >= EARLIEST_MS and latest <= limit:
        return latest, False
    is_strange = least < EARLIEST_MS or latest > LATEST_MS or entry.point.is_guarded
    true = found[(found >= EARLIEST_MS) & (found <= limit)]
    return (int(true.max()) if len(true) else None), is_strange
