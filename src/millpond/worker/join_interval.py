"""`join_interval`: every pair of records whose times are near enough, once.

A record stays for as long as one that is not late may meet it. A pair is given when the second of
the two comes. A record that met none is given when its time is over, where its side is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millpond.arguments.joins import Interval
from millpond.program.steps import Join
from millpond.worker.emit import StepFailure
from millpond.worker.join import JoinLogic
from millpond.worker.join_buffer import Buffer, Kept
from millpond.worker.schedule import Firing

__all__ = ["IntervalJoin"]


class IntervalJoin(JoinLogic):
    """An interval join. Its state: a `Buffer` for each side."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, Interval)
        kind = self._kind = step.kind
        self._sides = [Buffer(self.state, side, kind.width_ms) for side in "lr"]
        # For a record of each side, from where to where those of the other are that it meets.
        self._reach = ((-kind.backward_ms, kind.forward_ms), (-kind.forward_ms, kind.backward_ms))
        self._lasts = (kind.lasts_ms(0), kind.lasts_ms(1))
        keeps = (kind.how in ("left", "outer"), kind.how in ("right", "outer"))
        self._waits = tuple(kind.emit == "watermark" and is_kept for is_kept in keeps)
        self._gives_at_once = tuple(kind.emit == "now" and is_kept for is_kept in keeps)

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        closed = self.step_clock.late_mark - self._kind.grace_ms
        if timestamp < closed:
            self.is_late(side, value, key, timestamp, closed)
            return []
        least, most = self._reach[side]
        others = self._sides[1 - side]
        met = others.between(timestamp + least, timestamp + most)
        self._sides[side].add(timestamp, value, headers, is_matched=bool(met))
        self.register(self._over(side, timestamp))
        if not met:
            if not self._gives_at_once[side]:
                return []
            return [(self.merged(side, value, None), timestamp, None)]
        results = []
        for kept, mine in zip(met, self.shared(value, len(met)), strict=True):
            others.match(kept)
            other, _ = others.read(kept)
            results.append((self.merged(side, mine, other), max(timestamp, kept.timestamp), None))
        return results

    def _over(self, side: int, timestamp: int) -> int:
        """Return when a record can meet no other any more."""
        if not self._waits[side]:  # with all of its bucket
            timestamp += self._kind.width_ms - 1 - timestamp % self._kind.width_ms
        return timestamp + self._lasts[side] + 1

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        found: list[Firing] = []
        for side, buffer in enumerate(self._sides):
            if self._waits[side]:
                for kept in buffer.all():
                    at = self._over(side, kept.timestamp)
                    if at <= watermark:
                        name = f"{side} {kept.bucket} {kept.number:012}"
                        drop = partial(buffer.remove, kept)
                        found.append(Firing(at, name, self._ender(side, kept), drop))
                continue
            for bucket in buffer.buckets():
                at = self._over(side, bucket * self._kind.width_ms)
                if at <= watermark:
                    drop = partial(buffer.drop, bucket)
                    found.append(Firing(at, f"{side} {bucket}", _for_any(drop), drop))
        return found

    def _ender(self, side: int, kept: Kept) -> Callable[[Any], None]:
        buffer = self._sides[side]

        def end(key: Any) -> None:
            now = buffer.now(kept)  # a step above may have met it since it was found to be due
            if now is None:
                return
            if now.is_matched:
                buffer.remove(kept)
                return
            try:
                value, _ = buffer.read(kept)
                buffer.remove(kept)
                result = self.merged(side, value, None)
            except Exception as error:
                raise StepFailure(self.step, error) from error
            self.give([(result, kept.timestamp, None)], key)

        return end

    def next_due(self) -> int | None:
        moments: list[int] = []
        for side, buffer in enumerate(self._sides):
            if self._waits[side]:
                moments += (self._over(side, kept.timestamp) for kept in buffer.all())
            else:
                width = self._kind.width_ms
                moments += (self._over(side, bucket * width) for bucket in buffer.buckets())
        return min((moment + self.delay_ms for moment in moments), default=None)


def _for_any(drop: Callable[[], None]) -> Callable[[Any], None]:
    return lambda key: drop()
