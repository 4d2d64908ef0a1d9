"""All the steps of an application, and what of it stays on the driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

from millpond.arguments.windows import Clocking, TimeWindow, loosest
from millpond.connectors.protocols import SourceSettings
from millpond.errors import ConfigError
from millpond.program.steps import Late, Map, Read, Step, Watermark, Window
from millpond.state.codec import Codec

__all__ = ["Graph", "GraphOptions", "clocking_above", "corrected_above"]


def clocking_above(step: Step) -> Clocking:
    """Return how time is read at a step: as its watermark or source says, the loosest of several.

    So the order of the frames of a `concat` does not matter.
    """
    found: list[Clocking] = []
    steps, known = [step], {step}
    while steps:
        step = steps.pop()
        if isinstance(step, Watermark):
            found.append(step.clocking)
        elif isinstance(step, Read):
            found.append(step.source.clocking)
        else:
            steps += [parent for parent in step.parents if parent not in known]
            known.update(step.parents)
    return loosest(found)


def corrected_above(step: Step) -> Window | None:
    """Return a window with corrections whose results reach a step as they are given.

    A filter that looks at the revision chooses among them, and so may a stateful step.
    """
    steps, known = [step], {step}
    while steps:
        step = steps.pop()
        kind = step.kind if isinstance(step, Window) else None
        if isinstance(step, Window) and isinstance(kind, TimeWindow) and kind.corrections_ms:
            return step
        chooses = step.is_stateful or _looks_at_revision(step)
        if chooses or isinstance(step, Late):  # what is late is a record, not a result
            continue
        steps += [parent for parent in step.parents if parent not in known]
        known.update(step.parents)
    return None


def _looks_at_revision(step: Step) -> bool:
    if not isinstance(step, Map) or step.kind != "filter":
        return False
    code = getattr(inspect.unwrap(step.callback.function), "__code__", None)
    return "revision" in step.name or (code is not None and "revision" in _texts(code))


def _texts(code: CodeType) -> Iterator[str]:
    """Yield the texts in a function, and in functions inside it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts(constant)
        elif isinstance(constant, str):
            yield constant


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """What an application says about errors and types; the local engine goes by it too."""

    on_error: Literal["stop", "dead-letter"] = "stop"
    on_processing_error: Callable[..., bool] | None = None
    codec: Codec = field(default_factory=Codec)


class Graph:
    """Steps in the order they were made; parents always come before children."""

    def __init__(self, options: GraphOptions | None = None) -> None:
        self.steps: list[Step] = []
        self.sources: dict[str, Any] = {}
        """Settings of each source by name."""
        self.tables: set[str] = set()
        """The sources that a new group reads from their beginning, because they are tables."""
        self.sinks: list[Any] = []
        self.options = options or GraphOptions()
        self.migrations: dict[str, dict[int, Any]] = {}
        """For each store, functions that lift its values from a version to the next."""
        self.windows: list[str | None] = []
        """What each window is and where; None once it has an output."""
        self.warned: set[str] = set()
        """What was warned about already; each thing once."""
        self.tested: Any = None
        """How many steps there were when `StreamingDataFrame.test` was called, and its engine."""
        self.is_cleared = False
        self._expressions: set[Step] = set()

    def add(self, step: Step) -> Step:
        """Add a step whose parents are here already."""
        if self.is_cleared:
            msg = (
                f"{step.verb} ({step.call_site}) is called on a frame from before "
                "app.clear_graph().\nFix: make the frame again, with app.dataframe(...)."
            )
            raise ConfigError(msg)
        self.steps.append(step)
        return step

    def add_source(self, settings: SourceSettings) -> SourceSettings:
        """Add a source that is read; return it.

        Raises:
            ConfigError: there is one of its name.
        """
        if settings.name in self.sources:
            msg = (
                f"there is a frame for {settings.name!r} already.\n"
                "Fix: use that frame twice (each use is a branch), or give the source another "
                "name. To build the program again, as in a notebook: app.clear_graph() first."
            )
            raise ConfigError(msg)
        self.sources[settings.name] = settings
        return settings

    def cleared(self) -> Graph:
        """Return an empty graph of the same application; this one takes no more steps."""
        self.is_cleared = True
        graph = Graph(self.options)
        graph.migrations = self.migrations
        return graph

    def open_window(self, what: str) -> int:
        """Note a window that has no output yet."""
        self.windows.append(what)
        return len(self.windows) - 1

    def close_window(self, number: int) -> None:
        """Note that a window has an output."""
        self.windows[number] = None

    def use_as_expression(self, steps: list[Step]) -> None:
        """Note steps that became part of another one; they run by themselves only if continued."""
        self._expressions.update(steps)

    def pruned(self) -> Graph:
        """Return the graph without steps that were nothing but an expression."""
        kept: list[Step] = []
        continued: set[Step] = set()
        for step in reversed(self.steps):
            if step not in self._expressions or step in continued:
                kept.insert(0, step)
                continued.update(step.parents)
        graph = Graph(self.options)
        graph.steps, graph.sources, graph.sinks = kept, self.sources, self.sinks
        graph.windows, graph.migrations, graph.warned = self.windows, self.migrations, self.warned
        graph.tables = self.tables
        return graph

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
