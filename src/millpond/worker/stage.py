"""One stage at work: its parts are made in a straight line, then each batch takes its route.

Takes records as Arrow columns (and, where the stage is stateful, the store of a key group),
gives packed rows: records for other stages, records for the outside, a report, or the failure
that ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy

import pyarrow as pa

from millpond.errors import Failure
from millpond.program.plan import Plan, Stage
from millpond.program.routes import routes_of
from millpond.program.steps import Step
from millpond.state.cursor import Cursor
from millpond.state.key_context import KeyContext
from millpond.state.store import Store
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import Row
from millpond.wire.place import Place
from millpond.worker.compose import Composer, Finisher
from millpond.worker.emit import Push, StepFailure
from millpond.worker.entry import Entry, make_entries
from millpond.worker.error_policy import Failures
from millpond.worker.exits import Exits
from millpond.worker.parts import Parts
from millpond.worker.per_group import PerGroup
from millpond.worker.routes import route_of_source
from millpond.worker.schedule import Schedule
from millpond.worker.settings import Settings

__all__ = ["StageRunner"]


class StageRunner:
    """A stage at work. Built once per task, run for each batch or key group."""

    def __init__(
        self, plan: Plan, stage: Stage, settings: Settings, place: Place | None = None
    ) -> None:
        routes = routes_of(plan, stage, settings.goes_on)
        undo = bool(routes.undo)
        cursor = Cursor(plan.topics)
        context = KeyContext(settings.codec, undo=undo, cursor=cursor)
        schedule = Schedule(plan, stage, context, settings.reached)
        exits = Exits(plan, stage, routes, settings, cursor, schedule)
        finishers: list[Finisher] = []
        self._failures = failures = Failures(
            context,
            exits.emitters,
            finishers,
            exits.letters,
            undo=undo,
            on_error=settings.on_error,
            on_processing_error=settings.on_processing_error,
            # Here, and not in a worker, it may be a person's Ctrl-C.
            more=() if place is None else (KeyboardInterrupt,),
        )
        composer = Composer(
            lambda step: plan.children_in(step, stage),
            exits.after,
            exits.writers(),
            context,
            schedule,
            {point.step: point for point in plan.points},
            lambda: exits.weight(failures.sizes()),
            plan.lifts.get(stage.scope, {}),
            settings.layouts.get(stage.scope, {}),
            _stepping(plan, place),
            finishers,
        )
        self.entries = make_entries(plan, stage, composer, settings.codec)
        self._parts = parts = Parts(
            plan,
            stage,
            place or Place(),
            cursor,
            context,
            schedule,
            exits,
            failures,
            composer.windows,
            finishers,
            metadata=bool(routes.metadata),
            undo=undo,
        )
        if stage.number:
            self._group = PerGroup(parts, next(iter(self.entries.values())), settings)
        else:
            self._sources = {
                number: route_of_source(parts, entry, routes.entries[number])
                for number, entry in self.entries.items()
            }

    def run(self, number: int, records: pa.RecordBatch, clock: Clock) -> Iterator[Row]:
        """Run stage 0 over records of a source."""
        yield from self._sources[number].run(records, clock)

    def run_group(
        self,
        records: pa.RecordBatch,
        entries: Sequence[Entry],
        store: Store,
        group: int,
        clock: Clock | None,
    ) -> Iterator[Row]:
        """Run a stateful stage over records of a key group; see `PerGroup`."""
        yield from self._group.run(records, entries, store, group, clock)

    def drain(self) -> Iterator[Row]:
        """Yield what was kept back until the end of a task: records brought together."""
        parts = self._parts
        for edge, combiner in parts.exits.combiners.items():
            try:
                batch = combiner.drain()
            except StepFailure as failure:
                entered, row = combiner.locate(failure.rows[0])
                parts.locate(entered, [self.entries[entered.column("source")[row].as_py()]])
                parts.cursor.at(row)
                yield parts.give_up(self._failures.describe(failure))
                return
            if batch is not None:
                yield from parts.exits.move(batch, edge, combiner.columns)

    @property
    def index(self) -> int:
        """Which record of those in hand is being run; another thread may ask."""
        return self._parts.cursor.index

    def whereabouts(self, step: Step) -> Failure:
        """Return what is reported of the record in hand; another thread may ask."""
        # A copy of the cursor: what is asked of it is kept in it.
        return self._failures.describe(StepFailure(step, TimeoutError()), copy(self._parts.cursor))

    def close(self) -> None:
        """Let go of files; to be called at the end of a task."""
        self._parts.exits.close()


def _stepping(plan: Plan, place: Place | None) -> Callable[[Step, Push], Push]:
    """Return what notes each step while it runs, where that is wanted."""
    if place is None or not place.is_exact:
        return lambda step, push: push
    steps = list(plan.children)
    return lambda step, push: place.stepping(steps.index(step), push)
