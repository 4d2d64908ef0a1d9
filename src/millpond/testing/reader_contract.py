"""What every reader of a source must keep to, whoever wrote it.

Takes a way to make readers of the same records; raises an `AssertionError` that says what a
replay, another worker or the next run would get wrong.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from millpond.connectors.protocols import Offsets, SourceReader
from millpond.errors import shown
from millpond.worker.read_source import read_range

__all__ = ["check_reader"]

# Cuts of a range that are tried: the number of records is not known beforehand.
_CUTS = 20


class _Read(NamedTuple):
    """A record as a stage would get it, in bytes."""

    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int | None
    headers: Any


# What a record without a time gets in the first reading, and in the others: that of the batch.
_NOW = 1_700_000_000_000


def check_reader(
    make: Callable[[], SourceReader],
    begin: Offsets | None = None,
    *,
    grow: Callable[[], object] | None = None,
    name_of: Callable[[str], str] = str,
    decode: Callable[[bytes], Any] = bytes,
) -> None:
    """Check that ranges can be read again, by anybody and in pieces, and that ends only grow.

    Args:
        make: Returns a new reader, as another process would have it.
        begin: Where to begin. Default: where a new group begins.
        grow: Adds records to what the readers read.
        name_of: The name of a partition, for messages.
        decode: Reads values, for messages.

    Raises:
        AssertionError: with what was violated.
    """
    reader = make()
    begin = reader.initial("earliest") if begin is None else begin
    ends = reader.ends(begin)
    check = _Check(begin, name_of, decode)
    first = {partition: check.read(reader, partition, end) for partition, end in ends.items()}
    if not any(first.values()):
        raise AssertionError("there is nothing to check: give the source some records.")
    check.ends_only_grow(make(), ends)
    for who, other in (("again", reader), ("by a copy", pickled(reader)), ("by a new one", make())):
        for partition, end in ends.items():
            check.same(first[partition], check.read(other, partition, end), partition, end, who)
    for partition, end in ends.items():
        check.cuts(make(), partition, end, first[partition])
    check.fetched(make(), ends, first)
    if grow is not None:
        grow()
        later = make()
        more = later.ends(begin)
        if sum(more.values()) <= sum(ends.values()):
            raise AssertionError(f"records were added, and ends() gives {more} as before.")
        for partition, end in ends.items():
            who = "after records were added"
            check.same(first[partition], check.read(later, partition, end), partition, end, who)


def pickled(reader: SourceReader) -> SourceReader:
    """Return a copy, as a worker has it."""
    import cloudpickle

    try:
        data = cloudpickle.dumps(reader)
    except Exception as error:
        msg = f"the source cannot be sent to workers: {error}. Open connections in ends() and read"
        raise AssertionError(msg + "().") from error
    return pickle.loads(data)  # type: ignore[no-any-return]


class _Check:
    """Compares readings; knows where they began."""

    def __init__(
        self, begin: Offsets, name_of: Callable[[str], str], decode: Callable[[bytes], Any]
    ) -> None:
        self._begin = begin
        self._name_of = name_of
        self._decode = decode

    def read(self, reader: SourceReader, partition: str, end: int) -> list[_Read]:
        start = self._begin.get(partition, 0)
        return list(self._range(reader, partition, start, end))

    def _range(self, reader: SourceReader, partition: str, start: int, end: int) -> Iterator[_Read]:
        if start >= end:
            return
        for batch in read_range(reader, 0, partition, start, end, _NOW):
            for row in batch.to_pylist():
                headers = row.get("headers")
                place = (row["partition"], row["offset"])
                if not reader.counts_files and not start <= row["offset"] < end:
                    msg = f"{self._call(partition, start, end)} gives offset {row['offset']}."
                    raise AssertionError(msg)
                yield _Read(*place, row["key"], row["value"], row["timestamp"], headers)

    def ends_only_grow(self, reader: SourceReader, ends: Offsets) -> None:
        for partition, end in reader.ends(ends).items():
            if end < ends.get(partition, 0):
                msg = (
                    f"ends() says that partition {self._name_of(partition)!r} ends at {end}, and "
                    f"said {ends[partition]} before: offsets never go back."
                )
                raise AssertionError(msg)
        for partition, end in reader.known(ends).items():
            if end < self._begin.get(partition, 0):
                msg = f"known() says that partition {partition!r} ends at {end}, before its begin."
                raise AssertionError(msg)

    def same(
        self, first: list[_Read], other: list[_Read], partition: str, end: int, who: str
    ) -> None:
        call = self._call(partition, self._begin.get(partition, 0), end)
        self._compare(first, other, f"{call}, read {who},")

    def cuts(self, reader: SourceReader, partition: str, end: int, first: list[_Read]) -> None:
        """Read a range in pieces: tasks share ranges, and batches have limits."""
        start = self._begin.get(partition, 0)
        step = max(1, (end - start) // _CUTS)
        for cut in range(start + 1, end, step):
            pieces = [(start, cut), (cut, end)]
            found = [
                row for low, high in pieces for row in self._range(reader, partition, low, high)
            ]
            call = self._call(partition, start, end)
            self._compare(first, found, f"{call}, read in two pieces that meet at {cut},")

    def fetched(self, reader: SourceReader, ends: Offsets, first: dict[str, list[_Read]]) -> None:
        wanted = [(p, self._begin.get(p, 0), end) for p, end in ends.items()]
        reader.fetch([(p, start, end) for p, start, end in wanted if start < end])
        for partition, end in ends.items():
            found = self.read(reader, partition, end)
            self.same(first[partition], found, partition, end, "after fetch()")

    def _call(self, partition: str, start: int, end: int) -> str:
        return f"read({self._name_of(partition)!r}, {start}, {end})"

    def _compare(self, first: list[_Read], other: list[_Read], what: str) -> None:
        for before, now in zip(first, other, strict=False):
            if before != now:
                raise AssertionError(self._difference(before, now, what))
        if len(first) != len(other):
            msg = f"{what} gives {len(other)} record(s), and gave {len(first)} before: the same"
            raise AssertionError(msg + " range must always give the same records.")

    def _difference(self, before: _Read, now: _Read, what: str) -> str:
        field = next(name for name in _Read._fields if getattr(before, name) != getattr(now, name))
        old, new = (self._said(field, row) for row in (before, now))
        hint = {
            "offset": "give mp.Record(..., offset=...) where offsets have gaps",
            "timestamp": "the time of the clock is another one in a replay",
        }.get(field, "the same range must always give the same records")
        place = f"at offset {before.offset}"
        return f"{what} gives another {field}: {new}, and gave {old} {place}: {hint}."

    def _said(self, field: str, row: _Read) -> str:
        found = getattr(row, field)
        is_value = field == "value" and isinstance(found, bytes)
        return shown(self._decode(found) if is_value else found)
