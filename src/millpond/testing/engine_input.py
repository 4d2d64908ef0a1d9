"""The input of the local engine: records of each source, with marks between them.

Takes records and what sources have; gives batches. A batch is taken out of the input once it is
committed, so one that has failed comes again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from millpond.connectors.sources import Mark
from millpond.errors import ConfigError, shown
from millpond.testing.source_input import SourceInput

__all__ = ["Batch", "EngineInput"]

Batch = dict[str, list[Any]]
"""The items that each source gives to a batch."""


class EngineInput:
    """What is there to be processed, and how far it was."""

    def __init__(
        self,
        sources: list[str],
        waits: Mapping[str, Collection[str]],
        after: EngineInput | None = None,
    ) -> None:
        self._names = sources
        self._waits = waits
        self._items: dict[str, list[Any]] = {}
        self._positions: dict[str, int] = defaultdict(int)
        self.offsets: dict[str, int] = defaultdict(int)
        """The offset of the next record of each source."""
        self._sources: SourceInput = SourceInput() if after is None else SourceInput(after._sources)
        if after is not None:
            self.offsets.update(after.offsets)

    def feed(self, records: Iterable[Any] | dict[str, Iterable[Any]], source: str | None) -> None:
        """Add records of one source, or of several in a dict."""
        if isinstance(records, dict) and source is None:
            for name, items in records.items():
                self._feed(items, name)
        elif source is None and len(self._names) != 1:
            names = ", ".join(f"{name!r}: [...]" for name in self._names)
            msg = f"the program reads {self._names}, and the records name none of them."
            raise ConfigError(msg + f"\nFix: give records by source: {{{names}}}.")
        else:
            self._feed(records, source or self._names[0])

    def _feed(self, records: Iterable[Any], name: str) -> None:
        if name not in self._names:
            msg = f"the program reads {self._names}, not {shown(name)}."
            raise ConfigError(msg + "\nFix: feed one of these; one record is a list of one.")
        if not isinstance(records, Iterable) or isinstance(records, str | bytes | dict):
            msg = f"records are a list or another iterable, got {shown(records)}."
            raise ConfigError(msg + "\nFix: put the record in a list.")
        self._items.setdefault(name, []).extend(records)

    def read(self, sources: dict[str, Any]) -> None:
        """Add what sources have now and have not given yet."""
        for name, source in sources.items():
            self._items.setdefault(name, []).extend(self._sources.take(source))

    def next_batch(self, size: int) -> tuple[Batch, Mark | None]:
        """Return up to `size` records of each source, and the mark at which they end."""
        batch: Batch = {}
        mark: Mark | None = None
        for name in self._names:
            taken: list[Any] = []
            for item in [] if self._is_held(name) else self._left(name):
                if len(taken) == size:
                    break
                if isinstance(item, Mark):
                    mark = item
                    break
                taken.append(item)
            batch[name] = taken
            if mark is not None:
                break  # the other sources go on in the next batch
        return batch, mark

    def _left(self, name: str) -> list[Any]:
        return self._items.get(name, [])[self._positions[name] :]

    def _is_held(self, name: str) -> bool:
        """Tell whether a source waits until tables have been read."""
        return any(self._left(table) for table in self._waits.get(name, ()))

    def take_mark(self, batch: Batch) -> None:
        """Take out the mark after a batch: it has its effect once."""
        for name, items in self._items.items():
            place = self._positions[name] + len(batch.get(name, []))
            is_there = place < len(items) and isinstance(items[place], Mark)
            if is_there and not self._is_held(name):
                del items[place]
                return

    def ends(self, batch: Batch) -> dict[str, int]:
        """Return the offset of each source after a batch."""
        return {name: self.offsets[name] + len(items) for name, items in batch.items()}

    def commit(self, batch: Batch) -> None:
        """Go on after a batch."""
        self.offsets.update(self.ends(batch))
        for name, items in batch.items():
            self._positions[name] += len(items)

    def drop(self, batch: Batch) -> None:
        """Forget a batch that is not to come again."""
        for name, items in batch.items():
            position = self._positions[name]
            del self._items[name][position : position + len(items)]
