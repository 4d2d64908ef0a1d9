"""Find steps that a program has twice by accident: a notebook cell that was run again.

Takes a graph; gives a sentence for each pair of steps that does the same to the same records. A
loop that builds branches is no repetition: they differ in a function, a default, a topic or a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import combinations
from types import FunctionType, MethodType
from typing import Any

from millpond.connectors.topic import Topic
from millpond.program.graph import Graph
from millpond.program.steps import Map, Step

__all__ = ["repeats"]

FIX = (
    "Fix: where a notebook cell was run again, call app.clear_graph() and run the cells again from "
    "app.dataframe(...) on. Elsewhere keep the frame in a variable, and use that."
)

# How deep functions are looked into that hold other functions.
_DEPTH = 4

Form = Any


def repeats(graph: Graph) -> Iterator[str]:
    """Yield what is in a graph twice and what comes of it."""
    children = graph.children()
    own = {step: _own(step) for step in graph.steps}
    whole: dict[Step, Form] = {}
    for step in reversed(graph.steps):  # children come after their parents
        whole[step] = (own[step], tuple(whole[child] for child in children[step]))
    for siblings in children.values():
        for one, other in combinations(siblings, 2):
            what = _comes_of(one, other, own, whole)
            if what:
                yield _sentence(one, other, what)
    for step in graph.steps:
        earlier = _same_above(step, own)
        if earlier is not None:
            yield _sentence(earlier, step, "each record changes its state twice")


def _sentence(one: Step, other: Step, what: str) -> str:
    verb = f"{one.verb} {one.name}".strip()
    return f"{verb} is in the program twice ({one.call_site} and {other.call_site}): {what}.\n{FIX}"


def _comes_of(one: Step, other: Step, own: dict[Step, Form], whole: dict[Step, Form]) -> str | None:
    """Say what comes of two steps with one parent; None: they are two different things."""
    if own[one] == own[other]:
        if one.is_stateful:
            return "each record changes its state twice"
        return "everything comes out twice" if whole[one] == whole[other] else None
    is_edited = _is_cell(one) and _is_cell(other) and _name(one) == _name(other) is not None
    return "the older one still runs" if is_edited else None


def _same_above(step: Step, own: dict[Step, Form]) -> Step | None:
    """Return the same step with the same state further up, written in the same place."""
    if not (isinstance(step, Map) and step.is_stateful):
        return None
    above = step
    while len(above.parents) == 1:
        above = above.parents[0]  # type: ignore[assignment]
        if own[above] == own[step] and above.call_site == step.call_site:
            return above
    return None


def _is_cell(step: Step) -> bool:
    path = step.call_site.path
    return "ipykernel_" in path or path.startswith("<ipython-input-")


def _name(step: Step) -> tuple[str, str] | None:
    """Return what a step is called by its user; None: it has no name of its own."""
    if isinstance(step, Map) and step.name not in ("", "lambda"):
        return step.verb, step.name
    return None


def _own(step: Step) -> Form:
    """Return what a step does, whatever its place."""
    rest = [f.name for f in fields(step) if f.name not in ("parents", "call_site")]
    return type(step), tuple(_form(getattr(step, name)) for name in rest)


def _form(value: Any, depth: int = 0) -> Form:
    """Return something that is equal for values that act alike; when in doubt it is not."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return type(value), value
    if depth > _DEPTH:
        return id(value)
    if isinstance(value, tuple | list):
        return tuple(_form(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return tuple((_form(k, depth + 1), _form(v, depth + 1)) for k, v in value.items())
    if isinstance(value, Topic):
        return Topic, value.name
    if callable(value):
        return _function(value, depth + 1)
    is_ours = type(value).__module__.partition(".")[0] == "millpond"
    if is_ours and is_dataclass(value):
        names = [f.name for f in fields(value)]
        return type(value), tuple(_form(getattr(value, name), depth + 1) for name in names)
    if is_ours and hasattr(value, "__dict__"):
        return type(value), _form(vars(value), depth + 1)
    return id(value)


def _function(function: Callable[..., Any], depth: int) -> Form:
    if isinstance(function, FunctionType):
        closure = [_held(cell) for cell in function.__closure__ or ()]
        held = (function.__defaults__, function.__kwdefaults__, closure)
        return function.__code__, _form(held, depth)
    if isinstance(function, MethodType):
        return _function(function.__func__, depth), id(function.__self__)
    if isinstance(function, partial):
        return partial, _form((function.func, function.args, function.keywords), depth)
    return id(function)


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a name that has no value yet
