"""What leaves a stage: records for other stages, for topics and the driver, and dead letters.

Takes what the steps gave, once some of it has gathered; gives packed rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millpond.program.plan import Edge, Output, Plan, Stage
from millpond.program.routes import StageRoutes, ends_of
from millpond.program.steps import Step
from millpond.state.cursor import Cursor
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import EDGE, OUTPUT, Row, by_group, kind_of
from millpond.wire.payloads import Payloads
from millpond.worker.changed_fields import edge_changes, output_changes
from millpond.worker.combine import Combiner
from millpond.worker.dead_letters import DeadLetters
from millpond.worker.emit import Emitter
from millpond.worker.report import Counts
from millpond.worker.schedule import Schedule
from millpond.worker.settings import Settings

__all__ = ["Exits"]


class Exits:
    """Where the records of one stage leave it."""

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        routes: StageRoutes,
        settings: Settings,
        cursor: Cursor,
        schedule: Schedule,
    ) -> None:
        self._plan = plan
        self._stage = stage
        self._leaving = routes.leaving
        self._settings = settings
        self._cursor = cursor
        self._payloads = Payloads(settings.payloads)
        self._clock = b""
        self._edges: dict[Edge, Emitter] = {}
        self.combiners: dict[Edge, Combiner] = {}
        for edge in routes.leaving:
            if edge.combines is None:
                changes = edge_changes(plan, stage, edge, settings.codec)
                self._edges[edge] = Emitter(cursor, changes, edge.after)
            else:
                self.combiners[edge] = self._combiner(edge, schedule)
        self._outputs: dict[Output, Emitter] = {
            output: Emitter(cursor, output_changes(plan, stage, output), output.step)
            for output in plan.outputs
            if output.step is not None and output.step in stage.steps
        }
        self.emitters = [*self._edges.values(), *self._outputs.values()]
        self.letters = DeadLetters()

    def _combiner(self, edge: Edge, schedule: Schedule) -> Combiner:
        step = edge.combines
        assert step is not None
        changes = edge_changes(self._plan, self._stage, edge, self._settings.codec)
        scope = self._plan.stages[edge.target].scope
        clock = schedule.clock_of(step, scope)
        layouts = self._settings.layouts.get(scope, {}).get(step.store)
        order = list(step.aggregations) if layouts is None else list(layouts[-1])
        return Combiner(step, self._cursor, clock, changes.key, order, keeps_path=changes.path)

    def after(self, step: Step) -> list[Emitter | Combiner]:
        """Return where the records after a step go, besides what the step writes itself."""
        found: list[Emitter | Combiner] = []
        for end in ends_of(self._plan, self._stage, self._leaving, step):
            if isinstance(end, Output):
                found.append(self._outputs[end])
            else:
                found.append(self._edges[end] if end in self._edges else self.combiners[end])
        return found

    def writers(self) -> dict[Step, Emitter]:
        """Return where the steps that write or print put their records."""
        kinds = ("write", "print", "sink")
        return {o.step: e for o, e in self._outputs.items() if o.step and o.kind in kinds}

    def begin(self, clock: Clock) -> None:
        """Begin with a batch of this time."""
        self._clock = clock.encode() if clock.seq else b""

    def enter(self, entered: pa.RecordBatch) -> None:
        """Take the results of these records from here on."""
        for combiner in self.combiners.values():
            combiner.begin(entered)

    def recent_bytes(self) -> int:
        """Return how many bytes were gathered since this was asked last."""
        return self.letters.recent_bytes() + sum(e.recent_bytes() for e in self.emitters)

    def weight(self, carried: dict[str, int]) -> int:
        """Return the bytes of all that the record in hand has led to; see `Emitter.weight`."""
        return sum(emitter.weight(carried) for emitter in self.emitters)

    def flush(self, entered: pa.RecordBatch, seen: np.ndarray, counts: Counts) -> Iterator[Row]:
        """Yield what has gathered; mark in `seen` the records that it came from."""
        counts.outputs += sum(len(e) for output, e in self._outputs.items() if output.is_leaf)
        for edge, emitter in self._edges.items():
            if len(emitter):
                seen[emitter.rows] = True
                for batch, columns in emitter.take(entered):
                    yield from self.move(batch, edge, columns)
        for combiner in self.combiners.values():
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
        if len(self.letters):
            batch, columns = self.letters.take(entered)
            yield Row("", -1, kind_of(OUTPUT, 0, columns), self._payloads.write(batch))

    def move(self, batch: pa.RecordBatch, edge: Edge, columns: int) -> Iterator[Row]:
        """Yield the packed rows that take records to another stage."""
        kind, scope = kind_of(EDGE, edge.number, columns), self._plan.stages[edge.target].scope
        for group, part in by_group(batch, self._settings.groups):
            yield Row(scope, group, kind, self._payloads.write(part), self._clock)

    def clear(self) -> None:
        """Forget what has gathered."""
        for emitter in self.emitters:
            emitter.cut_to(0)
        for combiner in self.combiners.values():
            combiner.clear()
        self.letters.clear()

    def close(self) -> None:
        """Let go of files; to be called at the end of a task."""
        self._payloads.close()
