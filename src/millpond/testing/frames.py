"""Frames without an application, for tests.

Takes a source or a list; gives a frame that the local engine runs.
"""

from __future__ import annotations

from typing import Any

from millpond.arguments.callsite import here
from millpond.connectors.sources import ListSource
from millpond.frame import StreamingDataFrame
from millpond.program.graph import Graph
from millpond.program.steps import Read, SourceInfo

__all__ = ["frame"]


def frame(source: ListSource | list[Any] | None = None, name: str = "list") -> StreamingDataFrame:
    """Return a frame without an application, to be run with `run_local`."""
    settings = source if isinstance(source, ListSource) else ListSource(source or [], name)
    graph = Graph()
    graph.sources[settings.name] = settings
    info = SourceInfo(settings.name, "list", settings.value_deserializer, settings.key_deserializer)
    return StreamingDataFrame(graph, graph.add(Read(call_site=here(), name=info.name, source=info)))
