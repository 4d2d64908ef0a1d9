"""Sessions of a key: records with no longer gap between them than the window allows.

A record may begin a session, lengthen one on either side, or join two into one. States of both
are merged where that is exact whatever the order; otherwise a session keeps its records.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from millpond.runtime.emit import StepFailure
from millpond.runtime.schedule import Happening
from millpond.runtime.windows import Result, WindowLogic
from millpond.steps.kinds import Window
from millpond.windows import Session

__all__ = ["Sessions"]

# A session: [start, last timestamp, states]; with its records, [start, last, [(n, time, value)]].
Open = list[Any]


class Sessions(WindowLogic):
    """Session windows. State: (latest timestamp, records so far, sessions by start) under ""."""

    def __init__(self, step: Window, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, Session)
        self._kind = step.kind
        self._keeps_records = not self.totals.is_commutative

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> list[Result]:
        kind = self._kind
        latest, count, sessions = self._load(timestamp)
        now = max(latest, timestamp)
        closed = (now if self.by_key else self.step_clock.late_mark) - kind.grace_ms
        joined = [s for s in sessions if s[0] - kind.gap_ms <= timestamp <= s[1] + kind.gap_ms]
        if not joined and timestamp + kind.gap_ms < closed:
            # It would have been a session of its own, and such a one is closed up to a gap earlier.
            closed -= kind.gap_ms
            self.is_late(value, key, timestamp, timestamp, timestamp + 1, closed)
            self.note_late()
            return []
        grown = self._grown(joined, value, timestamp, count)
        sessions = sorted([s for s in sessions if s not in joined] + [grown], key=_start)
        given = [] if self.is_final else [self._result(grown)]
        if self.by_key:
            over = [s for s in sessions if s[1] + kind.gap_ms < closed]
            sessions = [s for s in sessions if s not in over]
            given = [self._result(s) for s in over] if self.is_final else given
        self._save(now, count + 1, sessions)
        if not self.by_key:
            self.remind(self._end_of(grown))
        return given

    def _grown(self, joined: list[Open], value: Any, timestamp: int, count: int) -> Open:
        """Return one session of those that a record joins, and of the record."""
        start = min([timestamp, *(s[0] for s in joined)])
        last = max([timestamp, *(s[1] for s in joined)])
        if self._keeps_records:
            records = sorted(record for s in joined for record in s[2]) if len(joined) > 1 else []
            records = records or [record for s in joined for record in s[2]]
            return [start, last, [*records, (count, timestamp, value)]]
        states = joined[0][2] if joined else self.totals.start()
        for other in joined[1:]:
            states = self.totals.merge(states, other[2])
        return [start, last, self.totals.add(states, value, timestamp)]

    def _result(self, session: Open) -> Result:
        start, last, kept = session
        if self._keeps_records:
            states = self.totals.start()
            for _, timestamp, value in kept:
                states = self.totals.add(states, value, timestamp)
            kept = states
        # The end is the first moment after the session, as with all windows of a length. A session
        # may have begun long ago, so what follows tells the time by its last record.
        _, result = self.result(start, last + 1, kept)
        return last, result

    def _load(self, timestamp: int = 0) -> tuple[int, int, list[Open]]:
        return self.state.get("", (timestamp, 0, []))  # type: ignore[no-any-return]

    def _save(self, latest: int, count: int, sessions: list[Open]) -> None:
        if sessions or self.by_key:
            self.state.set("", (latest, count, sessions))
        else:
            self.state.delete("")

    # --- waiting for the watermark ----------------------------------------------------------

    def _end_of(self, session: Open) -> int:
        # The gap is part of the session: a record that comes just at its end still joins.
        return int(session[1]) + self._kind.gap_ms + self._kind.grace_ms + 1

    def due(self) -> list[Happening]:
        watermark = self.step_clock.watermark
        sessions = [] if self.by_key else self._load()[2]
        return [
            Happening(at, str(s[0]), partial(self._close, s), partial(self._forget, s))
            for s in sessions
            if (at := self._end_of(s)) <= watermark
        ]

    def next_due(self) -> int | None:
        delay = self.delay_ms
        sessions = [] if self.by_key else self._load()[2]
        return min((self._end_of(session) + delay for session in sessions), default=None)

    def _close(self, session: Open, key: Any) -> None:
        try:
            self._forget(session)
            result = self._result(session)
        except Exception as error:
            raise StepFailure(self.step, error) from error
        if self.is_final:
            self.give([result], key)

    def _forget(self, session: Open) -> None:
        latest, count, sessions = self._load()
        self._save(latest, count, [s for s in sessions if s[0] != session[0]])


def _start(session: Open) -> Any:
    return session[0]
