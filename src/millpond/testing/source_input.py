"""What the sources of a program give to the local engine.

Takes a source; gives its records as items of the engine's input, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.connectors.custom_source import CustomSource, name_of
from millpond.connectors.polled_source import PolledSource
from millpond.connectors.sources import ListSource

__all__ = ["SourceInput"]


class SourceInput:
    """Reads sources, and remembers how far each was read."""

    def __init__(self, after: SourceInput | None = None) -> None:
        self._read_to: dict[str, Any] = {} if after is None else dict(after._read_to)

    def take(self, source: Any) -> list[Any]:
        """Return what a source has now and has not given yet."""
        if isinstance(source, ListSource):
            return self._of_list(source)
        if isinstance(source, CustomSource):
            return list(self._of_custom(source))
        return list(self._of_polled(source)) if isinstance(source, PolledSource) else []

    def _of_list(self, source: ListSource) -> list[Any]:
        is_new = source.name not in self._read_to
        self._read_to[source.name] = None
        return list(source.items) if is_new else []

    def _of_custom(self, source: CustomSource) -> Iterator[Any]:
        reader = source.reader("")
        if source.name not in self._read_to:
            self._read_to[source.name] = reader.initial("earliest")
        begin = self._read_to[source.name]
        self._read_to[source.name] = ends = {**begin, **reader.ends(begin)}
        for partition, end in ends.items():
            if (start := begin.get(partition, 0)) < end:
                for row in reader.rows(name_of(partition), start, end):
                    yield tuple(row[:4])

    def _of_polled(self, source: PolledSource) -> Iterator[Any]:
        while True:
            rows, self._read_to[source.name] = source.poll(self._read_to.get(source.name))
            if not rows:
                return
            yield from (tuple(row[:4]) for row in rows)
