"""Which clock each stateful step goes by.

Takes the graph, gives the places where time is read (a source, `set_timestamp`, `watermark`) and
for each stateful step those upstream of it. A step's watermark is the least of theirs; after a
window or a join it is held back by as much, because a result is about time that has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.arguments.windows import Clocking
from millpond.program.graph import Graph, clocking_above
from millpond.program.steps import Join, Map, Read, Step, Watermark, Window

__all__ = ["ClockPoint", "ClockRef", "clock_points", "clocks_of_steps"]


@dataclass(frozen=True, slots=True)
class ClockPoint:
    """A place where the time of a stream is read."""

    number: int
    name: str
    """Its name in checkpoints: the source and the steps on the way."""
    step: Step
    clocking: Clocking
    sources: tuple[str, ...]
    """The sources whose records pass it."""
    is_guarded: bool = False
    """Whether a record with a time too far in the future fails here: steps go by this clock."""


@dataclass(frozen=True, slots=True)
class ClockRef:
    """What time it is for a step: the least of some points, held back."""

    points: tuple[int, ...]
    delay_ms: int = 0


def clock_points(graph: Graph) -> tuple[ClockPoint, ...]:
    """Return the places where time is read, in the order of the graph."""
    points: list[ClockPoint] = []
    names: dict[Step, str] = {}
    sources: dict[Step, tuple[str, ...]] = {}
    for step in graph.steps:
        below = "+".join(dict.fromkeys(names[p] for p in step.parents))
        sources[step] = tuple(dict.fromkeys(s for p in step.parents for s in sources[p]))
        names[step] = below
        if isinstance(step, Read):
            names[step], sources[step] = step.source.name, (step.source.name,)
        elif _tells_time(step):
            names[step] = _unused(f"{below}/{step.name}", names.values())
        if _tells_time(step):
            clocking = clocking_above(step)
            points.append(ClockPoint(len(points), names[step], step, clocking, sources[step]))
    refs = clocks_of_steps(graph, tuple(points))
    used = {number for step in graph.steps if step.uses_clock for number in refs[step].points}
    return tuple(
        replace(point, is_guarded=point.clocking.max_future_ms is not None and point.number in used)
        for point in points
    )


def clocks_of_steps(graph: Graph, points: tuple[ClockPoint, ...]) -> dict[Step, ClockRef]:
    """Return what each step goes by."""
    number_of = {point.step: point.number for point in points}
    after: dict[Step, ClockRef] = {}
    found: dict[Step, ClockRef] = {}
    for step in graph.steps:
        refs = [after[parent] for parent in _timed_by(step)]
        numbers = sorted({n for ref in refs for n in ref.points})
        found[step] = ClockRef(tuple(numbers), max((ref.delay_ms for ref in refs), default=0))
        after[step] = found[step]
        if step in number_of:
            after[step] = ClockRef((number_of[step],))
        elif isinstance(step, Join) or (isinstance(step, Window) and step.closing == "watermark"):
            delay = found[step].delay_ms + step.kind.holds_back_ms
            after[step] = ClockRef(found[step].points, delay)
    return found


def _timed_by(step: Step) -> tuple[Step, ...]:
    """Return the parents by whose time a step goes: a table as it is now does not count."""
    is_now = isinstance(step, Join) and not step.kind.goes_by_right
    return step.parents[:1] if is_now else step.parents


def _tells_time(step: Step) -> bool:
    if isinstance(step, Map):
        return step.kind == "timestamp"
    # Results of a window that closes by its key come in no order that the stream's clock knows.
    if isinstance(step, Window):
        return step.closing == "key"
    return isinstance(step, Read | Watermark)


def _unused(name: str, taken: object) -> str:
    used = set(taken)  # type: ignore[call-overload]
    return next(n for i in range(1, 10_000) if (n := name if i == 1 else f"{name}#{i}") not in used)
