"""When which keys of a group must be looked at.

Takes timers (a moment, a key); gives the keys whose moment has come. A timer only says "look": what
is due is written at the key, so a timer too many does no harm. Timers lie in buckets that get wider
with the distance from now (as in a timing wheel): a batch writes the buckets it adds to and reads
those that are due, however many timers there are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from millpond.errors import DamagedStateError
from millpond.state.store import Store

__all__ = ["NEVER", "TimerIndex"]

NEVER = -(2**63)
"""What a clock shows before it has seen anything."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, bytes | None]]).decode

# The narrowest bucket is 2 ** 10 milliseconds wide: timers of one second are read together.
_NARROWEST = 10

# A chunk of a bucket is added to until it has this many bytes.
_CHUNK_BYTES = 16 * 1024

# The version byte of every chunk.
_VERSION = b"\x01"

Timer = tuple[int, bytes | None]


class _Bucket:
    """The timers of one stretch of time, in chunks on the store."""

    __slots__ = ("chunks", "first", "size")

    def __init__(self, first: int, chunks: int = 0, size: int = 0) -> None:
        self.first = first
        """The earliest moment in it."""
        self.chunks = chunks
        self.size = size
        """Bytes of the last chunk."""


class TimerIndex:
    """The timers of one key group by one clock."""

    def __init__(self, store: Store, name: bytes, head: list[Any] | None = None) -> None:
        self._store = store
        self._name = name
        self._buckets = {
            (level, index): _Bucket(first, chunks, size)
            for level, index, first, chunks, size in head or []
        }
        self._fresh: list[Timer] = []
        self.is_changed = False

    @property
    def head(self) -> list[Any]:
        """What the group's head must keep of it."""
        return [[*place, b.first, b.chunks, b.size] for place, b in sorted(self._buckets.items())]

    @property
    def next_due(self) -> int | None:
        """The earliest moment at which there is something to look at."""
        written = (bucket.first for bucket in self._buckets.values())
        fresh = (due for due, _ in self._fresh)
        return min([*written, *fresh], default=None)

    def add(self, due: int, key: bytes | None) -> None:
        """Note that a key must be looked at when the clock shows `due`."""
        self._fresh.append((due, key))
        self.is_changed = True

    def take_due(self, clock: int) -> list[Timer]:
        """Return and forget the timers up to a moment, in the order of their moments."""
        found = [timer for timer in self._fresh if timer[0] <= clock]
        if found:
            self._fresh = [timer for timer in self._fresh if timer[0] > clock]
        for place, bucket in list(self._buckets.items()):
            if bucket.first <= clock:
                for timer in self._read(place, bucket):
                    (found if timer[0] <= clock else self._fresh).append(timer)
                self._remove(place, bucket)
        self.is_changed = self.is_changed or bool(found)
        return sorted(found, key=lambda timer: (timer[0], timer[1] is not None, timer[1] or b""))

    def flush(self, clock: int) -> None:
        """Write what was added; the clock decides how wide the buckets are."""
        if clock == NEVER:  # nothing is known of the time: as if the first timer were due
            clock = min((due for due, _ in self._fresh), default=0)
        sorted_in: dict[tuple[int, int], list[Timer]] = defaultdict(list)
        for due, key in self._fresh:
            level = max(_NARROWEST, max(due - clock, 0).bit_length() - 3)
            sorted_in[level, due >> level].append((due, key))
        for place, timers in sorted_in.items():
            self._append(place, timers)
        self._fresh = []
        self.is_changed = False

    def _append(self, place: tuple[int, int], timers: list[Timer]) -> None:
        first = min(due for due, _ in timers)
        bucket = self._buckets.setdefault(place, _Bucket(first))
        bucket.first = min(bucket.first, first)
        if bucket.chunks and bucket.size < _CHUNK_BYTES:
            timers = self._chunk(place, bucket.chunks - 1) + timers
        else:
            bucket.chunks += 1
        blob = _VERSION + _encode(timers)
        bucket.size = len(blob)
        self._store.put(self._chunk_id(place, bucket.chunks - 1), blob)

    def _read(self, place: tuple[int, int], bucket: _Bucket) -> list[Timer]:
        return [timer for number in range(bucket.chunks) for timer in self._chunk(place, number)]

    def _remove(self, place: tuple[int, int], bucket: _Bucket) -> None:
        for number in range(bucket.chunks):
            self._store.delete(self._chunk_id(place, number))
        del self._buckets[place]
        self.is_changed = True

    def _chunk(self, place: tuple[int, int], number: int) -> list[Timer]:
        blob = self._store.get(self._chunk_id(place, number))
        if blob is None:
            msg = f"a part of the timer index is missing from the state (bucket {place})."
            raise DamagedStateError(msg + "\nFix: millpond state repair APP.py.")
        return _decode(memoryview(blob)[1:])

    def _chunk_id(self, place: tuple[int, int], number: int) -> bytes:
        level, index = place
        where = bytes([level]) + index.to_bytes(8, "big", signed=True)
        length = len(self._name).to_bytes(2, "big")
        return b"a" + length + self._name + where + number.to_bytes(4, "big")
