"""What time it is in one batch: decided on the driver, read in workers.

A clock is recorded with the batch's offsets and travels with its rows, so a batch that is replayed
has the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from millpond.state.timer_index import NEVER

__all__ = ["Clock"]

_encode = msgspec.msgpack.Encoder().encode
_Marks = tuple[int | None, ...]
_decode = msgspec.msgpack.Decoder(tuple[int, int, _Marks, _Marks]).decode


class Clock(NamedTuple):
    """The time of one batch."""

    seq: int = 0
    """Counts the clocks of an application."""
    now: int = 0
    """The wall clock as it is, in milliseconds since 1970: who sets it back, sets it back here."""
    marks: tuple[int | None, ...] = ()
    """The watermark of each clock point; None: nothing came by yet."""
    before: tuple[int | None, ...] = ()
    """The same in the batch before."""

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Clock:
        return cls(*_decode(data))

    def least(self, points: tuple[int, ...]) -> int:
        """Return the watermark of a step that lies after some points."""
        return _least(self.marks, points)

    def least_before(self, points: tuple[int, ...]) -> int:
        """Return what it was in the batch before."""
        return _least(self.before, points)


def _least(marks: _Marks, points: tuple[int, ...]) -> int:
    found = [marks[p] if p < len(marks) else None for p in points]
    return NEVER if not found or None in found else min(found)  # type: ignore[type-var,return-value]
