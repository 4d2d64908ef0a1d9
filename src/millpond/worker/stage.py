"""One stage over one batch: the loop that everything else serves.

Takes records as Arrow columns (and, where the stage is stateful, the pages of a key group),
gives packed rows: records for other stages, records for the outside, a report, or the failure
that ends the run.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millpond.connectors.serde import fast
from millpond.errors import Failure
from millpond.program.layouts import Layout
from millpond.program.plan import Edge, Output, Plan, Stage
from millpond.program.routes import ends_of, goes_on, routes_of
from millpond.program.steps import Step
from millpond.record import Origin, current_origin
from millpond.state.codec import Codec
from millpond.state.layout import Pages
from millpond.state.store import Store
from millpond.state.view import KeyScope
from millpond.wire.clock import Clock
from millpond.wire.headers import decode_headers
from millpond.wire.packed_rows import (
    BEFORE,
    BEHIND,
    EDGE,
    FAILURE,
    OUTPUT,
    REPORT,
    Row,
    by_group,
    kind_of,
    moments_batch,
)
from millpond.wire.payloads import Payloads
from millpond.wire.place import Place
from millpond.worker.changed_fields import edge_changes, output_changes
from millpond.worker.combine import Combiner
from millpond.worker.compose import Composer
from millpond.worker.current_step import failure_of
from millpond.worker.emit import Emitter, Push, StepFailure
from millpond.worker.entry import Entry, latest_of, make_entries
from millpond.worker.error_policy import Failures, Fatal
from millpond.worker.schedule import Schedule

__all__ = ["Settings", "StageRunner"]

# Emitted bytes after which a stage hands on what it has, so that memory stays bounded (bytes).
_CHUNK_BYTES = 8 * 1024 * 1024

# Records after which emitted bytes are counted.
_STRETCH = 256

OnError = Literal["stop", "dead-letter"]


@dataclass(frozen=True)
class Settings:
    """What a stage must know of the application."""

    groups: int
    codec: Codec = field(default_factory=Codec)
    on_error: OnError = "stop"
    on_processing_error: Callable[..., bool] | None = None
    payloads: Path | None = None
    """Where records may be left for the next stage; see `payloads`."""
    layouts: dict[str, dict[str, list[Layout]]] = field(default_factory=dict)
    """For each key scope and store the layouts that its states may have, the present one last."""
    loglevel: str | int | None = None
    """From which level on what functions log is shown; None: their logging is left alone."""
    places: Path | None = None
    """Where workers on this machine say what they are at; see `place`."""

    @property
    def goes_on(self) -> str:
        """The setting that lets a run go on after a record that failed; see `routes`."""
        return goes_on(self.on_error, self.on_processing_error)


@dataclass
class Counts:
    """What became of the records that entered a stage."""

    entered: int = 0
    out: int = 0
    late: int = 0
    dead: int = 0
    outputs: int = 0
    keys: Any = None

    def add(self, entered: int, out: int = 0, late: int = 0, dead: int = 0) -> None:
        self.entered += entered
        self.out += out
        self.late += late
        self.dead += dead


class StageRunner:
    """A stage at work. Built once per task, run for each batch or key group."""

    def __init__(
        self, plan: Plan, stage: Stage, settings: Settings, place: Place | None = None
    ) -> None:
        self._place = place or Place()
        self.plan = plan
        self.stage = stage
        self._settings = settings
        self._payloads = Payloads(settings.payloads)
        self._origin = Origin(plan.topics)
        self._points = {point.step: point for point in plan.points}
        self._routes = routes_of(plan, stage, settings.goes_on)
        self._undo = bool(self._routes.undo)
        self._scope = KeyScope(settings.codec, undo=self._undo)
        self._schedule = Schedule(plan, stage, self._scope)
        leaving = self._routes.leaving
        self._edges = {
            edge: Emitter(self._origin, edge_changes(plan, stage, edge, settings.codec), edge.after)
            for edge in leaving
            if edge.combines is None
        }
        self._combiners = {edge: self._combiner(edge) for edge in leaving if edge.combines}
        self._outputs = {
            output: Emitter(self._origin, output_changes(plan, stage, output), output.step)
            for output in plan.outputs
            if output.step is not None and output.step in stage.steps
        }
        self._emitters = [*self._edges.values(), *self._outputs.values()]
        self._metadata = bool(self._routes.metadata)
        self._needs_time = self._metadata or bool(self._combiners)
        self._is_plain = not self._metadata and not self._undo
        composer = Composer(
            lambda step: plan.children_in(step, stage),
            self._leaving,
            {o.step: e for o, e in self._outputs.items() if o.step and o.kind in _IN_PLACE},
            self._origin,
            self._scope,
            self._schedule,
            self._points,
            self._weigh,
            plan.lifts.get(stage.scope, {}),
            settings.layouts.get(stage.scope, {}),
            self._stepping,
        )
        self.entries = make_entries(plan, stage, composer, settings.codec)
        self._clocked = composer.clocked
        self._windows = composer.windows
        self._finishers = composer.finishers
        self._failures = Failures(
            self._origin,
            self._scope,
            self._emitters,
            self._finishers,
            undo=self._undo,
            on_error=settings.on_error,
            on_processing_error=settings.on_processing_error,
            # Here, and not in a worker, it may be a person's Ctrl-C.
            more=() if place is None else (KeyboardInterrupt,),
        )

    def _stepping(self, step: Step, push: Push) -> Push:
        if not self._place.is_exact:
            return push
        return self._place.stepping(list(self.plan.children).index(step), push)

    def _combiner(self, edge: Edge) -> Combiner:
        step = edge.combines
        assert step is not None
        changes = edge_changes(self.plan, self.stage, edge, self._settings.codec)
        clock = self._schedule.clock_of(step)
        scope = self.plan.stages[edge.target].scope
        layouts = self._settings.layouts.get(scope, {}).get(step.store)
        order = list(step.aggregations) if layouts is None else list(layouts[-1])
        return Combiner(step, self._origin, clock, changes.key, order, keeps_path=changes.path)

    def _leaving(self, step: Step) -> list[Emitter | Combiner]:
        ways: dict[Edge | Output, Emitter | Combiner] = {
            **dict[Edge | Output, Emitter | Combiner](self._edges.items()),
            **dict[Edge | Output, Emitter | Combiner](self._combiners.items()),
            **dict[Edge | Output, Emitter | Combiner](self._outputs.items()),
        }
        return [ways[end] for end in ends_of(self.plan, self.stage, self._routes.leaving, step)]

    # --- running ----------------------------------------------------------------------------

    def passes_untouched(self, number: int) -> Edge | None:
        """Return the edge to which a source's records go as they are, if that is all there is."""
        route = self._routes.entries[number]
        return route.edge if route.kind == "forward" else None

    def forward(
        self, entered: pa.RecordBatch, number: int, edge: Edge, columns: int, clock: Clock
    ) -> Iterator[Row]:
        """Hand untouched records on, without looking at any of them."""
        self._schedule.begin(clock)
        entry = self.entries[number]
        latest, is_strange = latest_of(entry, entered.column("timestamp"), clock.now)
        if is_strange:
            yield from self.run(entered, [entry], clock=clock)
            return
        self._observe(entry, latest)
        told = clock.encode() if clock.seq else b""
        yield from self._edge_rows(entered, edge, columns, told)
        yield self._report_row(Counts(entered.num_rows, entered.num_rows), clock)

    def _observe(self, entry: Entry, latest: int | None) -> None:
        if entry.point is not None and latest is not None:
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
        self._place.enter(self.stage.number, group, entered)
        token = current_origin.set(self._origin)
        try:
            if pages is not None:
                pages.expect(entered.column("key").unique().to_pylist())
            if pages is not None and pages.timer_indexes:
                yield from self._by_clock(pages, BEFORE, counts)
            if entered.num_rows:
                yield from self._by_record(entered, entries, pages, counts)
            if pages is not None and pages.timer_indexes:
                yield from self._by_clock(pages, BEHIND, counts)
        except Fatal as fatal:
            yield self._give_up(fatal.failure)
            return
        finally:
            current_origin.reset(token)
            self._place.leave()
        timers = self._failures.take_timers()
        counts.add(timers, dead=timers)
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
                self._locate(entered, [self.entries[entered.column("source")[row].as_py()]])
                self._origin.index = row
                yield self._give_up(self._failures.describe(failure))
                return
            if batch is not None:
                yield from self._edge_rows(batch, edge, combiner.columns, self._clock)

    @property
    def index(self) -> int:
        """Which record of those in hand is being run; another thread may ask."""
        return self._origin.index

    def whereabouts(self, step: Step) -> Failure:
        """Return what is told of the record in hand; another thread may ask."""
        # A copy of the origin: what is asked of it is kept in it.
        return self._failures.describe(StepFailure(step, TimeoutError()), copy(self._origin))

    def _set_clock(self, clock: Clock | None, pages: Pages | None) -> Clock:
        if pages is not None and self.plan.keeps_clock:
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
        if len(entries) == 1:
            entry, times = entries[0], entered.column("timestamp")
            latest, is_strange = latest_of(entry, times, self._scope.now)
            if is_strange:
                push = self._clocked(entry.read, entry.push)
                entries = [replace(entry, push=push, is_guarded=True)]
            self._observe(entry, latest)
        for window in self._windows:
            window.late_rows.clear()
        for combiner in self._combiners.values():
            combiner.begin(entered)
        self._locate(entered, entries)
        seen, late, dead = np.zeros((3, entered.num_rows), bool)
        for _ in self._loop(entered, entries, pages):
            yield from self._flush(entered, seen, counts)
        for window in self._windows:
            late[window.late_rows] = True
        dead[list(self._failures.rows)] = True
        late &= ~dead
        seen &= ~late & ~dead
        counts.add(entered.num_rows, int(seen.sum()), int(late.sum()), int(dead.sum()))

    def _by_clock(self, pages: Pages, place: int, counts: Counts) -> Iterator[Row]:
        """Do what is due in the group: each thing like a record of its own."""
        visits = self._schedule.visits(pages, behind=place == BEHIND)
        keys: list[bytes | None] = []
        moments: list[int] = []
        entry = next(iter(self.entries.values()))
        self._locate_moments(keys, moments, place, entry)
        failed = 0
        for key_bytes, firing in visits:
            keys.append(key_bytes)
            moments.append(firing.at)
            self._origin.index, self._origin.path = len(keys) - 1, key_bytes or b""
            self._scope.timestamp = firing.at
            self._place.due(key_bytes, firing.at)
            shown = None if key_bytes is None else entry.decode_key(key_bytes)
            if not self._failures.attempt(partial(firing.run, shown)):
                firing.drop()
                failed += 1
            self._scope.keep()
        self._origin.path = None
        counts.add(failed, dead=len(self._failures.rows))
        if keys:
            batch = moments_batch(keys, moments, place)
            yield from self._flush(batch, np.zeros(len(keys), bool), counts)
        self._schedule.settle(visits.looked_at)
        self._scope.keep()

    def _locate_moments(
        self, keys: list[bytes | None], moments: list[int], place: int, entry: Entry
    ) -> None:
        """Let the origin say that nothing of what comes is a record; failures are told alike."""
        self._failures.begin(lambda row: moments_batch([keys[row]], [moments[row]], place), [entry])
        self._origin.leave()

    def _locate(self, entered: pa.RecordBatch, entries: list[Entry]) -> None:
        """Let the origin point into a batch, and have failures told of its records."""
        self._failures.begin(lambda row: entered.slice(row, 1), entries)
        place = (entered.column(name) for name in ("source", "partition", "offset"))
        # Of records that were brought together, only the places are kept.
        has_values = "value" in entered.schema.names
        self._origin.enter(*place, entered.column("value") if has_values else None)

    def _give_up(self, failure: Failure) -> Row:
        self._reset()
        return Row("", -1, kind_of(FAILURE, 0), pickle.dumps(failure))

    def _loop(  # noqa: C901 - one loop on purpose: a call per record is what costs here
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None
    ) -> Iterator[None]:
        """Push every record; yield whenever output should leave."""
        origin, scope, undo, failures = self._origin, self._scope, self._undo, self._failures
        single, entry, places = len(entries) == 1, entries[0], scope.places
        decode, push = fast(entry.decode_value), entry.push
        paths = entered.column("path").to_pylist() if "path" in entered.schema.names else None
        marks: list[int] = []
        fresh_bytes = 0
        origin.path = None
        if single and self._is_plain and paths is None and not entry.is_guarded:
            yield from self._quick_loop(entered, entry, pages)
            return
        key, headers, metadata = None, None, self._metadata
        columns = self._place.each(self._columns(entered, entries, pages))
        for index, (raw, raw_key, timestamp, raw_headers) in enumerate(columns):
            if not single:
                entry = entries[index]
                decode, push = fast(entry.decode_value), entry.push
            origin.index = index
            if undo:
                marks = [len(emitter) for emitter in self._emitters]
            while True:  # once, and again after each timer that failed before the record
                if paths:
                    origin.path = paths[index]
                if pages is not None:
                    scope.place = places.get(raw_key) or scope.find(raw_key)
                    scope.timestamp = timestamp
                try:
                    try:
                        value = None if raw is None else decode(raw)
                        if metadata:
                            key = None if raw_key is None else entry.decode_key(raw_key)
                            headers = None if raw_headers is None else decode_headers(raw_headers)
                    except Exception as error:
                        raise entry.unreadable(raw, error) from error
                    push(value, key, timestamp, headers)
                    break
                except failures.caught as error:
                    if not failures.settle(failure_of(error, entry.read), marks):
                        break
            if undo:
                scope.keep()
            if not index % _STRETCH and index:
                self._place.reach(index)
                fresh_bytes += self._recent_bytes()
                if fresh_bytes > _CHUNK_BYTES:
                    yield
                    fresh_bytes = 0
        self._finish(paths)
        yield

    def _quick_loop(
        self, entered: pa.RecordBatch, entry: Entry, pages: Pages | None
    ) -> Iterator[None]:
        """The same where only a record's value and the state of its key are looked at.

        Nothing is undone here and nothing tried again: what fails ends the run. A record
        of a running count took 1.7 us instead of 1.8.
        """
        origin, scope, places = self._origin, self._scope, self._scope.places
        decode, push, keyed = fast(entry.decode_value), entry.push, pages is not None
        values = entered.column("value").to_pylist()
        if pages is None and self._take_all(entered, entry, values):
            yield
            return
        keys = entered.column("key").to_pylist() if keyed else repeat(None)
        timestamps = entered.column("timestamp").to_pylist()
        numbered = zip(range(len(values)), values, keys, timestamps, strict=False)
        records = iter(self._place.each(numbered))
        fresh_bytes = 0
        for done in range(0, len(values), _STRETCH):
            self._place.reach(done)
            for index, raw, raw_key, timestamp in islice(records, _STRETCH):
                origin.index = index
                if keyed:
                    scope.place = places.get(raw_key) or scope.find(raw_key)
                    scope.timestamp = timestamp
                try:
                    try:
                        value = None if raw is None else decode(raw)
                    except Exception as error:
                        raise entry.unreadable(raw, error) from error
                    push(value, None, timestamp, None)
                except self._failures.caught as error:
                    self._failures.settle(failure_of(error, entry.read), [])
            fresh_bytes += self._recent_bytes()
            if fresh_bytes > _CHUNK_BYTES:
                yield
                fresh_bytes = 0
        self._finish(None)
        yield

    def _take_all(self, entered: pa.RecordBatch, entry: Entry, values: list[Any]) -> bool:
        """Let a combiner take the records at once, where only their key is taken on the way.

        A record of a running total took 0.9 us in this way instead of 2.3.
        """
        route = next(self._routes.entries[n] for n, e in self.entries.items() if e is entry)
        if route.kind != "columnar" or route.edge is None or None in values:
            return False
        times = entered.column("timestamp").to_numpy()
        decode = fast(entry.decode_value)
        return self._combiners[route.edge].take_all(values, times, decode, route.key)

    def _finish(self, paths: list[bytes | None] | None) -> None:
        """Let steps do what they do once a batch, each thing in the name of a record."""
        for finisher in self._finishers:
            for index, call in finisher.finish():
                self._origin.index, self._origin.path = index, paths[index] if paths else None
                self._failures.attempt(call)
                self._scope.keep()

    def _columns(
        self, entered: pa.RecordBatch, entries: list[Entry], pages: Pages | None
    ) -> Iterator[tuple[Any, ...]]:
        """Return value, key, timestamp and headers of each record, undecoded."""
        values = entered.column("value").to_pylist()
        keys: Any = repeat(None)
        if pages is not None or self._metadata:
            keys = entered.column("key").to_pylist()
        timestamps: Any = repeat(0)
        headers: Any = repeat(None)
        if self._needs_time or pages is not None or entries[0].is_guarded:
            timestamps = entered.column("timestamp").to_pylist()
        if self._metadata and "headers" in entered.schema.names:
            headers = entered.column("headers").to_pylist()
        return zip(values, keys, timestamps, headers, strict=False)

    # --- what leaves ------------------------------------------------------------------------

    def _recent_bytes(self) -> int:
        letters = self._failures.letters
        return letters.recent_bytes() + sum(e.recent_bytes() for e in self._emitters)

    def _weigh(self) -> int:
        """Return the bytes that the record in hand has led to so far."""
        carried = self._failures.sizes()
        return sum(emitter.weight(carried) for emitter in self._emitters)

    def _leaves(self) -> int:
        return sum(len(emitter) for output, emitter in self._outputs.items() if output.is_leaf)

    def _flush(self, entered: pa.RecordBatch, seen: np.ndarray, counts: Counts) -> Iterator[Row]:
        counts.outputs += self._leaves()
        for edge, emitter in self._edges.items():
            if len(emitter):
                seen[emitter.rows] = True
                for batch, columns in emitter.take(entered):
                    yield from self._edge_rows(batch, edge, columns, self._clock)
        for combiner in self._combiners.values():
            seen[combiner.taken()] = True
        for output, emitter in self._outputs.items():
            if len(emitter):
                seen[emitter.rows] = True
                if output.kind == "count":
                    emitter.cut_to(0)
                    continue
                for batch, columns in emitter.take(entered):
                    kind = kind_of(OUTPUT, output.number, columns)
                    yield Row("", -1, kind, self._payloads.write(batch))
        if len(self._failures.letters):
            batch, columns = self._failures.letters.take(entered)
            yield Row("", -1, kind_of(OUTPUT, 0, columns), self._payloads.write(batch))

    def _edge_rows(
        self, batch: pa.RecordBatch, edge: Edge, columns: int, clock: bytes
    ) -> Iterator[Row]:
        """Yield the packed rows that take records to another stage."""
        kind, scope = kind_of(EDGE, edge.number, columns), self.plan.stages[edge.target].scope
        for group, part in by_group(batch, self._settings.groups):
            yield Row(scope, group, kind, self._payloads.write(part), clock)

    def close(self) -> None:
        """Let go of files; to be called at the end of a task."""
        self._payloads.close()

    def _reset(self) -> None:
        for emitter in self._emitters:
            emitter.cut_to(0)
        for combiner in self._combiners.values():
            combiner.clear()
        self._failures.clear()

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


_IN_PLACE = ("write", "print", "sink")
