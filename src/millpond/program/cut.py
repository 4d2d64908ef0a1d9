"""Decide what runs together.

Takes a graph, gives a `Cut`: which stage runs which step, and where records move. Stateless
steps run where their records are. Stateful steps of one key scope share one stage, so records
move once per change of key, as late as possible: after the last step before the stateful ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.program.graph import Graph
from millpond.program.steps import Join, KeyBy, Merge, Read, Step

__all__ = ["Cut", "cut_at_key_changes", "scopes_of"]


@dataclass
class Cut:
    """Where a graph is cut."""

    stages_of: dict[Step, set[int]]
    """The stages that run a step. More than one where a merge joins paths of several stages."""
    layers: list[int]
    """The layer of each stage; stage 0 is layer 0."""
    starts: dict[int, Step]
    """The step that began the key scope of a stage."""
    entries: dict[Step, tuple[Step, ...]]
    """The children of a step to which records move."""
    moves: list[tuple[Step, int, int]] = field(default_factory=list)
    """(after which step, in which stage, to which stage) records move."""


def cut_at_key_changes(graph: Graph, children: dict[Step, list[Step]]) -> Cut:
    """Return where a graph is cut."""
    scope_of = scopes_of(graph)
    cuts = _cut_points(graph, children, scope_of)
    entries = {step: tuple(c for c in children[step] if (step, c) in cuts) for step, _ in cuts}
    cut = Cut({step: set() for step in graph.steps}, [0], {}, entries)
    stage_of_start: dict[Step, int] = {}
    for step in graph.steps:
        if isinstance(step, Read):
            cut.stages_of[step].add(0)
        for stage in sorted(cut.stages_of[step]):
            for child in children[step]:
                target = cuts.get((step, child))
                if target is None:
                    cut.stages_of[child].add(stage)
                    continue
                if target not in stage_of_start:
                    stage_of_start[target] = len(cut.layers)
                    cut.starts[len(cut.layers)] = target
                    cut.layers.append(0)
                number = stage_of_start[target]
                cut.layers[number] = max(cut.layers[number], cut.layers[stage] + 1)
                if (step, stage, number) not in cut.moves:
                    cut.moves.append((step, stage, number))
                cut.stages_of[child].add(number)
    return cut


def scopes_of(graph: Graph) -> dict[Step, Step]:
    """Return, for each step, the step that gave its records their key."""
    scope_of: dict[Step, Step] = {}
    for step in graph.steps:
        parents = {scope_of[parent] for parent in step.parents}
        meets = isinstance(step, Merge | Join) and len(parents) > 1
        is_start = isinstance(step, Read | KeyBy) or meets
        scope_of[step] = step if is_start else parents.pop()
    return scope_of


def _cut_points(
    graph: Graph, children: dict[Step, list[Step]], scope_of: dict[Step, Step]
) -> dict[tuple[Step, Step], Step]:
    """Return the pairs (step, child) between which records move, and the scope they move to."""
    needs_state = _leads_to_state(graph, children, scope_of)
    found: dict[tuple[Step, Step], Step] = {}
    for start in dict.fromkeys(scope_of.values()):
        if isinstance(start, Join):
            found.update({(side, start): start for side in start.parents})
            continue
        step = start
        while True:
            stateful = [c for c in children[step] if scope_of[c] is start and needs_state[c]]
            if not stateful:
                break
            if len(stateful) > 1 or stateful[0].is_stateful or isinstance(stateful[0], Merge):
                found.update({(step, child): start for child in stateful})
                break
            step = stateful[0]
    return found


def _leads_to_state(
    graph: Graph, children: dict[Step, list[Step]], scope_of: dict[Step, Step]
) -> dict[Step, bool]:
    found: dict[Step, bool] = {}
    for step in reversed(graph.steps):
        below = any(found[c] for c in children[step] if scope_of[c] is scope_of[step])
        found[step] = step.is_stateful or below
    return found
