"""A plan: the stages that Spark runs, and the edges on which records move between them.

Takes a graph of steps; `make_plan` gives a `Plan` that is pickled to the workers. Stage 0 is
stateless and reads; every other stage is one key scope with all its stateful steps. A stage
has a layer; Spark runs one stateful operator per layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from millpond.connectors.serde import key_form
from millpond.errors import PlanError
from millpond.program.clocks import ClockPoint, ClockRef, clock_points, clocks_of_steps
from millpond.program.cut import Cut, cut_at_key_changes
from millpond.program.graph import Graph
from millpond.program.key_scopes import name_scopes
from millpond.program.layouts import Layout
from millpond.program.steps import Aggregate, Emit, Join, Late, Map, Read, Step, Window, Write
from millpond.program.table_waits import waits_of
from millpond.program.validate import check_graph
from millpond.state.migrate import Lifts, version_of
from millpond.state.timers import AWAY

__all__ = ["Edge", "Output", "Plan", "Stage", "make_plan"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Records leave a stage after step `after` and enter the stage `target`."""

    number: int
    after: Step
    source_stage: int
    target: int
    enter: tuple[Step, ...]
    """The steps that records meet first in the target."""
    raw_of: int | None
    """The source whose bytes are passed on untouched; None: values in flight."""
    raw_key_of: int | None
    """The source whose key bytes are passed on; None: typed keys."""
    combines: Aggregate | Window | None = None
    """The step for which records are brought together before they move, each group of records
    then being one; None: every record moves by itself."""


@dataclass(frozen=True, slots=True)
class Output:
    """Records leave the plan after step `step`."""

    number: int
    kind: Literal["write", "print", "sink", "collect", "count", "dead-letter"]
    step: Step | None = None
    is_leaf: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that run together in one Python function."""

    number: int
    layer: int
    scope: str
    """The key scope that its state belongs to; empty for stage 0."""
    steps: tuple[Step, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What runs. Frozen; pickled to the workers."""

    reads: tuple[Read, ...]
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    outputs: tuple[Output, ...]
    children: dict[Step, list[Step]] = field(repr=False)
    points: tuple[ClockPoint, ...] = ()
    clocks: dict[Step, ClockRef] = field(default_factory=dict, repr=False)
    lifts: dict[str, dict[str, Lifts]] = field(default_factory=dict, repr=False)
    """For each key scope and store, what lifts its values to this program's version."""
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each source that waits the tables that must have been read before."""

    @property
    def layers(self) -> int:
        return max(stage.layer for stage in self.stages)

    @property
    def topics(self) -> list[str]:
        """Names of the sources, in the order in which records refer to them."""
        return [read.source.name for read in self.reads]

    def children_in(self, step: Step, stage: Stage) -> list[Step]:
        """Return the children of a step to which its records go without leaving the stage."""
        moved = {
            child
            for edge in self.edges
            if edge.after is step and edge.source_stage == stage.number
            for child in edge.enter
        }
        return [child for child in self.children[step] if child not in moved]

    def path_to(self, step: Step, stage: Stage) -> set[Step]:
        """Return the steps of a stage through which records reach a step, itself included."""
        inside, found, todo = set(stage.steps), set[Step](), [step]
        while todo:
            current = todo.pop()
            if current in inside and current not in found:
                found.add(current)
                todo.extend(current.parents)
        return found

    @property
    def keeps_clock(self) -> bool:
        """Whether key groups remember the time, because Spark reads records that have no clock."""
        return any(read.source.kind == "spark" for read in self.reads)

    def without_late(self) -> list[Window | Join]:
        """Return the windows and joins of which nobody takes what came too late for them."""
        return [
            step
            for stage in self.stages
            for step in stage.steps
            if isinstance(step, Window | Join)
            and not getattr(step, "on_late", None)
            and not any(type(child) is Late for child in self.children[step])
        ]

    def stage_clocks(self, stage: Stage) -> dict[str, tuple[int, ...]]:
        """Return the points of each clock that a stage goes by, under names that state can keep."""
        refs = (self.clocks[step].points for step in stage.steps if step.is_stateful)
        return {self.clock_name(points): points for points in refs}

    def clock_name(self, points: tuple[int, ...]) -> str:
        """Return the name of the clock of some points."""
        return "+".join(self.points[number].name for number in points)

    def settings(self) -> dict[str, dict[str, str]]:
        """Return, for each key scope, what its stores are made with besides aggregations."""
        return {
            stage.scope: {step.store: step.settings for step in stage.steps if step.settings}
            for stage in self.stages
            if stage.stores
        }

    def layouts(self) -> dict[str, dict[str, Layout]]:
        """Return, for each key scope and store that keeps states of aggregations, which."""
        return {
            stage.scope: found
            for stage in self.stages
            if (found := {step.store: step.layout for step in stage.steps if step.layout})
            and stage.stores
        }

    def keys(self) -> dict[str, str]:
        """Return how the keys of each key scope are read; see `key_form`."""
        forms: dict[str, str] = {}
        for edge in self.edges:
            source = None if edge.raw_key_of is None else self.reads[edge.raw_key_of].source
            form = "typed" if source is None else key_form(source.key_deserializer)
            forms.setdefault(self.stages[edge.target].scope, form)
        return forms

    def timers(self) -> dict[str, list[str]]:
        """Return the functions of each key scope that set timers, as "name()"."""
        found = {
            stage.scope: [f"{step.name}()" for step in stage.steps if _has_timers(step)]
            for stage in self.stages
        }
        return {scope: names for scope, names in found.items() if names}

    def away(self, stage: Stage) -> str:
        """Return under which name a stage puts aside timers of functions that it does not have.

        Another program has another name: what was put aside is looked at again.
        """
        return AWAY + ",".join(sorted(step.name for step in stage.steps if _has_timers(step)))

    def versions(self) -> dict[str, dict[str, int]]:
        """Return the version of the values of each store that has migrations."""
        return {
            scope: {store: version_of(lifts) for store, lifts in stores.items()}
            for scope, stores in self.lifts.items()
        }

    def stores(self) -> dict[str, list[str]]:
        """Return the stores of each key scope."""
        return {stage.scope: list(stage.stores) for stage in self.stages if stage.stores}


def _has_timers(step: Step) -> bool:
    return isinstance(step, Map) and step.on_timer is not None


def make_plan(graph: Graph, *, collect: bool = False, combine: bool = True) -> Plan:
    """Return the plan of a graph.

    Args:
        graph: The steps.
        collect: Whether values of leaves come to the driver.
        combine: Whether records may be brought together before they move.
    """
    graph = graph.pruned()
    check_graph(graph)
    children = graph.children()
    cut = cut_at_key_changes(graph, children)
    scopes = name_scopes(graph, cut)
    reads = tuple(graph.reads())
    stages = tuple(
        Stage(
            number=number,
            layer=cut.layers[number],
            scope=scopes.get(number, ""),
            steps=tuple(step for step in graph.steps if number in cut.stages_of[step]),
            stores=_stores(graph, cut, number),
        )
        for number in range(len(cut.layers))
    )
    edges = tuple(_edges(cut, reads, combine))
    outputs = tuple(_outputs(graph, children, collect))
    points = clock_points(graph)
    clocks = clocks_of_steps(graph, points)
    lifts = _lifts(graph, stages)
    waits = waits_of(graph.steps)
    return Plan(reads, stages, edges, outputs, children, points, clocks, lifts, waits)


def _lifts(graph: Graph, stages: tuple[Stage, ...]) -> dict[str, dict[str, Lifts]]:
    """Return the migrations of each scope and store; refuse what can never be used."""
    found: dict[str, dict[str, Lifts]] = {}
    for name, lifts in graph.migrations.items():
        places = [
            (stage, store)
            for stage in stages
            for store in stage.stores
            if name in (store, f"{stage.scope}/{store}")
        ]
        known = ", ".join(f"{stage.scope}/{store}" for stage in stages for store in stage.stores)
        if not places:
            msg = f"there is a migration for {name!r}, and no such store; there are {known}."
            raise PlanError(msg + "\nFix: name one of these.")
        if len(places) > 1:
            names = [f"{stage.scope}/{store}" for stage, store in places]
            msg = f"there is a migration for {name!r}, and {len(places)} stores of that name: "
            msg += f"{', '.join(names)}."
            fix = f"say for which, once for each: @app.migration({names[0]!r}, from_version=1)."
            raise PlanError(f"{msg}\nFix: {fix}")
        missing = sorted(set(range(1, max(lifts) + 1)) - lifts.keys())
        if missing:
            msg = f"there are migrations of {name!r} from {sorted(lifts)}, none from {missing}."
            raise PlanError(msg + "\nFix: keep the older migrations; old keys pass through them.")
        for stage, store in places:
            if any(step.store == store and step.settings for step in stage.steps):
                msg = f"{name!r} is kept in a form of its own, not as values that a function set."
                raise PlanError(msg + "\nFix: migrations are for state that functions set.")
            found.setdefault(stage.scope, {})[store] = lifts
    return found


def _stores(graph: Graph, cut: Cut, number: int) -> tuple[str, ...]:
    stores: dict[str, None] = {}
    for step in graph.steps:
        if step.is_stateful and number in cut.stages_of[step]:
            stores[step.store] = None
    return tuple(stores)


def _edges(cut: Cut, reads: tuple[Read, ...], combine: bool) -> list[Edge]:
    edges: list[Edge] = []
    for after, source_stage, target in cut.moves:
        raw = reads.index(after) if isinstance(after, Read) else None
        start = cut.starts[target]
        raw_key = reads.index(start) if isinstance(start, Read) else None
        enter = cut.entries[after]
        edges.append(Edge(len(edges), after, source_stage, target, enter, raw, raw_key))
        only = enter[0] if len(enter) == 1 else None
        # Later stages hold records by key group; put together, they would change their order.
        if not combine or source_stage != 0:
            continue
        if isinstance(only, Aggregate | Window) and only.can_combine:
            edges.append(Edge(len(edges), after, source_stage, target, enter, None, raw_key, only))
    return edges


def _outputs(graph: Graph, children: dict[Step, list[Step]], collect: bool) -> list[Output]:
    outputs = [Output(0, "dead-letter")]
    for step in graph.steps:
        is_leaf = all(isinstance(child, Late) for child in children[step])
        if isinstance(step, Write):
            outputs.append(Output(len(outputs), "write", step, is_leaf))
        elif isinstance(step, Emit):
            outputs.append(Output(len(outputs), step.kind, step, is_leaf))
        if is_leaf and (collect or not isinstance(step, Write | Emit)):
            outputs.append(Output(len(outputs), "collect" if collect else "count", step, True))
    return outputs
