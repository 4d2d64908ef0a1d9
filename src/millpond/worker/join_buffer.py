"""The records of one side of a join that a key keeps, by their time.

Takes records; gives those of a span of time, each by the name under which it is kept. Records are
kept in buckets of time. A bucket has heads of up to 128 records: bytes with each record's time and
what became of it, so that looking for a time reads no value. The value of a record has a name of
its own.

The state of a bucket `b` of the side `l`: `lb` and `lb+1`, `lb+2`, ... are its heads, `lb.0`,
`lb.1`, ... its records: a list of time, value and, where it has any, headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from millpond.state.view import State

__all__ = ["GONE", "MATCHED", "Buffer", "Kept"]

MATCHED, GONE = 1, 2

_RECORD = Struct("<qB")
_SIZE = _RECORD.size

# Records of a head: each new one writes it again, and each search reads it.
_MOST = 128


class Kept(NamedTuple):
    """Where a record is kept. In the order of time, and of arrival."""

    timestamp: int
    bucket: int
    number: int
    is_matched: bool


class Buffer:
    """One side of a join, of the key in view."""

    def __init__(self, state: State, side: str, width_ms: int | None) -> None:
        """Make a buffer.

        Args:
            state: What the join keeps for a key.
            side: One letter.
            width_ms: The milliseconds of a bucket; None: there is one for all times.
        """
        self._state = state
        self._side = side
        self._width = width_ms
        self.added = 0
        """How many records were added, of any key: tells whether there can be new ones."""

    def _bucket(self, timestamp: int) -> int:
        return 0 if self._width is None else timestamp // self._width

    def _head(self, bucket: int, number: int) -> str:
        return f"{self._side}{bucket}+{number}" if number else f"{self._side}{bucket}"

    def add(self, timestamp: int, value: Any, headers: Any, *, is_matched: bool) -> None:
        """Keep a record."""
        state, bucket = self._state, self._bucket(timestamp)
        self.added += 1
        number, head = 0, b""
        while (found := state.get(self._head(bucket, number))) is not None:
            if found and len(found) < _MOST * _SIZE:
                head = found
                break
            number += 1
        place = number * _MOST + len(head) // _SIZE
        kept = [timestamp, value] if headers is None else [timestamp, value, headers]
        state.set(f"{self._side}{bucket}.{place}", kept)
        mark = MATCHED if is_matched else 0
        state.set(self._head(bucket, number), head + _RECORD.pack(timestamp, mark))

    def between(self, first: int, last: int) -> list[Kept]:
        """Return the records of a span of time, both ends included, in the order of time."""
        found: list[Kept] = []
        for bucket in range(self._bucket(first), self._bucket(last) + 1):
            found += [kept for kept in self._of(bucket) if first <= kept.timestamp <= last]
        if len(found) > 1:
            found.sort()
        return found

    def _of(self, bucket: int) -> Iterator[Kept]:
        """Yield the records of a bucket in the order of their arrival."""
        number = 0
        while (head := self._state.get(self._head(bucket, number))) is not None:
            for place, (timestamp, mark) in enumerate(_RECORD.iter_unpack(head)):
                if not mark & GONE:
                    yield Kept(timestamp, bucket, number * _MOST + place, bool(mark & MATCHED))
            number += 1

    def buckets(self) -> list[int]:
        """Return the buckets that have records."""
        names = self._state.keys()
        numbers = (n[1:] for n in names if n[0] == self._side and "." not in n and "+" not in n)
        return sorted(map(int, numbers))

    def now(self, kept: Kept) -> Kept | None:
        """Return what has become of a record; None: it is gone."""
        number, place = divmod(kept.number, _MOST)
        head = self._state.get(self._head(kept.bucket, number)) or b""
        if len(head) < (place + 1) * _SIZE:
            return None
        _, mark = _RECORD.unpack_from(head, place * _SIZE)
        return None if mark & GONE else kept._replace(is_matched=bool(mark & MATCHED))

    def all(self) -> Iterator[Kept]:
        """Yield every record."""
        for bucket in self.buckets():
            yield from self._of(bucket)

    def read(self, kept: Kept) -> tuple[Any, Any]:
        """Return the value and the headers of a record."""
        _, value, *headers = self._state.get(f"{self._side}{kept.bucket}.{kept.number}")
        return value, headers[0] if headers else None

    def match(self, kept: Kept) -> None:
        """Note that a record has met another."""
        if not kept.is_matched:
            self._mark(kept, MATCHED)

    def remove(self, kept: Kept) -> None:
        """Forget a record."""
        self._state.delete(f"{self._side}{kept.bucket}.{kept.number}")
        self._mark(kept, GONE)

    def drop(self, bucket: int) -> None:
        """Forget all records of a bucket."""
        for kept in list(self._of(bucket)):
            self._state.delete(f"{self._side}{bucket}.{kept.number}")
        self._drop_heads(bucket)

    def _mark(self, kept: Kept, mark: int) -> None:
        number, place = divmod(kept.number, _MOST)
        name = self._head(kept.bucket, number)
        head = bytearray(self._state.get(name))
        head[(place + 1) * _SIZE - 1] |= mark
        if mark != GONE or any(m & GONE == 0 for m in head[_SIZE - 1 :: _SIZE]):
            self._state.set(name, bytes(head))
            return
        self._state.set(name, b"")
        if next(self._of(kept.bucket), None) is None:
            self._drop_heads(kept.bucket)

    def _drop_heads(self, bucket: int) -> None:
        number = 0
        while self._state.get(self._head(bucket, number)) is not None:
            self._state.delete(self._head(bucket, number))
            number += 1

    def compact(self) -> None:
        """Write the records of the only bucket again where most of its heads are empty."""
        if self._state.get(self._head(0, 1)) is None:
            return
        left = list(self._of(0))
        heads = left[-1].number // _MOST + 1 if left else 0
        if heads * _MOST <= 4 * len(left):
            return
        records = [(kept, *self.read(kept)) for kept in left]
        self.drop(0)
        for kept, value, headers in records:
            self.add(kept.timestamp, value, headers, is_matched=kept.is_matched)
