"""Refuse graphs that cannot run, before Spark starts, with the user's file and line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from millpond.aggregations import Count, Mean, Sum
from millpond.errors import PlanError
from millpond.program.cut import scopes_of
from millpond.program.graph import Graph, corrected_above
from millpond.program.repeated_steps import repeats
from millpond.program.steps import Aggregate, Map, Step, UpdateState

__all__ = ["check_graph"]

logger = logging.getLogger("millpond")


def check_graph(graph: Graph) -> None:
    """Raise `PlanError` where the steps, taken together, make no sense."""
    if not graph.reads():
        msg = "the application has no frame to run.\nFix: make one with app.dataframe(topic)."
        raise PlanError(msg)
    for window in filter(None, graph.windows):
        logger.warning("nothing comes out of %s: it ends with .final() or .current()", window)
    for sentence in (*repeats(graph), *_corrected_totals(graph)):
        if sentence not in graph.warned:
            graph.warned.add(sentence)
            logger.warning("%s", sentence)
    owners: dict[tuple[Step, str], Step] = {}
    scopes = scopes_of(graph)
    for step in graph.steps:
        if not step.is_stateful or step.store == "default":
            continue
        other = owners.setdefault((scopes[step], step.store), step)
        if other is not step:
            msg = (
                f"two steps keep their state under the name {step.store!r}: {other.verb} "
                f"({other.call_site}) and {step.verb} ({step.call_site}).\n"
                "Fix: their state would mix; give each its own name. Where a notebook cell was run "
                "again, call app.clear_graph() and run the cells from app.dataframe(...) on."
            )
            raise PlanError(msg)
    _check_timers(graph)
    _check_tables(graph, scopes)


def _corrected_totals(graph: Graph) -> Iterator[str]:
    """Yield what is wrong with totals over windows that give a result again."""
    for step in graph.steps:
        if not isinstance(step, Aggregate):
            continue
        added = [name for name, a in step.aggregations.items() if isinstance(a, Sum | Count | Mean)]
        window = corrected_above(step.parents[0]) if added else None
        if window is not None:
            yield (
                f"agg ({step.call_site}) counts a corrected result again in {', '.join(added)}: "
                f"the window at {window.call_site} has corrections_ms. Fix: keep one result of "
                'each window before: sdf[sdf["revision"] == 0], the first.'
            )


def _check_tables(graph: Graph, scopes: dict[Step, Step]) -> None:
    """Refuse state after `update_state`: its rows have keys of their own and must move first."""
    after: dict[Step, Step] = {}
    for step in graph.steps:
        tables = [after[p] for p in step.parents if p in after and scopes[p] is scopes[step]]
        if tables and step.is_stateful:
            msg = (
                f"{step.verb} ({step.call_site}) keeps state after update_state "
                f"({tables[0].call_site}), whose rows are not of the key in hand.\n"
                "Fix: give them their key first: .group_by(...)."
            )
            raise PlanError(msg)
        if isinstance(step, UpdateState):
            after[step] = step
        elif tables:
            after[step] = tables[0]


def _check_timers(graph: Graph) -> None:
    owners: dict[str, Map] = {}
    for step in graph.steps:
        if isinstance(step, Map) and step.on_timer is not None:
            other = owners.setdefault(step.name, step)
            if other is not step:
                msg = (
                    f"two steps with timers have the same name {step.name!r} "
                    f"({other.call_site} and {step.call_site}).\n"
                    "Fix: timers are found again by the function's name; use two functions."
                )
                raise PlanError(msg)
