"""The local engine: a program in this process, with the same stage functions that Spark runs.

Takes a frame and records, or what the sources of the frame give; gives what comes out, batch by
batch. State is in a `MemoryStore` for each key group.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import repeat
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa

from millpond.arguments.callsite import here
from millpond.connectors.custom_source import CustomSource
from millpond.connectors.polled_source import PolledSource
from millpond.connectors.protocols import Sink
from millpond.connectors.sources import CRASH, END, ListSource, Mark
from millpond.connectors.topic import Topic
from millpond.driver.deliver import Delivery
from millpond.driver.gather import BatchReport, gather, log_late
from millpond.driver.held_back import log_held
from millpond.driver.timekeeper import Tick, Timekeeper, clockwork_of
from millpond.errors import ConfigError, SimulatedCrash, shown
from millpond.frame import StreamingDataFrame
from millpond.program.layouts import Layout
from millpond.program.plan import Plan, make_plan
from millpond.record import Record
from millpond.resource import Scope, within
from millpond.state.blobs import hash_key
from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.store import MemoryStore
from millpond.state.view import State
from millpond.storage.manifest import Manifest
from millpond.storage.succession import succeed
from millpond.testing.engine_input import Batch, EngineInput
from millpond.testing.function_copies import copied
from millpond.testing.topics import LocalWriter, WrittenTopics, topic_table
from millpond.wire.packed_rows import EDGE, Row, family_of, wake_row
from millpond.worker.changed_fields import plain_key
from millpond.worker.key_group import run_group
from millpond.worker.read_source import entered, run_source
from millpond.worker.settings import Settings
from millpond.worker.stage import StageRunner

__all__ = ["LocalEngine", "Run", "run_local", "test_record"]


_AS_THE_APP: Any = object()


class Run(list[Any]):
    """The values that came out, and what else a run did. Made by `run_local` and `LocalEngine.run`.

    >>> from millpond import Count
    >>> from millpond.testing import frame
    >>> run = run_local(frame().agg(n=Count()), [("ann", "/"), ("ann", "/tea")])
    >>> run
    [{'n': 1}, {'n': 2}]
    >>> run.reports[0].late
    0
    """

    def __init__(self, engine: LocalEngine) -> None:
        super().__init__(engine.values)
        self.engine = engine
        self.topics = engine.topics
        """Records of each topic that was written."""
        self.printed = engine.printed
        self.reports = engine.reports
        self.dead_letters = engine.topics[engine.dead_letter_topic]

    def state(self, key: Any, store: str = "default", scope: str | None = None) -> dict[Any, Any]:
        """Return what a store keeps for a key at the end.

        >>> from millpond.testing import frame
        >>> program = frame().apply(lambda value, state: state.set("last", value), stateful=True)
        >>> run_local(program, [("ann", 1), ("ann", 2)]).state("ann")
        {'last': 2}

        Args:
            key: The key.
            store: "default" for `apply`, `update` and `filter`; else the name of the step.
            scope: The key scope, if the program has several; `app.explain()` shows their names.
        """
        return self.engine.state(key, store, scope)


class LocalEngine:
    """Runs a program in this process. `run` may be called again: it continues.

    >>> from millpond import Count, Max
    >>> from millpond.testing import frame
    >>> before = LocalEngine(frame().agg(n=Count()))
    >>> before.feed([("ann", 3)])
    >>> before.run()
    [{'n': 1}]
    >>> changed = LocalEngine(frame().agg(n=Count(), most=Max()), after=before)
    >>> changed.feed([("ann", 2)])
    >>> changed.run()
    [{'n': 2, 'most': 2}]
    """

    def __init__(
        self,
        program: StreamingDataFrame,
        *,
        groups: int = 8,
        on_error: Literal["stop", "dead-letter"] | None = None,
        on_processing_error: Callable[..., bool] | None = _AS_THE_APP,
        codec: Codec | None = None,
        clock: Callable[[], int] | None = None,
        collect: bool = True,
        after: LocalEngine | None = None,
        on_state_change: Literal["refuse", "accept"] = "refuse",
        copy_functions: bool = True,
    ) -> None:
        """Make an engine; what is not said here is as the frame's application has it.

        Args:
            program: A frame.
            groups: Key groups.
            on_error: What becomes of a record that fails.
            on_processing_error: As of an application.
            codec: How values of state are written.
            clock: Gives the wall clock, in milliseconds.
            collect: Whether what reaches the end of the frame is kept; an `app.run()` that has no
                end keeps nothing.
            after: An engine with whose state and time this one goes on: the program before a
                change. It stays as it is.
            on_state_change: Whether state that `after` has kept may be left behind or dropped. If
                not, a change that `run` refuses on Spark is refused here.
            copy_functions: Whether functions run as copies, as they do in a worker. False: they run
                as they are, so that a test can look at variables that they change.
        """
        if not isinstance(program, StreamingDataFrame):
            msg = f"the local engine runs a frame, got {shown(program)} ({here()})."
            fix = "a window becomes one with .final() or .current()."
            if program is None:  # what sink() returns
                fix = "sink() returns None: give the frame on which it was called."
            raise ConfigError(f"{msg}\nFix: {fix}")
        self._graph = program._graph
        self.plan: Plan = make_plan(self._graph, collect=collect)
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._groups: int = groups if after is None else after._groups
        options = self._graph.options
        if on_processing_error is _AS_THE_APP:
            on_processing_error = options.on_processing_error
        self.stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
        self._before = Manifest(self._groups, 1)
        """What was said of the state until this program has done a batch."""
        if after is not None:
            self._before = after._said
            self.stores.update({place: store.copy() for place, store in after.stores.items()})
        self._known = succeed(self._before, self.plan, self.stores, on_state_change == "accept")
        self.layouts: dict[str, dict[str, list[Layout]]] = self._known.layouts
        """For each key scope and store the layouts that its states may have."""
        self._settings = Settings(
            self._groups,
            codec or options.codec,
            on_error or options.on_error,
            on_processing_error,
            layouts=self.layouts,
            reached={} if after is None else after._last.get("reached", {}),
        )
        self._copies = copy_functions
        self._sent, self._worker_settings = self.plan, self._settings
        """What runs: copies of the plan and the settings, as a worker has them in one run."""
        self.printed: list[Any] = []
        self.reports: list[BatchReport] = []
        self.dead_letter_topic: str = "local.dead-letters"
        self.topics: dict[str, list[Record]] = WrittenTopics(self.plan, self.dead_letter_topic)
        sinks: list[Sink] = list(self._graph.sinks)
        self._delivery = Delivery(
            self.plan,
            sinks,
            LocalWriter(self.topics),
            self.dead_letter_topic,
            lambda values, pretty, more: self.printed.extend(values),
            stream=f"local/{uuid4().hex}",  # every engine counts its own batches
        )
        self._batch_id = 0
        self._keeper = Timekeeper(clockwork_of(self.plan, self._groups))
        self._last: dict[str, Any] = {}
        self._tick: Tick | None = None
        self._begun: tuple[Batch, Mark | None] | None = None
        """The batch that was begun and has failed: it is replayed as it was."""
        self._is_ending = False
        """Whether an END mark was reached, and what is due by then is still to be done."""
        self._input: EngineInput = EngineInput(
            self.plan.topics, self.plan.waits, None if after is None else after._input
        )
        if after is not None:
            self._go_on(after)

    def _go_on(self, after: LocalEngine) -> None:
        """Take over the time of another engine."""
        self._last = dict(after._last)
        known = after._keeper
        content = {"seq": known.seq, "seen": known.seen, "arrived": known.arrived}
        self._keeper.load({**content, "due": {}, "is_sure": False}, known.seq)

    @property
    def _said(self) -> Manifest:
        """What is said of the state: a program that never did a batch has said nothing."""
        return self._known if self.reports else self._before

    @property
    def values(self) -> list[Any]:
        """The values that have come out so far."""
        return self._delivery.collected

    def feed(
        self, records: Iterable[Any] | dict[str, Iterable[Any]], source: str | None = None
    ) -> None:
        """Add records to the input of a source.

        >>> from millpond.testing import frame
        >>> engine = LocalEngine(frame().apply(lambda value: value * 2))
        >>> engine.feed([1, 2])
        >>> engine.run()
        [2, 4]

        Args:
            records: Values, or `(key, value[, timestamp[, headers]])`; where the program reads
                several sources, a dict of them by source.
            source: The source of all of them. Default: the only one.
        """
        self._input.feed(records, source)

    def read_sources(self) -> None:
        """Add to the input what the program's own sources have now; again: what is new.

        A `PollSource` is polled until it gives nothing.
        """
        self._input.read(self._graph.sources)

    def run(self, batches: int | Sequence[int] | None = None) -> Run:
        """Process what is there, up to an END mark. The result has all values so far.

        >>> from millpond.testing import frame
        >>> engine = LocalEngine(frame().apply(lambda value: value * 2))
        >>> engine.feed([1])
        >>> engine.run()
        [2]
        >>> engine.feed([2])
        >>> engine.run()
        [2, 4]

        Args:
            batches: The size of all batches, or a list of the sizes of the first ones. Default:
                one batch.

        Raises:
            SimulatedCrash: at a CRASH mark; nothing of that batch was committed. Run again.
        """
        with ExitStack() as stack:
            if self._copies:
                copies = copied(self.plan, self._settings, self._graph.warned)
                self._sent, self._worker_settings = stack.enter_context(copies)
            scope = Scope()
            stack.callback(scope.close)
            stack.enter_context(within(scope))
            return self._run(batches)

    def _run(self, batches: int | Sequence[int] | None) -> Run:
        sizes = repeat(batches) if isinstance(batches, int) else iter(batches or [])
        while not self._is_ending:
            size: int | None = 0
            if self._begun is None:
                size = next(sizes, None)
                batch, mark = self._input.next_batch(10**9 if size is None else size)
                if mark is CRASH:
                    self._input.take_mark(batch)
            else:
                batch, mark = self._begun
            is_due = self._is_due(batch, must=mark is CRASH)
            if is_due:
                self._begun = (batch, mark if mark is END else None)
                self._process(batch, crash=mark is CRASH)
                self._begun = None
            if mark is END:
                self._input.take_mark({})
                self._is_ending = True
            elif not is_due and mark is None and (size is None or isinstance(batches, int)):
                break
        while self._is_ending and self._is_due({}, must=False):
            self._process({}, crash=False)
        self._is_ending = False
        log_held(self._keeper.held_back(self._clock()))
        return Run(self)

    def drop_failed(self) -> None:
        """Forget the records of a batch that has failed."""
        if self._begun is not None:
            self._input.drop(self._begun[0])
            self._begun = self._tick = None

    def _is_due(self, batch: Batch, *, must: bool) -> bool:
        """Decide the time of the next batch; a batch that comes again has the time it had."""
        if self._tick is None:
            waiting = [name for name, items in batch.items() if items]
            self._tick = self._keeper.next(self._last, self._clock(), waiting or ["-"] * must)
        return self._tick is not None

    def state(self, key: Any, store: str = "default", scope: str | None = None) -> dict[Any, Any]:
        """Return what a store keeps for a key; see `Run.state`."""
        stages = [s for s in self.plan.stages if s.stores and (scope is None or s.scope == scope)]
        if len(stages) != 1:
            known = [s.scope for s in self.plan.stages if s.stores]
            msg = f"the program keeps state under {known}.\nFix: name one with scope=."
            raise ConfigError(msg)
        codec = self._settings.codec
        raw = next((e.raw_key_of for e in self.plan.edges if e.target == stages[0].number), None)
        is_typed = raw is None or self.plan.reads[raw].source.kind == "list"
        key_bytes = None if key is None else codec.encode(key) if is_typed else plain_key(key)
        if store not in stages[0].stores:
            msg = f"{stages[0].scope!r} has the stores {sorted(stages[0].stores)}, not {store!r}."
            raise ConfigError(msg + "\nFix: name one of these with store=.")
        view = KeyContext(codec, undo=False)
        group = hash_key(key_bytes) % self._groups
        blobs = self.stores.get((stages[0].scope, group), MemoryStore())
        view.open(Pages(blobs, codec, self._groups))
        view.bind(key_bytes)
        state = State(view, store)
        return {name: state.get(name) for name in state.keys()}  # noqa: SIM118 - not a dict

    # --- one batch --------------------------------------------------------------------------

    def _process(self, batch: Batch, *, crash: bool) -> None:
        before = {place: store.copy() for place, store in self.stores.items()}
        tick = self._tick
        assert tick is not None
        now = tick.clock.now
        try:
            rows = list(self._stage_zero(batch, tick))
            for layer in range(1, self.plan.layers + 1):
                rows = list(self._layer(layer, rows))
            gathered = gather(rows, self._batch_id)
            if crash:
                msg = f"a CRASH mark was reached in batch {self._batch_id}."
                raise SimulatedCrash(msg)
            reads = [self._input.ends(batch), now]
            self._delivery.deliver(gathered, gathered.report.batch_id, reads, now)
        except BaseException:
            self.stores = defaultdict(MemoryStore, before)
            raise  # positions have not moved: the batch comes again, whole
        self._input.commit(batch)
        log_late(gathered.report, self.plan)
        marks = self._keeper.to_offset(tick)["marks"]
        self._keeper.observe(gathered.report, tick.clock.now, marks)
        self._last, self._tick = self._keeper.to_offset(tick), None
        self.reports.append(gathered.report)
        self._batch_id += 1

    def _stage_zero(self, batch: Batch, tick: Tick) -> Iterator[Row]:
        for scope, groups in tick.groups.items():
            yield from (wake_row(scope, group, tick.clock.encode()) for group in groups)
        runner = StageRunner(self._sent, self._sent.stages[0], self._worker_settings)
        for number, name in enumerate(self.plan.topics):
            if batch.get(name):
                table = self._table(name, batch[name])
                for part in table.combine_chunks().to_batches():
                    records = entered(part, number, 0, self._input.offsets[name])
                    yield from run_source(runner, number, records, tick.clock)
        yield from runner.drain()

    def _table(self, name: str, items: list[Any]) -> pa.Table:
        settings = self._graph.sources[name]
        if isinstance(settings, Topic):
            return topic_table(settings, items, self._clock())
        if isinstance(settings, ListSource | CustomSource | PolledSource):
            return settings.table(items, self._clock())
        msg = (
            f"the local engine cannot read {shown(settings)}.\n"
            "Fix: test with a topic or a ListSource instead."
        )
        raise ConfigError(msg)

    def _layer(self, layer: int, rows: list[Row]) -> Iterator[Row]:
        scopes = {stage.scope: stage for stage in self._sent.stages if stage.layer == layer}
        groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in rows:
            if row.scope in scopes and family_of(row.kind)[0] == EDGE:
                groups[row.scope, row.grp].append(row)
            else:
                yield row
        for (scope, group), members in sorted(groups.items()):
            runner = StageRunner(self._sent, scopes[scope], self._worker_settings)
            yield from run_group(runner, members, self.stores[scope, group], group)


def run_local(
    program: StreamingDataFrame,
    records: Iterable[Any] | dict[str, Iterable[Any]] | None = None,
    *,
    batches: int | Sequence[int] | None = None,
    **options: Any,
) -> Run:
    """Run a program over records and return the values that came out, in input order.

    A CRASH mark throws the batch that reaches it away and the run starts again from what was
    committed; an END mark ends the run.

    >>> from millpond.testing import frame
    >>> double = frame().apply(lambda value: value * 2)
    >>> run_local(double, [1, 2, 3], batches=2)
    [2, 4, 6]

    Args:
        program: A frame; the whole graph it belongs to runs.
        records: Values, or `(key, value[, timestamp[, headers]])`; a dict of them by source name
            where there are several. Default: what the frame's own sources have, where each is a
            `ListSource`, a `Source` or a `PollSource`.
        batches: How to cut the input: a size, or a list of sizes; the rest is one batch.
        **options: `groups`, `on_error`, `on_processing_error`, `codec`, `clock`,
            `copy_functions` of the engine; where not given, errors and types are handled as the
            application says.
    """
    engine = LocalEngine(program, **options)
    if records is not None:
        engine.feed(records)
    else:
        engine.read_sources()
    while True:
        try:
            return engine.run(batches)
        except SimulatedCrash:
            continue


def test_record(
    program: StreamingDataFrame, record: tuple[Any, ...], source: str | None
) -> list[tuple[Any, ...]]:
    """Return what one record gives: the work of `StreamingDataFrame.test`."""
    graph = program._graph
    known, engine = graph.tested or (0, None)
    if engine is None or known != len(graph.steps):
        engine = LocalEngine(program)
        engine._delivery.whole = True
        graph.tested = len(graph.steps), engine
    before = len(engine.values)
    engine.feed([record], source)
    try:
        engine.run()
    except BaseException:
        engine.drop_failed()  # or the next call would fail on it
        raise
    return [(r.value, r.key, r.timestamp, r.headers) for r in engine.values[before:]]


test_record.__test__ = False  # type: ignore[attr-defined]  # its name is no test of pytest
