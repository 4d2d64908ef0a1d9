"""Sessions of a key: records with no longer gap between them than the window allows.

A record may begin a session, lengthen one on either side, or join two into one. States of both
are merged where that is exact whatever the order; otherwise a session keeps its records. Where a
program before kept the one and this one keeps the other, a session is taken over as it is read:
records become states, and what there is of states stays in front of the records that follow.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from millpond.aggregations import (
    Aggregation,
    Count,
    CountDistinct,
    Earliest,
    Latest,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    Variance,
)
from millpond.arguments.windows import Session
from millpond.program.layouts import Layout
from millpond.program.steps import Window
from millpond.worker.emit import StepFailure
from millpond.worker.schedule import Firing
from millpond.worker.time_window import Result, WindowLogic
from millpond.worker.totals import is_commutative

__all__ = ["Sessions", "kept_states", "session_parts"]

# A session: [start, last timestamp, kept], what `Totals` keeps of its states; with its records,
# [start, last, [(n, time, value)], kept], kept of what was before them, or None. Version 0.1.0
# left the last one out.
Open = list[Any]

# Aggregations of ours with which a session keeps states: their names begin their signatures.
_COMMUTATIVE = {
    kind.__name__
    for kind in (Count, CountDistinct, Earliest, Latest, Max, Mean, Min, StdDev, Sum, Variance)
}


class Sessions(WindowLogic):
    """Session windows. State: (latest timestamp, records so far, sessions by start) under ""."""

    def __init__(self, step: Window, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, Session)
        self._kind = step.kind
        self._keeps_records = not self.totals.is_commutative
        first = rest[-1][0] if rest[-1] else step.layout
        self._kept_states = kept_states(first, step.aggregations)

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
            self.register(self._end_of(grown))
        return given

    def _grown(self, joined: list[Open], value: Any, timestamp: int, count: int) -> Open:
        """Return one session of those that a record joins, and of the record."""
        start = min([timestamp, *(s[0] for s in joined)])
        last = max([timestamp, *(s[1] for s in joined)])
        totals = self.totals
        if self._keeps_records:
            parts = [self._parts(session) for session in joined]
            records = [record for found, _ in parts for record in found]
            before = [kept for _, kept in parts if kept is not None]
            records = sorted(records) if len(joined) > 1 else records
            return [start, last, [*records, (count, timestamp, value)], self._joined(before)]
        states = self._states(joined[0]) if joined else totals.start()
        for other in joined[1:]:
            states = totals.merge(states, self._states(other))
        if totals.is_evolved:
            states = totals.started(states)
        return [start, last, totals.keep(totals.add(states, value, timestamp))]

    def _joined(self, before: list[Any]) -> Any:
        """Return what is kept of the states that sessions had in front of their records."""
        if len(before) < 2:
            return before[0] if before else None
        states = self.totals.lifted(before[0])
        for other in before[1:]:
            states = self.totals.merge_commutative(states, self.totals.lifted(other))
        return self.totals.keep(self.totals.started(states))

    def _parts(self, session: Open) -> tuple[list[Any], Any]:
        return session_parts(session, self._kept_states)

    def _states(self, session: Open) -> Any:
        """Return the states of a session, for `merge`."""
        if len(session) == 3 and self._kept_states:  # the common case
            return self.totals.lifted(session[2])
        records, kept = self._parts(session)
        return self._folded(records, kept) if records else self.totals.lifted(kept)

    def _folded(self, records: list[Any], kept: Any) -> Any:
        states = self.totals.start() if kept is None else self.totals.read(kept)
        for _, timestamp, value in records:
            states = self.totals.add(states, value, timestamp)
        return states

    def _result(self, session: Open) -> Result:
        start, last = session[:2]
        # The end is the first moment after the session, as with all windows of a length. A session
        # may have begun long ago, so what follows tells the time by its last record.
        _, result = self.result(start, last + 1, self._folded(*self._parts(session)))
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

    def due(self) -> list[Firing]:
        watermark = self.step_clock.watermark
        sessions = [] if self.by_key else self._load()[2]
        return [
            Firing(at, str(s[0]), partial(self._close, s), partial(self._forget, s))
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


def session_parts(session: Open, are_states: bool) -> tuple[list[Any], Any]:
    """Return the records of a session, and what is kept of the states in front of them.

    Args:
        session: As it is stored.
        are_states: What `kept_states` says of it.
    """
    if len(session) == 4:
        return session[2], session[3]
    if are_states or not all(map(_is_record, session[2])):
        return [], session[2]
    return session[2], None


def kept_states(first: Layout, aggregations: dict[str, Aggregation]) -> bool:
    """Tell whether the sessions of version 0.1.0 are sure to have kept states."""
    return all(
        is_commutative(found)
        if (found := aggregations.get(name)) is not None and str(found.signature) == signature
        else signature.partition("(")[0] in _COMMUTATIVE
        for name, signature in first.items()
    )


def _is_record(item: Any) -> bool:
    """Tell a record of a session from a state; only a pair of numbers with a value is like one."""
    return type(item) is tuple and len(item) == 3 and type(item[0]) is int and type(item[1]) is int
