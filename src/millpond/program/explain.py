"""A plan as text, for people and for golden files."""

from __future__ import annotations

from millpond.arguments.duration import span
from millpond.arguments.joins import side_names
from millpond.program.plan import Plan, Stage
from millpond.program.routes import routes_of
from millpond.program.steps import (
    Emit,
    Join,
    JoinSide,
    KeyBy,
    Late,
    Merge,
    Read,
    Step,
    Watermark,
    Window,
    Write,
)

__all__ = ["explain"]

_WIDTH = 72


def explain(plan: Plan, goes_on: str = "") -> str:
    """Return the plan as numbered stages, each step with the user's file and line.

    Args:
        plan: The plan.
        goes_on: The setting that lets a run go on after a record that failed; see `routes`.
    """
    lines: list[str] = []
    for number, read in enumerate(plan.reads, 1):
        where = "topic" if read.source.kind == "topic" else read.source.kind
        lines.append(
            _line(f"{number}" if number == 1 else "", "read", f"{where} {read.name!r}", read)
        )
        if tables := plan.waits.get(read.source.name):
            named = ", ".join(map(repr, tables))
            lines.append(f"{'':<13}   waits at the start until {named} has been read")
    count = 1
    for stage in plan.stages:
        steps = [step for step in stage.steps if not isinstance(step, Read)]
        if stage.number:
            kinds = {route.kind for route in routes_of(plan, stage, goes_on).entries.values()}
            how = ", combined" if "combined" in kinds else ""
            lines.append(f"   ---------  records move here{how}: key of {stage.scope!r}")
        if not steps:
            lines += _routes(plan, stage, goes_on)
            continue
        count += 1
        kind = "stateful" if stage.stores else "stateless"
        for i, step in enumerate(steps):
            text, state = _text(step), _state(step, stage)
            head = (str(count), kind) if i == 0 else ("", "")
            if state and len(text) + len(state) + 3 > _WIDTH:
                lines.append(_line(*head, text, step))
                lines.append(f"{'':<13}   {state}")
            else:
                lines.append(_line(*head, f"{text}   {state}" if state else text, step))
            if step.is_stateful and step.uses_clock:
                lines.append(f"{'':<13}   {_clock(step, plan)}")
            if isinstance(step, Join):
                kept = ", ".join(f"{n}: {step.kind.keeps(i)}" for i, n in enumerate(side_names))
                lines.append(f"{'':<13}   keeps records for each key, {kept}")
        lines += _routes(plan, stage, goes_on)
    return "\n".join(lines) + "\n"


def _routes(plan: Plan, stage: Stage, goes_on: str) -> list[str]:
    """Return how a stage runs: a line, or one for each way in where they are not alike."""
    names: dict[str, list[str]] = {}
    for number, route in routes_of(plan, stage, goes_on).entries.items():
        names.setdefault(str(route), []).append(_name(plan, stage, number))
    if len(names) == 1:
        return [f"{'':<13} runs {text}" for text in names]
    return [f"{'':<13} from {', '.join(of)}: runs {text}" for text, of in names.items()]


def _name(plan: Plan, stage: Stage, number: int) -> str:
    """Return by which way records enter a stage."""
    step = plan.edges[number].after if stage.number else plan.reads[number]
    return repr(step.name)


def _state(step: Step, stage: Stage) -> str:
    return f"state {stage.scope}/{step.store}" if step.is_stateful else ""


def _clock(step: Step, plan: Plan) -> str:
    """Return whose time a step goes by, and who can hold it back for as long as it is quiet."""
    points = [plan.points[number] for number in plan.clocks[step].points]
    names = {point: "+".join(point.sources) for point in points}
    waits = [repr(name) for p, name in names.items() if p.clocking.idle_after_ms is None]
    of = ("the least of " if len(points) > 1 else "") + ", ".join(map(repr, names.values()))
    return f"watermark of {of}" + (f"; without idle_after: {', '.join(waits)}" if waits else "")


def _text(step: Step) -> str:
    if isinstance(step, KeyBy):
        return f"key by {step.name!r}"
    if isinstance(step, Merge):
        return "concat"
    if isinstance(step, Write):
        return f"to_topic {step.name!r}" if step.topic else f"to_topic chosen by {step.name}"
    if isinstance(step, Emit):
        return step.kind if step.kind == "print" else f"sink {step.name}"
    if isinstance(step, Watermark):
        return f"watermark, lateness {span(step.clocking.lateness_ms)}"
    if isinstance(step, Late):
        return f"late for {step.name}"
    if isinstance(step, JoinSide):
        return f"{step.verb} join {step.name}"
    if isinstance(step, Join):
        return f"join {step.name}: {step.kind}"
    if isinstance(step, Window):
        return f"window {step.kind}, {step.emit} by {step.closing}"
    return step.verb if step.verb == step.name else f"{step.verb} {step.name}"


def _line(number: str, kind: str, text: str, step: Step) -> str:
    return f"{number:<2} {kind:<10} {text:<{_WIDTH}} {step.call_site}"
