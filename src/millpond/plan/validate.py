"""Refuse graphs that cannot run, before Spark starts, with the user's file and line."""

from __future__ import annotations

from millpond.errors import PlanError
from millpond.steps.graph import Graph
from millpond.steps.kinds import Fold

__all__ = ["check_graph"]


def check_graph(graph: Graph) -> None:
    """Raise `PlanError` where the steps, taken together, make no sense."""
    if not graph.reads():
        msg = "the application has no frame to run.\nFix: make one with app.dataframe(topic)."
        raise PlanError(msg)
    folds: dict[str, Fold] = {}
    for step in graph.steps:
        if isinstance(step, Fold):
            if step.name in folds:
                msg = (
                    f"two stateful_map steps are named {step.name!r} "
                    f"({folds[step.name].call_site} and {step.call_site}).\n"
                    "Fix: their state would mix; give each its own name."
                )
                raise PlanError(msg)
            folds[step.name] = step
