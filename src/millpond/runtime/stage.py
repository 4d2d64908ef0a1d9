"""One stage over one batch: the loop that everything else serves.

Takes records as Arrow columns (and, where the stage is stateful, the pages of a key group),
gives packed rows: records for other stages, records for the outside, a report, or the failure
that ends the run.
"""

from __future__ import annotations

import logging
import marshal
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millpond.connectors import inflight
from millpond.connectors.headers import decode_headers
from millpond.connectors.serde import fast
from millpond.connectors.topic import TimestampType
from millpond.errors import Failure, shown
from millpond.plan.plan import Edge, Plan, Stage
from millpond.record import Origin, current_origin
from millpond.runtime.batch import (
    FAILURE,
    OUTPUT,
    REPORT,
    Row,
    edge_rows,
    kind_of,
    write_payload,
)
from millpond.runtime.compose import Composer, checked_timestamp, fan_out
from millpond.runtime.emit import Emitter, Push, StepFailure
from millpond.runtime.fields import DeadLetters, edge_changes, needs_metadata, output_changes
from millpond.state.codec import Codec
from millpond.state.layout import Pages
from millpond.state.store import Store
from millpond.state.view import KeyScope
from millpond.steps.kinds import Read, Step

__all__ = ["Entry", "Settings", "StageRunner"]

# Emitted bytes after which a stage hands on what it has, so that memory stays bounded (bytes).
_CHUNK_BYTES = 8 * 1024 * 1024

OnError = Literal["stop", "dead-letter"]


@dataclass(frozen=True)
class Settings:
    """What a stage must know of the application."""

    groups: int
    codec: Codec = field(default_factory=Codec)
    on_error: OnError = "stop"
    on_processing_error: Callable[..., bool] | None = None

    @property
    def undo(self) -> bool:
        """Whether a failed record's writes must be undone: not where the batch is dropped."""
        return self.on_error != "stop" or self.on_processing_error is not None


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


class StageRunner:
    """A stage at work. Built once per task, run for each batch or key group."""

    def __init__(self, plan: Plan, stage: Stage, settings: Settings) -> None:
        self.plan = plan
        self.stage = stage
        self._settings = settings
        self._origin = Origin(plan.topics)
        self._scope = KeyScope(settings.codec, undo=settings.undo)
        self._edges = {
            edge: Emitter(self._origin, edge_changes(plan, stage, edge, settings.codec), edge.after)
            for edge in plan.edges
            if edge.source_stage == stage.number
        }
        self._outputs = {
            output: Emitter(self._origin, output_changes(plan, stage, output), output.step)
            for output in plan.outputs
            if output.step is not None and output.step in stage.steps
        }
        self._emitters = [*self._edges.values(), *self._outputs.values()]
        self._dead = DeadLetters()
        self._metadata = needs_metadata(plan, stage)
        composer = Composer(
            lambda step: plan.children_in(step, stage),
            self._leaving,
            {o.step: e for o, e in self._outputs.items() if o.step and o.kind in _IN_PLACE},
            self._origin,
            self._scope,
        )
        self.entries = self._make_entries(composer)

    def _leaving(self, step: Step) -> list[Emitter]:
        edges = [emitter for edge, emitter in self._edges.items() if edge.after is step]
        ends = [e for o, e in self._outputs.items() if o.step is step and o.kind not in _IN_PLACE]
        return edges + ends

    def _make_entries(self, composer: Composer) -> dict[int, Entry]:
        if self.stage.number == 0:
            return {
                number: Entry(
                    read,
                    read.source.value_deserializer,
                    read.source.key_deserializer,
                    _with_timestamp(read, composer.below(read))
                    if read.source.timestamp_extractor
                    else composer.below(read),
                    is_raw_value=read.source.kind == "topic",
                    is_raw_key=read.source.kind == "topic",
                )
                for number, read in enumerate(self.plan.reads)
            }
        arriving = [edge for edge in self.plan.edges if edge.target == self.stage.number]
        return {edge.number: self._entry_of(edge, composer) for edge in arriving}

    def _entry_of(self, edge: Edge, composer: Composer) -> Entry:
        reads = self.plan.reads
        raw = None if edge.raw_of is None else reads[edge.raw_of].source
        key = None if edge.raw_key_of is None else reads[edge.raw_key_of].source
        return Entry(
            edge.after,
            raw.value_deserializer if raw else inflight.decode,
            key.key_deserializer if key else self._settings.codec.decode,
            fan_out([], [composer.push(step) for step in edge.enter], edge.after),
            is_raw_value=raw is not None and raw.kind == "topic",
            is_raw_key=key is not None and key.kind == "topic",
        )

    # --- running ----------------------------------------------------------------------------

    def passes_untouched(self, number: int) -> Edge | None:
        """Return the edge to which a source's records go as they are, if that is all there is."""
        read = self.plan.reads[number]
        if read.source.timestamp_extractor or self.plan.children_in(read, self.stage):
            return None
        leaving = [edge for edge in self._edges if edge.after is read]
        return leaving[0] if len(leaving) == 1 and not self._leaving(read)[1:] else None

    def forward(self, entered: pa.RecordBatch, edge: Edge, columns: int) -> Iterator[Row]:
        """Hand untouched records on, without looking at any of them."""
        target = self.plan.stages[edge.target]
        yield from edge_rows(entered, target.scope, edge.number, columns, self._settings.groups)
        yield self._report_row(entered.num_rows, entered.num_rows, 0, 0, None)

    def run(
        self,
        entered: pa.RecordBatch,
        entries: list[Entry],
        store: Store | None = None,
        group: int = -1,
    ) -> Iterator[Row]:
        """Run the stage over records, in the order given; `entries` has one or one per record."""
        pages = None
        if store is not None:
            pages = Pages(store, self._settings.codec, self._settings.groups)
            self._scope.open(pages)
        self._origin.sources = entered.column("source").to_pylist()
        self._origin.partitions = entered.column("partition").to_pylist()
        self._origin.offsets = entered.column("offset").to_pylist()
        seen = np.zeros(entered.num_rows, bool)
        outputs, dead = 0, 0
        token = current_origin.set(self._origin)
        try:
            for failed in self._loop(entered, entries, pages):
                if isinstance(failed, Failure):
                    self._reset()
                    yield Row("", -1, kind_of(FAILURE, 0), pickle.dumps(failed))
                    return
                dead += failed
                outputs += self._leaves()
                yield from self._flush(entered, seen)
        finally:
            current_origin.reset(token)
        if pages is not None:
            pages.flush()
        outputs += self._leaves()
        yield from self._flush(entered, seen)
        keys = None if pages is None else (self.stage.scope, group, pages.keys)
        yield self._report_row(entered.num_rows, int(seen.sum()), dead, outputs, keys)

    def _loop(  # noqa: C901 - one loop on purpose: a call per record is what costs here
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None
    ) -> Iterator[int | Failure]:
        """Push every record; yield the number of dead letters whenever output should leave."""
        origin, scope, undo = self._origin, self._scope, self._settings.undo
        single, entry, places = len(entries) == 1, entries[0], scope.places
        decode, push = fast(entry.decode_value), entry.push
        paths = entered.column("path").to_pylist() if "path" in entered.schema.names else None
        marks: list[int] = []
        dead = fresh_bytes = 0
        origin.path = None
        for index, (raw, key_bytes, key, timestamp, headers) in enumerate(
            self._columns(entered, pages)
        ):
            if not single:
                entry = entries[index]
                decode, push = fast(entry.decode_value), entry.push
            origin.index = index
            if paths:
                origin.path = paths[index]
            if undo:
                marks = [len(emitter) for emitter in self._emitters]
            try:
                if pages is not None:
                    scope.place = places.get(key_bytes) or scope.find(key_bytes)
                try:
                    value = None if raw is None else decode(raw)
                    if key is not None:
                        key = entry.decode_key(key)
                except Exception as error:
                    raise self._unreadable(entry, raw, error) from error
                push(value, key, timestamp, headers)
            except StepFailure as failure:
                verdict = self._failed(failure, marks, entered, entry)
                if isinstance(verdict, Failure):
                    yield verdict
                    return
                dead += verdict
            if undo:
                scope.keep()
            if not index & 255 and index:
                fresh_bytes += self._recent_bytes()
                if fresh_bytes > _CHUNK_BYTES:
                    yield dead
                    dead = fresh_bytes = 0
        yield dead

    def _columns(self, entered: pa.RecordBatch, pages: Pages | None) -> Iterator[tuple[Any, ...]]:
        """Return (value bytes, key bytes, key to decode, timestamp, headers) of each record."""
        values = entered.column("value").to_pylist()
        keys: Any = repeat(None)
        if pages is not None or self._metadata:
            keys = entered.column("key").to_pylist()
        timestamps: Any = repeat(0)
        headers: Any = repeat(None)
        if self._metadata:
            timestamps = entered.column("timestamp").to_pylist()
            if "headers" in entered.schema.names:
                headers = map(decode_headers, entered.column("headers").to_pylist())
        return zip(
            values,
            keys,
            keys if self._metadata else repeat(None),
            timestamps,
            headers,
            strict=False,
        )

    # --- what leaves ------------------------------------------------------------------------

    def _recent_bytes(self) -> int:
        recent = (emitter.values[-256:] for emitter in self._emitters)
        return sum(sum(map(len, filter(None, values))) for values in recent)

    def _leaves(self) -> int:
        return sum(len(emitter) for output, emitter in self._outputs.items() if output.is_leaf)

    def _flush(self, entered: pa.RecordBatch, seen: np.ndarray) -> Iterator[Row]:
        for edge, emitter in self._edges.items():
            if len(emitter):
                seen[emitter.rows] = True
                batch, columns = emitter.take(entered)
                scope = self.plan.stages[edge.target].scope
                yield from edge_rows(batch, scope, edge.number, columns, self._settings.groups)
        for output, emitter in self._outputs.items():
            if len(emitter):
                seen[emitter.rows] = True
                if output.kind == "count":
                    emitter.cut_to(0)
                    continue
                batch, columns = emitter.take(entered)
                kind = kind_of(OUTPUT, output.number, columns)
                yield Row("", -1, kind, write_payload(batch))
        if len(self._dead):
            batch, columns = self._dead.take(entered)
            yield Row("", -1, kind_of(OUTPUT, 0, columns), write_payload(batch))

    def _reset(self) -> None:
        for emitter in self._emitters:
            emitter.cut_to(0)
        self._dead = DeadLetters()

    def _report_row(self, entered: int, out: int, dead: int, outputs: int, keys: Any) -> Row:
        report = {
            "stage": self.stage.number,
            "in": entered,
            "out": out,
            "dead": dead,
            "filtered": entered - out - dead,
            "outputs": outputs,
            "keys": keys,
        }
        return Row("", -1, kind_of(REPORT, 0), marshal.dumps(report))

    # --- when a record fails ----------------------------------------------------------------

    def _failure(self, failure: StepFailure, entered: pa.RecordBatch, entry: Entry) -> Failure:
        context = self._origin.context()
        key = entered.column("key")[self._origin.index].as_py()
        if key is not None and not entry.is_raw_key:
            key = entry.decode_key(key)
        error, step = failure.error, failure.step
        try:
            pickled: bytes | None = pickle.dumps(error)
            pickle.loads(pickled or b"")
        except Exception:
            pickled = None
        name = f"reading of {step.name!r}" if isinstance(step, Read) else str(step)
        frames = traceback.format_exception(error, limit=-8)
        return Failure(
            step=name,
            call_site=str(step.call_site),
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
            key=shown(key),
            error=_error_text(error),
            traceback="".join(_users_part(frames)),
            exception=pickled,
        )

    def _unreadable(self, entry: Entry, raw: bytes | None, error: Exception) -> StepFailure:
        try:
            if raw is not None:
                entry.decode_value(raw)
        except Exception as better:
            error = better
        return StepFailure(entry.read, error)

    def _failed(
        self, failure: StepFailure, marks: list[int], entered: pa.RecordBatch, entry: Entry
    ) -> int | Failure:
        """Undo what a record did; return its number of dead letters, or what ends the run."""
        if not self._settings.undo:
            return self._failure(failure, entered, entry)
        self._scope.undo()
        self._origin.path = None
        for emitter, mark in zip(self._emitters, marks, strict=True):
            emitter.cut_to(mark)
        callback = self._settings.on_processing_error
        if callback is not None:
            try:
                logger = logging.getLogger("millpond")
                if callback(failure.error, self._origin.context(), logger):
                    return 0
            except Exception as error:
                return self._failure(StepFailure(failure.step, error), entered, entry)
        facts = self._failure(failure, entered, entry)
        if self._settings.on_error == "stop":
            return facts
        self._dead.add(self._origin.index, entered, entry, facts)
        return 1


def _with_timestamp(read: Read, push: Push) -> Push:
    """Give each record the time that the topic's extractor finds in it."""
    extract = read.source.timestamp_extractor
    assert extract is not None

    def stamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            moment = extract(value, headers, timestamp, TimestampType.CREATE_TIME)
            timestamp = checked_timestamp(moment, "timestamp_extractor")
        except Exception as error:
            raise StepFailure(read, error) from error
        push(value, key, timestamp, headers)

    return stamp


_IN_PLACE = ("write", "print", "sink")


def _error_text(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _users_part(frames: list[str]) -> list[str]:
    """Leave out the lines of a traceback that lie inside this package."""
    inside = "/millpond/runtime/"
    return [frame for frame in frames if inside not in frame.split("\n", 1)[0]]
