"""How the records of a stage run: on the fastest route that the plan allows.

Takes a plan and the setting that lets a run go on after a failure; gives a `Route` for each way
into a stage, with the reason where a faster one is not possible. `explain` prints what the worker
does, because both ask here. A single batch may still take the slower route: where a timestamp is
absurd, or a value cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from millpond.program.metadata import metadata_reason
from millpond.program.plan import Edge, Output, Plan, Stage
from millpond.program.steps import Emit, KeyBy, Map, Read, Step, Write

__all__ = ["Route", "RouteKind", "StageRoutes", "ends_of", "goes_on", "routes_of"]

RouteKind = Literal["forward", "columnar", "combined", "record"]


@dataclass(frozen=True, slots=True)
class Route:
    """How the records that come by one way into a stage run."""

    kind: RouteKind
    why: str = ""
    """Why no faster route is possible."""
    edge: Edge | None = None
    """Where the records go, if they are forwarded or decoded in columns."""
    key: str | None = None
    """The field that is the key of records in columns; None: the key that they came with."""

    def __str__(self) -> str:
        if self.kind == "forward":
            return "forwarded untouched"
        if self.kind == "columnar":
            by = "" if self.key is None else f" by {self.key!r}"
            return f"in columns, combined{by}"
        if self.kind == "combined":
            return "on totals: its records were combined before they moved"
        return f"record by record: {self.why}"


@dataclass(frozen=True, slots=True)
class StageRoutes:
    """How a stage runs."""

    entries: dict[int, Route]
    """By number: of stage 0 by source, of others by the edge on which records come."""
    leaving: tuple[Edge, ...]
    """The edges by which records leave: of two that go to one stage, the one that is used."""
    metadata: str
    """Why key, timestamp and headers are decoded; "": they are not."""
    undo: str
    """Why it must be possible to undo what a record did; "": it need not be."""


def goes_on(on_error: str, on_processing_error: Callable[..., bool] | None) -> str:
    """Return the setting that lets a run go on after a record that failed; "": none does."""
    if on_error != "stop":
        return f"on_error={on_error!r}"
    return "" if on_processing_error is None else "on_processing_error"


def routes_of(plan: Plan, stage: Stage, goes_on: str = "") -> StageRoutes:
    """Return how a stage runs.

    Args:
        plan: The whole plan.
        stage: One of its stages.
        goes_on: The setting that lets a run go on after a record that failed.
    """
    undo, metadata = _undo_reason(plan, stage, goes_on), metadata_reason(plan, stage)
    leaving = tuple(_used(plan, goes_on, lambda edge: edge.source_stage == stage.number))
    if stage.number == 0:
        entries = {
            number: _route_of_source(plan, stage, read, leaving, metadata, undo)
            for number, read in enumerate(plan.reads)
        }
    else:
        arriving = _used(plan, goes_on, lambda edge: edge.target == stage.number)
        entries = {e.number: _route_of_edge(plan, e, metadata, undo, goes_on) for e in arriving}
    return StageRoutes(entries, leaving, metadata, undo)


def ends_of(plan: Plan, stage: Stage, leaving: tuple[Edge, ...], step: Step) -> list[Edge | Output]:
    """Return where the records after a step leave the stage, besides what the step writes."""
    outputs = [o for o in plan.outputs if o.step is step and o.kind in ("collect", "count")]
    return [*(edge for edge in leaving if edge.after is step), *outputs]


# --- what may be combined -------------------------------------------------------------------


def _used(plan: Plan, goes_on: str, wanted: Callable[[Edge], bool]) -> list[Edge]:
    """Return the edges that records take: of each two, the one that combines them if it can."""
    found: dict[tuple[Step, int], Edge] = {}
    for edge in filter(wanted, plan.edges):
        if edge.combines is None or not _uncombined_reason(plan, edge, goes_on):
            found[edge.after, edge.target] = edge
    return list(found.values())


def _uncombined_reason(plan: Plan, edge: Edge, goes_on: str) -> str:
    """Return why records are not combined before they move, though they are only aggregated."""
    stage = plan.stages[edge.source_stage]
    undo = _undo_reason(plan, stage, goes_on)
    if undo:
        return undo
    if plan.keeps_clock:  # nobody knows there which records are late
        return "a SparkSource has no watermark before its records move"
    # What is gathered is not encoded yet, so no step may go on with the value and change it.
    below = plan.children_in(edge.after, stage)
    return _takes_one(below[0]) if below else ""


def _undo_reason(plan: Plan, stage: Stage, goes_on: str) -> str:
    if goes_on:
        return f"each can be undone: {goes_on}"
    points = {point.step: point for point in plan.points if point.is_guarded}
    guards = [s for s in stage.steps if s in points and not isinstance(s, Read)]
    if guards and any(_does_something(plan, step) for step in stage.steps):
        return f"each can be undone: {guards[0].where} sets aside records of the future"
    return ""


def _does_something(plan: Plan, step: Step) -> bool:
    """Tell whether there may be something to undo when a record fails after a step."""
    is_expansion = isinstance(step, Map) and step.kind == "expand"
    is_output = isinstance(step, Write | Emit)
    return step.is_stateful or is_output or is_expansion or len(plan.children[step]) > 1


# --- the ways in ----------------------------------------------------------------------------


def _route_of_source(
    plan: Plan, stage: Stage, read: Read, leaving: tuple[Edge, ...], metadata: str, undo: str
) -> Route:
    if read.source.timestamp_extractor is not None:
        return _record(metadata, undo)
    below, ends = plan.children_in(read, stage), ends_of(plan, stage, leaving, read)
    only = ends[0] if len(ends) == 1 and not below else None
    if isinstance(only, Edge) and only.combines is None:
        return Route("forward", edge=only)
    if not metadata and any(
        edge.combines and read in plan.path_to(edge.after, stage) for edge in leaving
    ):
        return _columnar(plan, stage, read, leaving)
    return _record(metadata or (_takes_one(below[0]) if below else _LEAVE), undo)


_LEAVE = "they leave the program"


def _columnar(plan: Plan, stage: Stage, read: Read, leaving: tuple[Edge, ...]) -> Route:
    """Return the route of records that are combined, if nothing but their key is looked at."""
    place: Step = read
    key, below = None, plan.children_in(read, stage)
    if len(below) == 1 and isinstance(below[0], KeyBy) and not ends_of(plan, stage, leaving, read):
        (place,), key = below, below[0].field
        if key is None:
            return _record(f"{place.where} has a function, not a field")
        below = plan.children_in(place, stage)
    if below:
        return _record(_takes_one(below[0]))
    ends = ends_of(plan, stage, leaving, place)
    if len(ends) != 1 or not isinstance(ends[0], Edge) or ends[0].combines is None:
        return _record("they go to more than one place")
    if (key is None) != (ends[0].raw_key_of is not None):
        return _record("keys of several sources come together")
    if getattr(read.source.value_deserializer, "fast", None) is None:
        return _record(f"the value_deserializer of {read.name!r} takes one record at a time")
    return Route("columnar", edge=ends[0], key=key)


def _route_of_edge(plan: Plan, edge: Edge, metadata: str, undo: str, goes_on: str) -> Route:
    if edge.combines is not None:
        return Route("combined")
    for other in plan.edges:
        if other.combines and (other.after, other.target) == (edge.after, edge.target):
            reason = _uncombined_reason(plan, other, goes_on)
            return _record(reason, "" if reason == undo else undo)
    return _record(metadata or _takes_one(edge.enter[0]), undo)


def _takes_one(step: Step) -> str:
    return f"{step.where} takes one record at a time"


def _record(why: str, undo: str = "") -> Route:
    return Route("record", f"{why}; {undo}" if undo else why)
