"""Which sources wait until others, that are tables, have been read.

Takes the steps of a graph; gives for each source those it waits for. Sources that would wait for
each other do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.arguments.joins import AsTable, Broadcast
from millpond.program.steps import Join, Read, Step

__all__ = ["waits_of"]


def waits_of(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Return the sources that each source waits for."""
    waits: dict[str, set[str]] = {}
    for step in steps:
        if isinstance(step, Join) and isinstance(step.kind, AsTable | Broadcast):
            lefts, tables = (_sources(parent) for parent in step.parents)
            for left in lefts - tables if step.kind.waits else ():
                waits.setdefault(left, set()).update(tables)
    return {
        left: tuple(sorted(table for table in tables if left not in _after(table, waits)))
        for left, tables in waits.items()
    }


def _sources(step: Step) -> set[str]:
    found: set[str] = set()
    todo, known = [step], {step}
    while todo:
        step = todo.pop()
        if isinstance(step, Read):
            found.add(step.source.name)
        todo += [parent for parent in step.parents if parent not in known]
        known.update(step.parents)
    return found


def _after(source: str, waits: dict[str, set[str]]) -> set[str]:
    """Return all that a source waits for, also through others."""
    found: set[str] = set()
    todo = [source]
    while todo:
        more = waits.get(todo.pop(), set()) - found
        found |= more
        todo += more
    return found
