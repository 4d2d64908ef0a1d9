"""What a batch gave, to where it belongs: topics, sinks, the terminal, the caller of `run`.

Runs on the driver, once per batch, before the batch is committed. Delivering the same batch
again changes nothing in topics: the writer knows the batch's number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from millpond.connectors.delivery_id import DeliveryId, delivery_id, digest_of
from millpond.connectors.protocols import Sink, SinkBatch
from millpond.connectors.sinks import collected
from millpond.plan.plan import Output, Plan
from millpond.runtime.batch import concat, in_order
from millpond.runtime.dead_letters import cut_to_fit
from millpond.runtime.gather import Gathered, to_records
from millpond.runtime.waiting import Waits
from millpond.steps.kinds import Emit, Write

__all__ = ["Delivery", "TopicWriter"]


class TopicWriter(Protocol):
    """Appends the records of a batch to a topic, once."""

    def write(self, topic: str, batch: pa.RecordBatch, batch_id: int, reads: str = "") -> None:
        """Take the records of a batch for a topic; `reads` is a digest of what it reads."""

    def largest(self, topic: str) -> int | None:
        """Return the bytes of the largest record that a topic takes; None: any size."""

    def complete(self, batch_id: int) -> None:
        """Let readers of the topics see all of the batch."""


class Delivery:
    """Delivers batches; keeps what `run` returns."""

    def __init__(
        self,
        plan: Plan,
        sinks: list[Sink],
        topics: TopicWriter,
        dead_letters: str,
        show: Callable[[list[Any], bool, int], None],
        *,
        stream: str = "",
        metadata: bool = False,
        waits: Waits | None = None,
    ) -> None:
        self._waits = waits or Waits()
        self._plan = plan
        self._sinks = sinks
        self._topics = topics
        self._dead_letters = dead_letters
        self._show = show
        self._stream = stream
        self._metadata = metadata
        self.collected: list[Any] = []
        self.whole = False
        """Whether whole records are kept, and not what a user of `run` is given."""

    def deliver(self, gathered: Gathered, batch_id: int, reads: Any = None) -> None:
        """Deliver one batch under its number; `reads` is what it reads, as JSON."""
        self._write_topics(gathered.outputs, batch_id, digest_of(reads) if reads else "")
        ends: list[pa.RecordBatch] = []
        for number, batch in sorted(gathered.outputs.items()):
            output = self._plan.outputs[number]
            if output.kind == "collect":
                ends.append(batch)
            elif output.kind in ("print", "sink"):
                self._hand_over(output, batch, partial(delivery_id, self._stream, batch_id, reads))
        self._collect(ends)

    def deliver_dead_letters(self, gathered: Gathered, batch_id: int, reads: Any = None) -> None:
        """Write the dead letters of a batch, and nothing else."""
        self._write_topics(self._dead_of(gathered), batch_id, digest_of(reads) if reads else "")

    def count_dead_letters(self, gathered: Gathered) -> int:
        """Return how many dead letters a batch has."""
        return sum(batch.num_rows for batch in self._dead_of(gathered).values())

    def _dead_of(self, gathered: Gathered) -> dict[int, pa.RecordBatch]:
        outputs = self._plan.outputs
        return {n: b for n, b in gathered.outputs.items() if outputs[n].kind == "dead-letter"}

    def _collect(self, ends: list[pa.RecordBatch]) -> None:
        """Keep what reached the end of a frame: record by record, whatever branch it came by."""
        if ends:
            whole = ends[0] if len(ends) == 1 else in_order(concat(ends))
            records = to_records(whole, self._plan.topics)
            kept = records if self.whole else (collected(r, self._metadata) for r in records)
            self.collected.extend(kept)

    def _hand_over(
        self, output: Output, batch: pa.RecordBatch, identify: Callable[[str], DeliveryId]
    ) -> None:
        step = output.step
        assert isinstance(step, Emit)
        if output.kind == "print":
            self._print(step, batch)
            return
        records = to_records(batch, self._plan.topics)
        sink = self._sinks[step.number]
        try:
            what = f"waiting for sink {step.name!r} ({step.call_site})"
            with self._waits(what, "see what the sink waits for; its batch is not committed yet"):
                sink.write(SinkBatch(identify(step.name), records))
        except Exception as error:
            where = f"In the sink {step.name} ({step.call_site})"
            fix = "correct the cause and run again: the batch is not committed"
            error.add_note(f"{where}.\nFix: {fix}.")
            raise

    def _print(self, step: Emit, batch: pa.RecordBatch) -> None:
        """Show the first records of a batch; those that are not shown are not decoded."""
        limit, metadata = step.options["limit"], step.options["metadata"]
        records = to_records(batch.slice(0, limit), self._plan.topics)
        values = [collected(record, True) if metadata else record.value for record in records]
        self._show(values, step.options["pretty"], batch.num_rows - len(values))

    def _write_topics(self, outputs: dict[int, pa.RecordBatch], batch_id: int, reads: str) -> None:
        parts: dict[str, list[pa.RecordBatch]] = {}
        for number in sorted(outputs):
            output = self._plan.outputs[number]
            if output.kind == "dead-letter":
                parts.setdefault(self._dead_letters, []).append(self._fitting(outputs[number]))
            elif output.kind == "write":
                assert isinstance(output.step, Write)
                for topic, part in _by_topic(output.step, outputs[number]):
                    parts.setdefault(topic, []).append(part)
        taker = getattr(self._topics, "waits_for", "the topics")
        with self._waits(f"waiting for {taker} to take the outputs"):
            for topic, batches in parts.items():
                whole = batches[0] if len(batches) == 1 else in_order(concat(batches))
                self._topics.write(topic, whole, batch_id, reads)
            self._topics.complete(batch_id)

    def _fitting(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        largest = self._topics.largest(self._dead_letters)
        return letters if largest is None else cut_to_fit(letters, largest)


def _by_topic(step: Write, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    if step.topic is not None:
        return [(step.topic.name, batch)]
    names = batch.column("topic")
    without = batch.select([name for name in batch.schema.names if name != "topic"])
    chosen = names.to_pylist()
    return [
        (name, without.take(pa.array([i for i, other in enumerate(chosen) if other == name])))
        for name in dict.fromkeys(chosen)
    ]
