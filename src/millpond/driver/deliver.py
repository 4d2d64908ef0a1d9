"""What a batch gave, to where it belongs: topics, sinks, the terminal, the caller of `run`.

Runs on the driver, once per batch, before the batch is committed. Delivering the same batch
again changes nothing in topics: the writer knows the batch's number. Outputs that a topic refuses
become dead letters, or end the run.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.connectors.delivery_id import DeliveryId, delivery_id, digest_of
from millpond.connectors.limits import RecordsRefused, refused
from millpond.connectors.protocols import Sink, SinkBatch, TopicWriter
from millpond.connectors.sinks import collected
from millpond.driver.gather import Gathered, to_records
from millpond.driver.waiting import Waits
from millpond.errors import Failure, StepError, TopicError, shown
from millpond.program.plan import Output, Plan
from millpond.program.steps import Emit, Write
from millpond.record import NOWHERE
from millpond.wire.dead_letters import cut_to_fit, letters_of, timed_to_fit
from millpond.wire.packed_rows import concat, in_order

__all__ = ["Delivery"]


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
        on_error: str = "stop",
    ) -> None:
        self._waits = waits or Waits()
        self._plan = plan
        self._sinks = sinks
        self._topics = topics
        self._dead_letters = dead_letters
        self._show = show
        self._stream = stream
        self._metadata = metadata
        self._on_error = on_error
        self.collected: list[Any] = []
        self.whole = False
        """Whether whole records are kept, and not what a user of `run` is given."""

    def deliver(self, gathered: Gathered, batch_id: int, reads: Any = None, now: int = 0) -> None:
        """Deliver one batch.

        Args:
            gathered: What it gave; its report gets how many outputs were refused.
            batch_id: Its number.
            reads: What it reads, as JSON.
            now: What time it is in it.
        """
        digest = digest_of(reads) if reads else ""
        gathered.report.refused = self._write_topics(gathered.outputs, batch_id, digest, now)
        ends: list[pa.RecordBatch] = []
        for number, batch in sorted(gathered.outputs.items()):
            output = self._plan.outputs[number]
            if output.kind == "collect":
                ends.append(batch)
            elif output.kind in ("print", "sink"):
                self._hand_over(output, batch, partial(delivery_id, self._stream, batch_id, reads))
        self._collect(ends)

    def deliver_dead_letters(
        self, gathered: Gathered, batch_id: int, reads: Any = None, now: int = 0
    ) -> None:
        """Write the dead letters of a batch, and nothing else."""
        digest = digest_of(reads) if reads else ""
        self._write_topics(self._dead_of(gathered), batch_id, digest, now)

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

    def _write_topics(
        self, outputs: dict[int, pa.RecordBatch], batch_id: int, reads: str, now: int
    ) -> int:
        """Write what goes to topics; return how many outputs were refused."""
        with self._waits(f"waiting for {self._topics.waits_for} to take the outputs"):
            refused = self._take(outputs, batch_id, reads, now)
            try:
                self._topics.complete(batch_id)
                return refused
            except RecordsRefused as error:  # in spite of its limits, of which some may be unknown
                refusal = error
            refused = self._take(outputs, batch_id, reads, now, refusal.at)
            self._topics.complete(batch_id)
            return refused

    def _take(
        self,
        outputs: dict[int, pa.RecordBatch],
        batch_id: int,
        reads: str,
        now: int,
        wall: int | None = None,
    ) -> int:
        """Hand over what goes to topics; return how many outputs became dead letters instead."""
        parts: dict[str, list[pa.RecordBatch]] = {}
        letters, count = [], 0
        for number in sorted(outputs):
            output = self._plan.outputs[number]
            if output.kind == "dead-letter":
                letters.append(outputs[number])
            elif output.kind == "write":
                assert isinstance(output.step, Write)
                for topic, part in _by_topic(output.step, outputs[number]):
                    failures = self._refused(output.step, topic, part, now, wall)
                    if failures:
                        letters.append(letters_of(part, failures))
                        count += len(failures)
                        part = _without(part, failures)
                    parts.setdefault(topic, []).append(part)
        if letters:
            parts.setdefault(self._dead_letters, []).extend(self._fitting(letters, now, wall))
        for topic, batches in parts.items():
            whole = batches[0] if len(batches) == 1 else in_order(concat(batches))
            self._topics.write(topic, whole, batch_id, reads)
        return count

    def _refused(
        self, step: Write, topic: str, part: pa.RecordBatch, now: int, wall: int | None
    ) -> dict[int, Failure]:
        """Return what is said of the records that a topic refuses, by row.

        Raises:
            StepError: there are some, and failures stop the run.
        """
        limits = self._topics.limits(topic)
        reasons = {} if limits is None else refused(limits, topic, part, now, wall)
        failures = {
            row: self._failure(step, part.slice(row, 1), why) for row, why in reasons.items()
        }
        if failures and self._on_error == "stop":
            row = min(failures, key=lambda r: (failures[r].partition, failures[r].offset))
            raise StepError(failures[row]) from TopicError(reasons[row])
        return failures

    def _failure(self, step: Write, record: pa.RecordBatch, why: str) -> Failure:
        (row,) = record.select(["key", "timestamp", "source", "partition", "offset"]).to_pylist()
        place = ("", NOWHERE, row["timestamp"])  # of a timer, or of a window that closes
        if 0 <= row["source"] < len(self._plan.topics):
            place = (self._plan.topics[row["source"]], row["partition"], row["offset"])
        error = f"{TopicError.__name__}: {why}"
        return Failure(str(step), str(step.call_site), *place, shown(row["key"]), error, "")

    def _fitting(
        self, letters: list[pa.RecordBatch], now: int, wall: int | None
    ) -> list[pa.RecordBatch]:
        """Return dead letters as their topic takes them."""
        limits = self._topics.limits(self._dead_letters)
        if limits is None:
            return letters
        cut = [cut_to_fit(batch, limits.largest) for batch in letters]
        return [timed_to_fit(batch, *limits.times(now, wall), now) for batch in cut]


def _without(part: pa.RecordBatch, rows: Container[int]) -> pa.RecordBatch:
    kept = [row for row in range(part.num_rows) if row not in rows]
    return part.take(pa.array(kept, pa.int64()))


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
