"""All the steps of an application, and what of it stays on the driver."""

from __future__ import annotations

from typing import Any

from millpond.steps.kinds import Read, Step

__all__ = ["Graph"]


class Graph:
    """Steps in the order they were made; parents always come before children."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.sources: dict[str, Any] = {}
        """Settings of each source by name."""
        self.sinks: list[Any] = []

    def add(self, step: Step) -> Step:
        """Add a step whose parents are here already."""
        self.steps.append(step)
        return step

    def discard(self, steps: list[Step]) -> None:
        """Take out steps that were only an expression."""
        self.steps = [step for step in self.steps if step not in steps]

    def children(self) -> dict[Step, list[Step]]:
        """Return the children of every step, in the order they were made."""
        found: dict[Step, list[Step]] = {step: [] for step in self.steps}
        for step in self.steps:
            for parent in step.parents:
                found[parent].append(step)
        return found

    def reads(self) -> list[Read]:
        """Return the steps that read a source."""
        return [step for step in self.steps if isinstance(step, Read)]
