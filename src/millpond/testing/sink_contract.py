"""A contract suite for sinks.

Takes a way to make the sink and a way to read what it has stored; raises an `AssertionError` that
says which records would be lost, or written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from millpond.connectors.delivery_id import delivery_id
from millpond.connectors.protocols import Sink, SinkBatch
from millpond.connectors.sinks import as_sink
from millpond.record import Record

__all__ = ["check_sink"]

_RECORDS = [
    Record("ann", {"n": 1}, 1_700_000_000_000, None, "clicks", 0, 0),
    Record("bob", {"n": 2}, 1_700_000_000_001, None, "clicks", 0, 1),
    Record("ann", {"n": 3}, 1_700_000_000_002, None, "clicks", 1, 0),
]


class _ConnectionLostError(Exception):
    """What happens in the middle of a batch."""


class _Torn(Sequence[Record]):
    """Records of which the last cannot be had."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        yield from self._records[:-1]
        raise _ConnectionLostError


def check_sink(
    make: Callable[[], Sink | Callable[[list[Record], str], Any]],
    read: Callable[[], Iterable[Any]],
    records: Sequence[Record] = _RECORDS,
    *,
    exactly_once: bool = True,
) -> None:
    """Check that a sink stores each delivery, and stores it once.

    >>> from millpond import ListSink
    >>> sink = ListSink()
    >>> check_sink(lambda: sink, lambda: sink)

    Args:
        make: Returns a new object of the sink on the same storage, as the next run makes it.
        read: Returns what is stored now, one element for each record.
        records: What to write; at least two.
        exactly_once: False for a sink that does not store ids: a delivery may then be written
            again, and only what is lost or half written is a violation.

    Raises:
        AssertionError: with what was violated.
    """
    first, second = (delivery_id("check", n, None, "sink") for n in (1, 2))
    count, sink = len(records), as_sink(make())
    before = len(list(read()))

    def stored() -> int:
        return len(list(read())) - before

    _torn(sink, first, records)
    if exactly_once:
        _expect(stored(), 0, "after a delivery that failed in its middle", "write all or nothing")
    kept = stored()
    sink.write(SinkBatch(first, list(records)))
    what = "after the delivery came again, complete" if exactly_once else "after a delivery"
    _expect(stored() - kept, count, what, "do not keep the id of what was not written")
    if exactly_once:
        sink.write(SinkBatch(first, list(records)))
        what = "after the same delivery came twice"
        _expect(stored(), count, what, "skip an id that is stored")
        sink = as_sink(make())
        sink.write(SinkBatch(first, list(records)))
        what = "after the same delivery came to a new object, as after a restart"
        _expect(stored(), count, what, "store the id with the records")
    kept = stored()
    sink.write(SinkBatch(second, list(records)))
    what = "after another delivery with the same records"
    _expect(stored() - kept, count, what, "tell deliveries by their id, not by their records")


def _torn(sink: Sink, delivery: str, records: Sequence[Record]) -> None:
    try:
        sink.write(SinkBatch(delivery, _Torn(records)))
    except Exception:  # whatever it makes of the error
        return
    msg = "write() failed in the middle of a batch and raised nothing: the batch would be lost."
    raise AssertionError(msg)


def _expect(found: int, wanted: int, what: str, fix: str) -> None:
    if found != wanted:
        msg = f"{what}, the sink has {found} new record(s), and not {wanted}: {fix}."
        raise AssertionError(msg)
