"""Contract suites for sources of the user's own.

Takes a way to make the source; raises an `AssertionError` that says what would not be exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

from millpond.connectors.as_source import as_source
from millpond.connectors.custom_source import CustomSource, Row, name_of
from millpond.connectors.polled_source import PolledSource, PollSpool
from millpond.connectors.protocols import PollSource, Source
from millpond.errors import SourceError, shown
from millpond.state.codec import Codec
from millpond.testing.reader_contract import check_reader

__all__ = ["check_source"]

# Polls after which a source is taken to have no end.
_POLLS = 1_000

_NOW = 1_700_000_000_000


def check_source(
    make: Callable[[], Source | PollSource], *, grow: Callable[[], object] | None = None
) -> None:
    """Check that a source keeps its contract, so that results are exactly once.

    For a `Source`: ranges give the same records whenever, wherever and in whatever pieces they are
    read; ends only grow; the object can be sent to workers. For a `PollSource`: positions can be
    kept, and reading goes on after one.

    >>> import millpond as mp
    >>> class Letters(mp.Source):
    ...     name = "letters"
    ...     def ends(self):
    ...         return {"0": 3}
    ...     def read(self, partition, start, end):
    ...         return list("abc"[start:end])
    >>> check_source(Letters)

    Args:
        make: Returns a new object that reads the same records, as another process would make it.
            There must be some records.
        grow: Adds records to what the source reads, as happens between two batches.

    Raises:
        AssertionError: with what was violated.
    """
    settings = as_source(make(), Codec())
    try:
        if isinstance(settings, PolledSource):
            _check_polled(lambda: _polled(make()), grow)
        elif isinstance(settings, CustomSource):
            decode = settings.value_deserializer
            check_reader(
                lambda: _custom(make()).reader(""), grow=grow, name_of=name_of, decode=decode
            )
        else:
            msg = f"check_source() is for a Source or a PollSource, got {shown(settings)}."
            raise AssertionError(msg)
    except SourceError as error:
        raise AssertionError(str(error)) from error


def _custom(given: Any) -> CustomSource:
    settings = as_source(given, Codec())
    assert isinstance(settings, CustomSource)
    return settings


def _polled(given: Any) -> PolledSource:
    settings = as_source(given, Codec())
    assert isinstance(settings, PolledSource)
    return settings


def _check_polled(make: Callable[[], PolledSource], grow: Callable[[], object] | None) -> None:
    source = make()
    pieces, position = _polls(source, None)
    if not pieces:
        raise AssertionError("there is nothing to check: the first poll must give some records.")
    _check_spool(make())
    _check_repeats(source, pieces)
    if grow is not None:
        grow()
        later, _ = _polls(make(), position)
        if not later:
            msg = f"records were added, and poll({shown(position)}) gives none."
            raise AssertionError(msg)
        old, new = pieces[-1][1], later[0][1]
        if [row[:3] for row in new] == [row[:3] for row in old]:
            msg = f"poll({shown(position)}) of a new object gives {shown(new[0].value)} again"
            raise AssertionError(f"{msg}: it must give what comes after the position.")


def _polls(source: PolledSource, position: Any) -> tuple[list[tuple[Any, list[Row]]], Any]:
    """Return what polls give until one gives nothing, each with the position it was asked for."""
    pieces: list[tuple[Any, list[Row]]] = []
    for _ in range(_POLLS):
        rows, after = source.poll(position)
        if not rows:
            return pieces, after
        pieces.append((position, rows))
        position = after
    return pieces, position


def _check_repeats(source: PolledSource, pieces: list[tuple[Any, list[Row]]]) -> None:
    for (before, old), (after, new) in pairwise(pieces):
        if before == after and before is not None and old == new:
            msg = (
                f"poll({shown(before)}) gave records, and the same position again: they would be "
                "read once more."
            )
            raise AssertionError(msg)
        if old == new:
            msg = f"poll({shown(after)}) gives {shown(new[0].value)} again, as did the poll before"
            raise AssertionError(f"{msg}: it must give what comes after the position.")


def _check_spool(source: PolledSource) -> None:
    """Write a piece to a spool, and look at what a run after it finds."""
    with TemporaryDirectory() as folder:
        spool = PollSpool(source, folder, drains=True)
        count = spool.advance(1, _NOW)
        again = PollSpool(source, folder, drains=True)
        if again.taken != count or again.position != spool.position:
            raise AssertionError("the spool has lost what was polled.")
