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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.headers import decode_headers
from millpond.connectors.serde import fast
from millpond.errors import Failure, FutureTimestampError, shown
from millpond.plan.plan import Edge, Plan, Stage
from millpond.record import NOWHERE, MessageContext, Origin, current_origin
from millpond.runtime.batch import (
    BEFORE,
    BEHIND,
    FAILURE,
    OUTPUT,
    REPORT,
    Row,
    edge_rows,
    kind_of,
    moments_batch,
    write_payload,
)
from millpond.runtime.clock import Clock
from millpond.runtime.combine import Combiner
from millpond.runtime.compose import Composer
from millpond.runtime.emit import Emitter, StepFailure
from millpond.runtime.entry import Entry, make_entries
from millpond.runtime.fields import DeadLetters, edge_changes, needs_metadata, output_changes
from millpond.runtime.schedule import Schedule
from millpond.state.codec import Codec
from millpond.state.layout import Pages
from millpond.state.store import Store
from millpond.state.view import KeyScope
from millpond.steps.kinds import Emit, Read, Step, Write

__all__ = ["Settings", "StageRunner"]

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
    keeps_clock: bool = False
    """Whether a group remembers the time, because records come to it without."""

    @property
    def undo(self) -> bool:
        """Whether a failed record's writes must be undone: not where the batch is dropped."""
        return self.on_error != "stop" or self.on_processing_error is not None


@dataclass
class Counts:
    """What became of the records that entered a stage."""

    entered: int = 0
    out: int = 0
    late: int = 0
    dead: int = 0
    outputs: int = 0
    keys: Any = None
    has_failed: bool = False

    def add(self, entered: int, out: int, late: int, dead: np.ndarray) -> None:
        self.entered += entered
        self.out += out
        self.late += late
        self.dead += int(dead.sum())


class StageRunner:
    """A stage at work. Built once per task, run for each batch or key group."""

    def __init__(self, plan: Plan, stage: Stage, settings: Settings) -> None:
        self.plan = plan
        self.stage = stage
        self._settings = settings
        self._origin = Origin(plan.topics)
        self._points = {point.step: point for point in plan.points}
        self._undo = settings.undo or self._guards_within()
        self._scope = KeyScope(settings.codec, undo=self._undo)
        self._schedule = Schedule(plan, stage, self._scope)
        leaving = [edge for edge in plan.edges if edge.source_stage == stage.number]
        self._edges = {
            edge: Emitter(self._origin, edge_changes(plan, stage, edge, settings.codec), edge.after)
            for edge in leaving
            if edge.combines is None
        }
        self._combiners = {edge: self._combiner(edge) for edge in leaving if self._combines(edge)}
        self._outputs = {
            output: Emitter(self._origin, output_changes(plan, stage, output), output.step)
            for output in plan.outputs
            if output.step is not None and output.step in stage.steps
        }
        self._emitters = [*self._edges.values(), *self._outputs.values()]
        self._dead = DeadLetters()
        self._failed_timers = 0
        self._metadata = needs_metadata(plan, stage)
        self._needs_time = self._metadata or bool(self._combiners)
        # Nothing leaves while the loop runs but what is combined, so nothing has to be bounded.
        only_combined = bool(self._combiners) and len(self._combiners) == len(self._emitters)
        self._is_plain = only_combined and not self._metadata and not self._undo
        composer = Composer(
            lambda step: plan.children_in(step, stage),
            self._leaving,
            {o.step: e for o, e in self._outputs.items() if o.step and o.kind in _IN_PLACE},
            self._origin,
            self._scope,
            self._schedule,
            self._points,
        )
        self.entries = make_entries(plan, stage, composer, settings.codec)
        self._clocked = composer.clocked
        self._windows = composer.windows
        self._finishers = composer.finishers

    def _guards_within(self) -> bool:
        """Tell whether a record may be put aside, as of the future, when it has done something."""
        inner = [s for s in self.stage.steps if not isinstance(s, Read) and s in self._points]
        if not any(self._points[step].is_guarded for step in inner):
            return False
        return any(
            step.is_stateful or isinstance(step, Write | Emit) or len(self.plan.children[step]) > 1
            for step in self.stage.steps
        )

    def _combines(self, edge: Edge) -> bool:
        # Where a failed record is let go, what it did must be undone, record by record; where
        # records come without the time, nobody knows here which are late; and what is gathered
        # is not encoded yet, so no step may go on with the value and change it.
        if edge.combines is None or self._undo or self._settings.keeps_clock:
            return False
        return not self.plan.children_in(edge.after, self.stage)

    def _combiner(self, edge: Edge) -> Combiner:
        step = edge.combines
        assert step is not None
        changes = edge_changes(self.plan, self.stage, edge, self._settings.codec)
        clock = self._schedule.clock_of(step)
        return Combiner(step, self._origin, clock, changes.key)

    def _leaving(self, step: Step) -> list[Emitter | Combiner]:
        combined = {(edge.after, edge.target): c for edge, c in self._combiners.items()}
        edges = [
            combined.get((edge.after, edge.target), emitter)
            for edge, emitter in self._edges.items()
            if edge.after is step
        ]
        ends = [e for o, e in self._outputs.items() if o.step is step and o.kind not in _IN_PLACE]
        return edges + ends

    # --- running ----------------------------------------------------------------------------

    def passes_untouched(self, number: int) -> Edge | None:
        """Return the edge to which a source's records go as they are, if that is all there is."""
        read = self.plan.reads[number]
        if read.source.timestamp_extractor or self.plan.children_in(read, self.stage):
            return None
        leaving = [edge for edge in self._edges if edge.after is read]
        if len(leaving) != 1 or self._leaving(read)[1:] or self._combiners:
            return None
        return leaving[0]

    def forward(
        self, entered: pa.RecordBatch, number: int, edge: Edge, columns: int, clock: Clock
    ) -> Iterator[Row]:
        """Hand untouched records on, without looking at any of them."""
        self._schedule.begin(clock)
        entry = self.entries[number]
        if self._has_future(entered, entry):
            yield from self.run(entered, [entry], clock=clock)
            return
        self._tell_time(entered, entry)
        scope, groups = self.plan.stages[edge.target].scope, self._settings.groups
        told = clock.encode() if clock.seq else b""
        yield from edge_rows(entered, scope, edge.number, columns, groups, told)
        yield self._report_row(Counts(entered.num_rows, entered.num_rows), clock)

    def _has_future(self, entered: pa.RecordBatch, entry: Entry) -> bool:
        """Tell whether there are records too far ahead of the wall clock, to be put aside."""
        if entry.point is None or not entry.point.is_guarded or not entered.num_rows:
            return False
        ahead = entry.point.clocking.max_future_ms
        latest = pc.max(entered.column("timestamp")).as_py()
        return ahead is not None and latest > self._scope.now + ahead

    def _tell_time(self, entered: pa.RecordBatch, entry: Entry) -> None:
        """Take the largest timestamp that is not absurd."""
        if entry.point is None or not entered.num_rows:
            return
        times, ahead = entered.column("timestamp"), entry.point.clocking.max_future_ms
        latest = pc.max(times).as_py()
        if ahead is not None and latest > self._scope.now + ahead:
            times = times.filter(pc.less_equal(times, self._scope.now + ahead))
            latest = pc.max(times).as_py()
        if latest is not None:
            self._schedule.observe(entry.point.number, latest)

    def run(
        self,
        entered: pa.RecordBatch,
        entries: list[Entry],
        store: Store | None = None,
        group: int = -1,
        clock: Clock | None = None,
    ) -> Iterator[Row]:
        """Run the stage over records, in the order given; `entries` has one or one per record."""
        pages = None
        if store is not None:
            pages = Pages(store, self._settings.codec, self._settings.groups)
            self._scope.open(pages)
        clock = self._set_clock(clock, pages)
        counts = Counts()
        token = current_origin.set(self._origin)
        try:
            if pages is not None:
                yield from self._by_clock(pages, BEFORE, counts)
            if entered.num_rows and not counts.has_failed:
                yield from self._by_record(entered, entries, pages, counts)
            if pages is not None and not counts.has_failed:
                yield from self._by_clock(pages, BEHIND, counts)
        finally:
            current_origin.reset(token)
        if counts.has_failed:
            return
        timers, self._failed_timers = self._failed_timers, 0
        counts.add(timers, 0, 0, np.ones(timers, bool))
        if pages is not None:
            pages.flush(self._schedule.shows)
            due = self._schedule.next_due(pages)
            counts.keys = (self.stage.scope, group, pages.keys, pages.bytes, due)
        yield self._report_row(counts, clock)

    def drain(self) -> Iterator[Row]:
        """Yield what was kept back until the end of a task: records brought together."""
        for edge, combiner in self._combiners.items():
            try:
                batch = combiner.drain()
            except StepFailure as failure:
                entered, row = combiner.locate(failure.rows[0])
                self._locate(entered)
                self._origin.index = row
                entry = self.entries[self._origin.sources[row]]
                yield self._give_up(self._failure(failure, entered, entry), Counts())
                return
            if batch is not None:
                scope, groups = self.plan.stages[edge.target].scope, self._settings.groups
                yield from edge_rows(batch, scope, edge.number, 0, groups, self._clock)

    def _set_clock(self, clock: Clock | None, pages: Pages | None) -> Clock:
        if pages is not None and self._settings.keeps_clock:
            if clock is None and pages.clock:
                clock = Clock.decode(pages.clock)
            elif clock is not None:
                pages.clock = clock.encode()
        clock = clock or Clock()
        self._clock = clock.encode() if clock.seq else b""
        self._schedule.begin(clock)
        return clock

    def _by_record(
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None, counts: Counts
    ) -> Iterator[Row]:
        """Push every record through the stage."""
        self._locate(entered)
        if len(entries) == 1:
            if self._has_future(entered, entries[0]):
                entries = [self._guarded(entries[0])]
            self._tell_time(entered, entries[0])
        for window in self._windows:
            window.late_rows.clear()
        for combiner in self._combiners.values():
            combiner.begin(entered)
        seen, dead = np.zeros((2, entered.num_rows), bool)
        for failed in self._loop(entered, entries, pages):
            if isinstance(failed, Failure):
                yield self._give_up(failed, counts)
                return
            dead[failed] = True
            yield from self._flush(entered, seen, counts)
        late = np.zeros(entered.num_rows, bool)
        for window in self._windows:
            late[window.late_rows] = True
        late &= ~dead
        counts.add(entered.num_rows, int((seen & ~late & ~dead).sum()), int(late.sum()), dead)

    def _by_clock(self, pages: Pages, place: int, counts: Counts) -> Iterator[Row]:
        """Do what is due in the group: each thing like a record of its own."""
        visits = self._schedule.visits(pages, behind=place == BEHIND)
        keys: list[bytes | None] = []
        moments: list[int] = []
        entry = next(iter(self.entries.values()))
        self._locate_moments(place)
        for key_bytes, happening in visits:
            keys.append(key_bytes)
            moments.append(happening.at)
            self._origin.index, self._origin.path = len(keys) - 1, key_bytes or b""
            self._scope.timestamp = happening.at
            shown = None if key_bytes is None else entry.decode_key(key_bytes)
            batch = partial(moments_batch, keys, moments, place)
            verdict = self._attempt(partial(happening.run, shown), batch, entry)
            if isinstance(verdict, Failure):
                yield self._give_up(verdict, counts)
                return
            if verdict is not None:
                happening.drop()
                counts.add(1, 0, 0, np.array([bool(verdict)]))
            self._scope.keep()
        self._origin.path = None
        if keys:
            batch = moments_batch(keys, moments, place)
            yield from self._flush(batch, np.zeros(len(keys), bool), counts)
        self._schedule.settle(visits.looked_at)
        self._scope.keep()

    def _locate_moments(self, place: int) -> None:
        """Let the origin say that nothing of what comes is a record."""
        self._origin.sources = self._origin.partitions = self._origin.offsets = _Always(place)

    def _locate(self, entered: pa.RecordBatch) -> None:
        """Let the origin point into a batch."""
        self._origin.sources = entered.column("source").to_pylist()
        self._origin.partitions = entered.column("partition").to_pylist()
        self._origin.offsets = entered.column("offset").to_pylist()

    def _guarded(self, entry: Entry) -> Entry:
        """Return an entry that looks at each record's time before anything else does."""
        return replace(entry, push=self._clocked(entry.read, entry.push), is_guarded=True)

    def _give_up(self, failure: Failure, counts: Counts) -> Row:
        counts.has_failed = True
        self._reset()
        return Row("", -1, kind_of(FAILURE, 0), pickle.dumps(failure))

    def _loop(  # noqa: C901 - one loop on purpose: a call per record is what costs here
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None
    ) -> Iterator[list[int] | Failure]:
        """Push every record; yield the records put aside whenever output should leave."""
        origin, scope, undo = self._origin, self._scope, self._undo
        single, entry, places = len(entries) == 1, entries[0], scope.places
        decode, push = fast(entry.decode_value), entry.push
        paths = entered.column("path").to_pylist() if "path" in entered.schema.names else None
        marks: list[int] = []
        dead: list[int] = []
        fresh_bytes = 0
        origin.path = None
        if single and self._is_plain and pages is None and paths is None and not entry.is_guarded:
            yield from self._plain_loop(entered, entry)
            return
        for index, (raw, key_bytes, key, timestamp, headers) in enumerate(
            self._columns(entered, entries, pages)
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
                    scope.timestamp = timestamp
                try:
                    value = None if raw is None else decode(raw)
                    if key is not None:
                        key = entry.decode_key(key)
                except Exception as error:
                    raise entry.unreadable(raw, error) from error
                push(value, key, timestamp, headers)
            except StepFailure as failure:
                verdict = self._failed(failure, marks, entered, entry)
                while isinstance(verdict, StepFailure):  # a timer's: the record is still to come
                    verdict = self._push_again(verdict, marks, entered, entry, raw, timestamp)
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
                    dead, fresh_bytes = [], 0
        for failed in self._finish(entered, entry):
            if isinstance(failed, Failure):
                yield failed
                return
            dead += failed
        yield dead

    def _attempt(
        self, call: Callable[[], None], batch: Callable[[], pa.RecordBatch], entry: Entry
    ) -> list[int] | Failure | None:
        """Do something that is no record; return None, or what became of it when it failed.

        A timer that failed on the way is put aside by itself, and the rest is done once more.
        """
        place = (self._origin.index, self._origin.path, self._scope.timestamp)
        key = self._scope.place.key  # only stateful stages do anything but records
        while True:
            marks = [len(emitter) for emitter in self._emitters] if self._undo else []
            try:
                call()
                return None
            except StepFailure as failure:
                verdict = self._failed(failure, marks, batch(), entry)
            if not isinstance(verdict, StepFailure):
                return verdict  # type: ignore[no-any-return]
            verdict.happening.drop()  # of the key in view where it failed
            self._scope.keep()
            self._scope.bind(key)
            self._origin.index, self._origin.path, self._scope.timestamp = place

    def _plain_loop(self, entered: pa.RecordBatch, entry: Entry) -> Iterator[list[int] | Failure]:
        """The same where records have no state and only their values are looked at.

        With the combiner's short way a record of a running total took 2.3 us instead of 3.9.
        """
        origin, decode, push = self._origin, fast(entry.decode_value), entry.push
        timestamps = entered.column("timestamp").to_pylist()
        values = entered.column("value").to_pylist()
        for index, (raw, timestamp) in enumerate(zip(values, timestamps, strict=True)):
            origin.index = index
            try:
                value = None if raw is None else decode(raw)
            except Exception as error:
                failure = entry.unreadable(raw, error)
                yield self._failed(failure, [], entered, entry)
                return
            try:
                push(value, None, timestamp, None)
            except StepFailure as failure:
                verdict = self._failed(failure, [], entered, entry)
                yield verdict
                if isinstance(verdict, Failure):
                    return
        yield []

    def _finish(self, entered: pa.RecordBatch, entry: Entry) -> Iterator[list[int] | Failure]:
        """Let steps do what they do once a batch."""
        for finisher in self._finishers:
            for index, call in finisher.finish():
                self._origin.index = index
                verdict = self._attempt(call, lambda: entered, entry)
                if verdict is not None:
                    yield verdict
                self._scope.keep()

    def _columns(
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None
    ) -> Iterator[tuple[Any, ...]]:
        """Return (value bytes, key bytes, key to decode, timestamp, headers) of each record."""
        values = entered.column("value").to_pylist()
        keys: Any = repeat(None)
        if pages is not None or self._metadata:
            keys = entered.column("key").to_pylist()
        timestamps: Any = repeat(0)
        headers: Any = repeat(None)
        if self._needs_time or pages is not None or entries[0].is_guarded:
            timestamps = entered.column("timestamp").to_pylist()
        if self._metadata and "headers" in entered.schema.names:
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

    def _flush(self, entered: pa.RecordBatch, seen: np.ndarray, counts: Counts) -> Iterator[Row]:
        counts.outputs += self._leaves()
        groups = self._settings.groups
        for edge, emitter in self._edges.items():
            if len(emitter):
                seen[emitter.rows] = True
                batch, columns = emitter.take(entered)
                scope = self.plan.stages[edge.target].scope
                yield from edge_rows(batch, scope, edge.number, columns, groups, self._clock)
        for combiner in self._combiners.values():
            seen[combiner.taken()] = True
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
        for combiner in self._combiners.values():
            combiner.clear()
        self._dead = DeadLetters()

    def _report_row(self, counts: Counts, clock: Clock) -> Row:
        report = {
            "stage": self.stage.number,
            "in": counts.entered,
            "out": counts.out,
            "late": counts.late,
            "dead": counts.dead,
            "filtered": counts.entered - counts.out - counts.late - counts.dead,
            "outputs": counts.outputs,
            "keys": counts.keys,
            "times": self._schedule.take_seen(),
            "seq": clock.seq,
        }
        return Row("", -1, kind_of(REPORT, 0), marshal.dumps(report))

    # --- when a record fails ----------------------------------------------------------------

    def _failure(self, failure: StepFailure, entered: pa.RecordBatch, entry: Entry) -> Failure:
        context = self._origin.context()
        if failure.happening is not None:
            context = MessageContext("", NOWHERE, failure.happening.at)
        elif context.partition == NOWHERE:
            moment = entered.column("timestamp")[self._origin.index].as_py()
            context = MessageContext("", NOWHERE, moment)
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

    def _push_again(
        self,
        failure: StepFailure,
        marks: list[int],
        entered: pa.RecordBatch,
        entry: Entry,
        raw: bytes | None,
        timestamp: int,
    ) -> list[int] | Failure | StepFailure:
        """Push a record once more, when a timer that failed before it is out of the way."""
        failure.happening.drop()
        self._scope.keep()
        self._scope.timestamp = timestamp
        row = self._origin.index
        key = entered.column("key")[row].as_py()
        headers = None
        if "headers" in entered.schema.names:
            headers = decode_headers(entered.column("headers")[row].as_py())
        if "path" in entered.schema.names:
            self._origin.path = entered.column("path")[row].as_py()
        try:
            value = None if raw is None else entry.decode_value(raw)
            entry.push(value, None if key is None else entry.decode_key(key), timestamp, headers)
        except StepFailure as again:
            return self._failed(again, marks, entered, entry)  # type: ignore[no-any-return]
        return []

    def _failed(
        self, failure: StepFailure, marks: list[int], entered: pa.RecordBatch, entry: Entry
    ) -> Any:
        """Undo what a record did; return the records put aside, or what ends the run.

        A timer that failed before a record is put aside by itself; its failure is returned.
        """
        rows = list(failure.rows) or [self._origin.index]
        self._origin.index = rows[0]
        is_future = isinstance(failure.error, FutureTimestampError)
        self._take_back(rows[0], marks)
        if is_future:
            return self._put_aside(rows, failure, entered, entry)
        if not self._settings.undo:
            return self._failure(failure, entered, entry)
        callback = self._settings.on_processing_error
        if callback is not None:
            try:
                logger = logging.getLogger("millpond")
                if callback(failure.error, self._origin.context(), logger):
                    return failure if failure.happening else []
            except Exception as error:
                return self._failure(StepFailure(failure.step, error), entered, entry)
        if self._settings.on_error == "stop":
            return self._failure(failure, entered, entry)
        return self._put_aside(rows, failure, entered, entry)

    def _take_back(self, row: int, marks: list[int]) -> None:
        """Undo what a record has done in state and outputs."""
        if not self._undo:
            return
        self._scope.undo()
        self._origin.path = None
        for emitter, mark in zip(self._emitters, marks, strict=True):
            emitter.cut_to(mark)
        for finisher in self._finishers:
            finisher.forget(row)

    def _put_aside(
        self, rows: list[int], failure: StepFailure, entered: pa.RecordBatch, entry: Entry
    ) -> Any:
        for row in rows:
            self._origin.index = row
            facts = self._failure(failure, entered, entry)
            self._dead.add(row, entered, entry, facts, is_record=failure.happening is None)
        if failure.happening:
            self._failed_timers += 1
            return failure
        return rows


class _Always(list[int]):
    """A list that has one number everywhere."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, index: Any) -> Any:
        return self._number


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
