"""Steps to closures: each step becomes one function that calls the next.

Takes the plan and a stage, gives `Push` functions; nothing is interpreted per record. An
exception of a user's function is wrapped once, in the closure, with the step it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from millpond.arguments.joins import AsOf, AsTable, Broadcast, ForeignKey, Interval, TwoTables
from millpond.arguments.windows import Counted, Session, Sliding, TimeWindow
from millpond.program.clocks import ClockPoint
from millpond.program.layouts import Layout
from millpond.program.plan import Edge
from millpond.program.steps import (
    Aggregate,
    Distinct,
    Emit,
    Fold,
    Join,
    JoinSide,
    KeyBy,
    Late,
    Map,
    Merge,
    Read,
    Step,
    UpdateState,
    Watermark,
    Window,
    Write,
)
from millpond.state.key_context import KeyContext
from millpond.state.migrate import Lifts, MigratingState
from millpond.state.view import State
from millpond.worker.agg import RunningTotals
from millpond.worker.apply import Call, adapted, apply, apply_stateful, filter, set_headers, update
from millpond.worker.combine import Combiner
from millpond.worker.count_window import CountedWindows
from millpond.worker.drop_duplicates import distinct
from millpond.worker.emit import Emitter, Push
from millpond.worker.expand import expand
from millpond.worker.fan_out import fan_out
from millpond.worker.group_by import key_by
from millpond.worker.join import JoinLogic
from millpond.worker.join_asof import AsOfJoin
from millpond.worker.join_broadcast import BroadcastJoin
from millpond.worker.join_foreign_key import ForeignKeyJoin
from millpond.worker.join_interval import IntervalJoin
from millpond.worker.join_table import table_join
from millpond.worker.join_two_tables import TablesJoin
from millpond.worker.record_time import clocked, extracted, set_timestamp, stamped
from millpond.worker.schedule import Schedule, TimerWatcher
from millpond.worker.session_window import Sessions
from millpond.worker.sliding_window import SlidingWindows
from millpond.worker.stateful_map import fold
from millpond.worker.time_window import TimeWindows, WindowLogic
from millpond.worker.to_topic import emit, write
from millpond.worker.update_state import TableUpdate

__all__ = ["Composer", "Finisher"]


class Composer:
    """Builds the functions of one stage."""

    def __init__(
        self,
        children: Callable[[Step], Iterable[Step]],
        emitters: Callable[[Step], list[Emitter | Combiner]],
        writers: dict[Step, Emitter],
        context: KeyContext,
        schedule: Schedule,
        points: dict[Step, ClockPoint],
        weigh: Callable[[], int],
        lifts: dict[str, Lifts],
        layouts: dict[str, list[Layout]],
        stepping: Callable[[Step, Push], Push],
        finishers: list[Finisher],
    ) -> None:
        self._stepping = stepping
        self._children = children
        self._lifts = lifts
        self._layouts = layouts
        self._emitters = emitters
        self._writers = writers
        self._context = context
        self._schedule = schedule
        self._points = points
        self._weigh = weigh
        self._made: dict[Step, Push] = {}
        self._joins: dict[Step, list[Push]] = {}
        self.windows: list[WindowLogic | JoinLogic] = []
        """Steps for which records can be late."""
        self._finishers = finishers
        self._merges: dict[Step, Push] = {}

    def reading(self, read: Read) -> Push:
        """Return the function that takes the records of a source."""
        extract, give = read.source.timestamp_extractor, self._below(read)
        return give if extract is None else extracted(read, extract, self.clocked(read, give))

    def arriving(self, edge: Edge) -> Push:
        """Return the function that takes the records of an edge."""
        if edge.combines is None:
            entering = [self._child(edge.after, step) for step in edge.enter]
            return fan_out([], entering, edge.after)
        self._push(edge.combines)
        return self._merges[edge.combines]

    def clocked(self, step: Step, give: Push) -> Push:
        """Tell the time by each record that comes by a step; set aside what is too far ahead."""
        return clocked(self._points[step], step, self._schedule, self._context, give)

    def _below(self, step: Step) -> Push:
        """Return the function that hands on what a step gives."""
        sinks = [emitter.push() for emitter in self._emitters(step)]
        children = [child for child in self._children(step) if not isinstance(child, Late)]
        give = fan_out(sinks, [self._child(step, child) for child in children], step)
        if isinstance(step, Window) and step in self._points:
            return self.clocked(step, give)
        return give

    def _child(self, parent: Step, child: Step) -> Push:
        """Return the function that takes what a step gives to one that comes after it."""
        if isinstance(child, Join):
            assert isinstance(parent, JoinSide), parent
            return self._join(child)[parent.number]
        return self._push(child)

    def _push(self, step: Step) -> Push:
        """Return the function of a step and all that follows it in the stage."""
        if step not in self._made:
            self._made[step] = self._stepping(step, self._make(step, self._below(step)))
        return self._made[step]

    def _make(self, step: Step, give: Push) -> Push:
        if isinstance(step, Map):
            return self._map(step, give)
        if isinstance(step, Fold):
            return fold(step, self._state_of(step), self._context.codec, give)
        if isinstance(step, Aggregate):
            return self._aggregate(step, give)
        if isinstance(step, Window):
            return self._window(step, give)
        if isinstance(step, Distinct):
            return distinct(step, self._state_of(step), self._context.codec, give)
        if isinstance(step, UpdateState):
            update = TableUpdate(step, self._context, give)
            self._finishers.append(update)
            return update.push
        return self._make_stateless(step, give)

    def _make_stateless(self, step: Step, give: Push) -> Push:
        if isinstance(step, Watermark):
            give = self.clocked(step, give)
            return give if step.on is None else stamped(step, step.on, give)
        if isinstance(step, KeyBy):
            return key_by(step, give)
        if isinstance(step, Write):
            return write(step, self._writers[step], give)
        if isinstance(step, Emit):
            return emit(self._writers[step].push(), give)
        assert isinstance(step, Merge | Late | JoinSide), step
        return give

    def _state_of(self, step: Step) -> State:
        timed = isinstance(step, Map) and step.on_timer is not None
        ttl_ms = step.within_ms if isinstance(step, Distinct) else getattr(step, "ttl_ms", None)
        clock = self._schedule.clock_of(step) if step.is_stateful else None
        lifts = self._lifts.get(step.store)
        make = State if lifts is None else partial(MigratingState, lifts=lifts)
        return make(
            self._context,
            step.store,
            clock=clock,
            ttl_ms=ttl_ms,
            owner=step.name if timed else None,
            keeps_longest=isinstance(step, Aggregate),  # a late record does not shorten its life
        )

    def _map(self, step: Map, give: Push) -> Push:
        if step.kind == "timestamp":
            give = self.clocked(step, give)
        state = self._state_of(step)
        if step.kind == "apply" and step.callback.takes_state and not step.callback.takes_metadata:
            push = apply_stateful(step, step.callback.function, state, give)
        elif step.kind == "expand":
            call = adapted(step.callback, state)
            push = expand(step, call, give, self._context.cursor, self._weigh)
        else:
            push = _MAPS[step.kind](step, adapted(step.callback, state), give)
        return push if step.on_timer is None else self._timed(step, state, give, push)

    def _timed(self, step: Map, state: State, give: Push, push: Push) -> Push:
        """Let the timers of a step fire by the clocks, and by the records of their key."""
        clock = self._schedule.clock_of(step)
        timers, wall = (
            TimerWatcher(step, state, self._context, clock, give, kind)
            for kind in ("event", "processing")
        )
        self._schedule.watchers += [timers, wall]
        return timers.before(push, self._schedule.lateness_of(step))

    def _aggregate(self, step: Aggregate, give: Push) -> Push:
        state, layouts = self._state_of(step), self._layouts.get(step.store, ())
        totals = RunningTotals(step, self._context, state, give, layouts)
        if step.emit == "record":
            return totals.push
        self._merges[step] = totals.merge
        self._finishers.append(totals)
        return totals.push_quietly

    def _join(self, step: Join) -> list[Push]:
        """Return the functions that take the records of the two sides of a join."""
        if step not in self._joins:
            clock = self._schedule.clock_of(step)
            ways = (self._below(step), self._late(step))
            logic = _JOINS[type(step.kind)](step, self._context, clock, *ways)
            self.windows.append(logic)
            self._schedule.watchers.append(logic)
            self._joins[step] = [self._stepping(step, logic.side(number)) for number in (0, 1)]
        return self._joins[step]

    def _late(self, step: Step) -> Push | None:
        """Return the function that takes what is late for a step; None: nobody asked for it."""
        late = [self._push(child) for child in self._children(step) if isinstance(child, Late)]
        return fan_out([], late, step) if late else None

    def _window(self, step: Window, give: Push) -> Push:
        give_late = self._late(step)
        clock = self._schedule.clock_of(step)
        layouts = self._layouts.get(step.store, ())
        ways = (give, give_late)
        logic = _LOGIC[type(step.kind)](step, self._context, clock, *ways, layouts)
        self.windows.append(logic)
        if step.closing == "watermark":
            self._schedule.watchers.append(logic)
        if isinstance(logic, TimeWindows):
            self._merges[step] = logic.merge
        return logic.push


class Finisher(Protocol):
    """A step that has something to do after the last record of a batch."""

    def forget(self, index: int) -> None:
        """Take back what the record of an index did."""

    def finish(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the index of a record, and what is to be done in its name."""


_JOINS: dict[type, Callable[..., JoinLogic]] = {
    AsOf: AsOfJoin,
    AsTable: table_join,
    Broadcast: BroadcastJoin,
    ForeignKey: ForeignKeyJoin,
    Interval: IntervalJoin,
    TwoTables: TablesJoin,
}

_LOGIC: dict[type, type[WindowLogic]] = {
    TimeWindow: TimeWindows,
    Sliding: SlidingWindows,
    Session: Sessions,
    Counted: CountedWindows,
}


_MAPS: dict[str, Callable[[Map, Call, Push], Push]] = {
    "apply": apply,
    "update": update,
    "filter": filter,
    "timestamp": set_timestamp,
    "headers": set_headers,
}
