"""Frames without an application, for tests.

Takes a source or a list; gives a frame that the local engine runs.
"""

from __future__ import annotations

from typing import Any

from millpond.arguments.callsite import here
from millpond.connectors.as_source import as_source
from millpond.connectors.protocols import PollSource, Source
from millpond.connectors.sources import ListSource
from millpond.frame import StreamingDataFrame
from millpond.program.graph import Graph
from millpond.program.steps import Read, SourceInfo
from millpond.state.codec import Codec

__all__ = ["frame"]


def frame(
    source: ListSource | Source | PollSource | list[Any] | None = None, name: str = "list"
) -> StreamingDataFrame:
    """Return a frame without an application, to be run with `run_local`.

    >>> from millpond.testing import run_local
    >>> run_local(frame().apply(lambda value: value * 2), [1, 2])
    [2, 4]

    Args:
        source: A `ListSource`, a source of your own, or a list. Default: an empty list.
        name: The name of a list.
    """
    given = ListSource(source or [], name) if isinstance(source, list | None) else source
    settings = as_source(given, given.codec if isinstance(given, ListSource) else Codec())
    graph = Graph()
    graph.sources[settings.name] = settings
    read = Read(call_site=here(), name=settings.name, source=SourceInfo.of(settings))
    return StreamingDataFrame(graph, graph.add(read))
