"""`join_asof`: each left record meets the right one that is nearest in time.

By default a left record waits until the watermark says which right one that is; with `emit="now"`
it takes what is there. Of the right records, those stay that a left one may still meet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from millpond.arguments.joins import AsOf
from millpond.program.steps import Join
from millpond.worker.emit import StepFailure
from millpond.worker.join import JoinLogic
from millpond.worker.join_buffer import Buffer, Kept
from millpond.worker.schedule import Firing

__all__ = ["AsOfJoin"]

_time = attrgetter("timestamp")


class AsOfJoin(JoinLogic):
    """An as-of join. Its state: the left records that wait, and the right ones."""

    def __init__(self, step: Join, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, AsOf)
        self._kind = step.kind
        self._lefts = Buffer(self.state, "l", None)
        self._rights = Buffer(self.state, "r", None)
        self._waits = step.kind.emit == "watermark"
        self._looks_back = step.kind.direction in ("backward", "nearest")
        self._looks_on = step.kind.direction in ("forward", "nearest")

    def take(
        self, side: int, value: Any, key: Any, timestamp: int, headers: Any
    ) -> list[tuple[Any, int, Any]]:
        closed = self.step_clock.late_mark
        if side:
            self._take_right(value, key, timestamp, headers, closed)
            return []
        if not self._waits:
            return self._joined(
                (value, headers), timestamp, self._nearest(self._known(), timestamp)
            )
        if timestamp < closed:
            self.is_late(side, value, key, timestamp, closed)
            return []
        self._lefts.add(timestamp, value, headers, is_matched=False)
        self.register(timestamp + 1)
        return []

    def _take_right(self, value: Any, key: Any, timestamp: int, headers: Any, closed: int) -> None:
        if timestamp < closed and self._is_met_by_none(timestamp, closed):
            self.is_late(1, value, key, timestamp, closed)
            return
        self._rights.add(timestamp, value, None, is_matched=False)
        self.register(timestamp + 1 if self._waits else timestamp + self._kind.reach_ms + 1)

    def _is_met_by_none(self, timestamp: int, closed: int) -> bool:
        """Tell whether no left record that waits or will come can meet a late right one."""
        if not self._waits:
            return timestamp < closed - self._kind.reach_ms
        this = [Kept(timestamp, 0, 0, is_matched=False)]
        if any(self._nearest(this, left.timestamp) for left in self._lefts.all()):
            return False
        if not self._looks_back or timestamp < closed - self._kind.reach_ms:
            return True
        return bool(self._rights.between(timestamp + 1, closed))

    def _known(self) -> list[Kept]:
        return sorted(self._rights.all())

    # --- who meets whom ---------------------------------------------------------------------

    def _nearest(self, rights: list[Kept], timestamp: int) -> Kept | None:
        """Return the right record that one of this time meets, of those that are there."""
        reach, place = self._kind.reach_ms, bisect_right(rights, timestamp, key=_time)
        before = rights[place - 1] if place and self._looks_back else None
        if before is not None and timestamp - before.timestamp > reach:
            before = None
        after = self._after(rights, timestamp) if self._looks_on else None
        if after is not None and after.timestamp - timestamp > reach:
            after = None
        if before is None or after is None:
            return after if before is None else before
        is_after = after.timestamp - timestamp < timestamp - before.timestamp
        return after if is_after else before

    def _after(self, rights: list[Kept], timestamp: int) -> Kept | None:
        """Return the last that came of the first right records at this time or later."""
        place = bisect_right(rights, timestamp - 1, key=_time)
        if place == len(rights):
            return None
        return rights[bisect_right(rights, rights[place].timestamp, key=_time) - 1]

    def _decided(self, rights: list[Kept], timestamp: int) -> int:
        """Return what the watermark must show for a left record to know whom it meets."""
        if not self._looks_on:
            return timestamp + 1
        far = self._kind.reach_ms
        nearest = self._nearest(rights, timestamp)
        if nearest is not None:
            far = abs(nearest.timestamp - timestamp)
        return timestamp + far + 1

    def _joined(
        self, left: tuple[Any, Any], timestamp: int, met: Kept | None
    ) -> list[tuple[Any, int, Any]]:
        value, headers = left
        if met is None and self._kind.how == "inner":
            return []
        other = None if met is None else self._rights.read(met)[0]
        return [(self.merged(0, value, other), timestamp, headers)]

    # --- waiting for the clock --------------------------------------------------------------

    def due(self) -> list[Firing]:
        watermark, rights = self.step_clock.watermark, self._known()
        found: list[Firing] = []
        for kept in self._lefts.all():
            at = self._decided(rights, kept.timestamp)
            if at <= watermark:
                drop = partial(self._lefts.remove, kept)
                run = self._meeting(kept, self._nearest(rights, kept.timestamp))
                found.append(Firing(at, f"l{kept.number:012}", run, drop))
        # After those that are due, because it takes away what they do not need.
        found.append(Firing(watermark, "~", lambda key: self._tidy(), lambda: None))
        return found

    def _meeting(self, left: Kept, met: Kept | None) -> Callable[[Any], None]:
        known = self._rights.added

        def meet(key: Any) -> None:
            try:
                record = self._lefts.read(left)
                self._lefts.remove(left)
                right = met
                if self._rights.added != known:  # a step above may have given a nearer one
                    right = self._nearest(self._known(), left.timestamp)
                results = self._joined(record, left.timestamp, right)
            except Exception as error:
                raise StepFailure(self.step, error) from error
            self.give(results, key)

        return meet

    def _tidy(self) -> None:
        """Forget the right records that no left one can meet any more."""
        rights = self._known()
        if self._waits:
            first = min([self.step_clock.watermark, *map(_time, self._lefts.all())])
            place = bisect_right(rights, first, key=_time)
            if place and self._is_needed(rights[place - 1].timestamp, first):
                place -= 1
        else:
            place = bisect_left(rights, self.step_clock.watermark - self._kind.reach_ms, key=_time)
        for kept in rights[:place]:
            self._rights.remove(kept)
        self._rights.compact()
        self._lefts.compact()

    def _is_needed(self, timestamp: int, first: int) -> bool:
        """Tell whether the last right record up to the first left one may be met by it."""
        return timestamp == first or (self._looks_back and timestamp >= first - self._kind.reach_ms)

    def next_due(self) -> int | None:
        rights = self._known()
        watermark = self.step_clock.watermark
        moments = [self._decided(rights, kept.timestamp) for kept in self._lefts.all()]
        forgotten = (self._forgotten(kept, watermark) for kept in rights)
        # One that was to be forgotten before is kept for a left record that waits.
        moments += [moment for moment in forgotten if moment > watermark]
        return min((moment + self.delay_ms for moment in moments), default=None)

    def _forgotten(self, right: Kept, watermark: int) -> int:
        """Return when to see whether a right record is still needed."""
        if not self._waits:
            return right.timestamp + self._kind.reach_ms + 1
        if right.timestamp >= watermark:
            return right.timestamp + 1
        return right.timestamp + self._kind.reach_ms + 1
