"""What time it is in each batch, and which key groups must be woken for it.

On the driver a `Timekeeper` takes what the stages saw (the largest timestamps, the next moment at
which a group has something to do) and decides the `Clock` of the next batch. The clock is written
down with the batch's offsets and travels with its rows, so a batch that is replayed is done at
the same time. Nothing here reads a clock: the wall clock is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millpond.driver.gather import BatchReport
from millpond.driver.held_back import QUIET_MS, HeldBack, how_to_go_on
from millpond.driver.seconds import log_seconds
from millpond.program.clocks import ClockPoint
from millpond.program.plan import Plan
from millpond.program.steps import Join, Window
from millpond.state.timer_index import NEVER
from millpond.state.timers import WALL
from millpond.wire.clock import Clock

__all__ = ["Clockwork", "Tick", "Timekeeper", "clockwork_of"]

_Marks = tuple[int | None, ...]


@dataclass(frozen=True)
class Clockwork:
    """What of a plan decides the time. Small: it is pickled to where sources are looked at."""

    points: tuple[PointSettings, ...]
    stages: dict[str, dict[str, tuple[int, ...]]]
    """For each key scope its clocks, and the points of each."""
    groups: int
    tells_all: bool = False
    """Whether every group must get each new time, because records come without it."""
    waiting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each clock the steps that wait for it, with file and line."""
    timed: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """For each store of a window or a join its points, and how far it is held back."""
    away: dict[str, str] = field(default_factory=dict)
    """For each key scope the name of what waits for functions that the program does not have."""


class PointSettings(NamedTuple):
    """A `ClockPoint` without its step."""

    name: str
    lateness_ms: int
    idle_after_ms: int | None
    sources: tuple[str, ...]
    fix: str = ""
    """What lets the others go on without it."""


class Tick(NamedTuple):
    """The clock of the next batch, and the groups that must be woken."""

    clock: Clock
    groups: dict[str, list[int]]


def clockwork_of(plan: Plan, groups: int, *, tells_all: bool = False) -> Clockwork:
    """Return what of a plan decides the time."""
    stages = {s.scope: plan.stage_clocks(s) for s in plan.stages if s.stores}
    waiting: dict[str, tuple[str, ...]] = {}
    for step, ref in plan.clocks.items():
        if step.is_stateful and step.uses_clock:
            name = plan.clock_name(ref.points)
            waiting[name] = (*waiting.get(name, ()), f"{step} ({step.call_site})")
    points = tuple(map(_settings, plan.points))
    away = {s.scope: plan.away(s) for s in plan.stages if s.stores}
    return Clockwork(points, stages, groups, tells_all, waiting, _timed(plan), away)


def _timed(plan: Plan) -> dict[str, tuple[tuple[int, ...], int]]:
    return {
        f"{stage.scope}/{step.store}": (plan.clocks[step].points, plan.clocks[step].delay_ms)
        for stage in plan.stages
        for step in stage.steps
        if isinstance(step, Window | Join) and step.uses_clock
    }


def _settings(point: ClockPoint) -> PointSettings:
    lateness_ms, idle_ms = point.clocking.lateness_ms, point.clocking.idle_after_ms
    return PointSettings(point.name, lateness_ms, idle_ms, point.sources, how_to_go_on(point))


@dataclass
class Timekeeper:
    """Decides what time it is. `known` is what it must know again after a restart."""

    work: Clockwork
    seq: int = 0
    """The clock of the batch that was heard of last."""
    seen: dict[str, int] = field(default_factory=dict)
    """The largest timestamp at each point."""
    arrived: dict[str, int] = field(default_factory=dict)
    """When something last came by each point, by the wall clock."""
    due: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    """For each scope and group the next moment of each of its clocks."""
    is_sure: bool = False
    """Whether `due` is complete; if not, every group is woken once."""
    waits: bool = True
    """Whether a source counts as idle only when it was seen to be quiet for so long from here on;
    a drain does not wait: it goes by when something last came."""
    _quiet: dict[str, int] = field(default_factory=dict)
    """Since when nothing has come to a source."""
    _has_had: set[str] = field(default_factory=set)
    """The sources that had something."""
    _warned: set[str] = field(default_factory=set)
    """The sources whose times look like seconds, once that was logged."""
    _marked: dict[str, int] = field(default_factory=dict)
    """The watermarks of the batch that was heard of last."""
    _reached: dict[str, int] = field(default_factory=dict)
    """The watermark that each store has reached, also stores of earlier programs."""

    def observe(self, report: BatchReport, now: int, marks: dict[str, int]) -> None:
        """Take what a batch saw that went by these watermarks, and note in it what holds them."""
        self.seq, self._marked = max(self.seq, report.clock_seq), marks
        for number, timestamp in sorted(report.times.items()):
            name, sources = self.work.points[number].name, self.work.points[number].sources
            log_seconds(name, sources, timestamp, self._warned)
            self.seen[name] = max(timestamp, self.seen.get(name, timestamp))
            self.arrived[name] = now
        # Replaced, not changed: another thread may be looking at it.
        known = {scope: dict(groups) for scope, groups in self.due.items()}
        for (scope, group), due in report.due.items():
            known.setdefault(scope, {})[group] = due
        self.due = known
        if not self.is_sure:
            sizes = (len(self.due.get(scope, {})) for scope in self.work.stages)
            self.is_sure = all(count == self.work.groups for count in sizes)
        report.held_back = self.held_back(now)

    def held_back(self, now: int) -> list[HeldBack]:
        """Return the sources that hold back what is due by the records of others, or are quiet."""
        found: dict[HeldBack, None] = {}
        for scope, clocks in self.work.stages.items():
            for name, points in clocks.items():
                groups = self.due.get(scope, {}).values()
                moments = [due[name] for due in groups if name in due]
                if moments and name in self.work.waiting:
                    found.update(dict.fromkeys(self._holders(name, points, min(moments), now)))
        return list(found)

    def _holders(
        self, clock: str, numbers: tuple[int, ...], due: int, now: int
    ) -> Iterator[HeldBack]:
        shows = {n: self._stands(self.work.points[n], now) for n in numbers}
        least = min(shows.values())
        for number in (n for n in numbers if shows[n] < due):
            point, others = self.work.points[number], [n for n in numbers if n != number]
            since = self.arrived.get(point.name)
            is_quiet = point.idle_after_ms is None and since is not None and now - since >= QUIET_MS
            # By the records of others, not by the wall clock that idle ones go by.
            ahead = max((self._by_records(self.work.points[n]) for n in others), default=NEVER)
            if due <= ahead or (is_quiet and all(due <= shows[n] for n in others)):
                yield HeldBack(
                    "+".join(point.sources),
                    since,
                    None if least == NEVER else least,
                    ahead if due <= ahead else None,
                    self.work.waiting[clock],
                    point.fix,
                )

    def _by_records(self, point: PointSettings) -> int:
        is_known = point.name in self.seen
        return self.seen[point.name] - point.lateness_ms if is_known else NEVER

    def _stands(self, point: PointSettings, now: int) -> int:
        """Return the watermark of a point after the last batch."""
        shows = [self._marked.get(point.name, NEVER), self._by_records(point)]
        since, idle = self.arrived.get(point.name), point.idle_after_ms
        if idle is not None and since is not None and now - since >= idle:
            shows.append(now - point.lateness_ms)
        return max(shows)

    def next(
        self,
        last: dict[str, Any],
        now: int,
        waiting: Collection[str],
        alive: Collection[str] | None = None,
        jump: int = 0,
    ) -> Tick | None:
        """Return the time of the next batch, or None where there is no reason for one.

        Args:
            last: The clock of the last batch, as `to_offset` wrote it; empty before the first.
            now: The wall clock.
            waiting: The sources that have records to read.
            alive: Those that have records at all, though maybe not for this run. Default: the
                same.
            jump: By how many milliseconds the wall clock was set since the last call.
        """
        self._quiet = {name: min(since + jump, now) for name, since in self._quiet.items()}
        self._listen(waiting if alive is None else alive, now)
        self._reached = last.get("reached", {})
        before = self._of_points(last.get("marks", {}))
        clock = Clock(last.get("seq", 0) + 1, now, tuple(self._marks(last, now)), before)
        if clock.seq == 1:
            self.is_sure = True  # before the first batch there is nothing to wake
        woken = self._woken(clock, last)
        return Tick(clock, woken) if waiting or woken else None

    def _listen(self, alive: Collection[str], now: int) -> None:
        """Note since when each source is quiet."""
        for point in self.work.points:
            for source in point.sources:
                if source in alive:
                    self._has_had.add(source)
                    self._quiet.pop(source, None)
                else:
                    is_known = point.name in self.arrived and source not in self._has_had
                    is_old = is_known and not self.waits
                    self._quiet.setdefault(source, NEVER if is_old else now)

    def to_offset(self, tick: Tick) -> dict[str, Any]:
        """Return a clock as it is written down with the offsets of its batch."""
        clock = tick.clock
        return {
            "seq": clock.seq,
            "now": clock.now,
            "marks": self._by_name(clock.marks),
            "before": self._by_name(clock.before),
            "reached": {**self._reached, **self._reaches(clock)},
            "wake": tick.groups,
            # What is known after the batch before: who goes back to there starts from it.
            "seen": self.seen,
            "arrived": self.arrived,
        }

    def from_offset(self, offset: dict[str, Any]) -> Tick:
        """Return the clock of a batch from what was written down."""
        marks, before = (self._of_points(offset.get(name, {})) for name in ("marks", "before"))
        clock = Clock(offset.get("seq", 0), offset.get("now", 0), marks, before)
        return Tick(clock, offset.get("wake", {}))

    def _reaches(self, clock: Clock) -> dict[str, int]:
        """Return the watermark of each store in a batch; it is never less than it was.

        The next run begins with it: a changed program may take the time of a store from another
        place, and what was given must not be given again.
        """
        shows = {
            place: clock.least(points) - delay
            for place, (points, delay) in self.work.timed.items()
            if clock.least(points) != NEVER
        }
        return {place: max(at, self._reached.get(place, at)) for place, at in shows.items()}

    def _by_name(self, marks: _Marks) -> dict[str, int]:
        named = zip(self.work.points, marks, strict=True)
        return {point.name: mark for point, mark in named if mark is not None}

    def _of_points(self, marks: dict[str, int]) -> _Marks:
        return tuple(marks.get(point.name) for point in self.work.points)

    def _marks(self, last: dict[str, Any], now: int) -> Iterator[int | None]:
        before = last.get("marks", {})
        for point in self.work.points:
            shows = [before[point.name]] if point.name in before else []
            if point.name in self.seen:
                shows.append(self._by_records(point))
            idle = point.idle_after_ms
            since = [self._quiet.get(source, now) for source in point.sources]
            since.append(self._last_arrival(point, now))
            if idle is not None and now - max(since) >= idle:
                shows.append(now - point.lateness_ms)
            yield max(shows, default=None)

    def _last_arrival(self, point: PointSettings, now: int) -> int:
        """Return when something came, as far as the wall clock tells: it may have been set back."""
        arrived = self.arrived.get(point.name, NEVER)
        if arrived <= now:
            return arrived
        return NEVER if self.waits else now  # a drain has not seen how long it is quiet

    def _woken(self, clock: Clock, last: dict[str, Any]) -> dict[str, list[int]]:
        is_news = clock.seq == 1 or self._is_news(last)
        if not self.is_sure or (self.work.tells_all and is_news):
            return {scope: list(range(self.work.groups)) for scope in self.work.stages}
        woken: dict[str, list[int]] = {}
        for scope, groups in self.due.items():
            shows = self.clocks(scope, clock)
            due = [g for g, moments in groups.items() if _is_due(moments, shows)]
            if due and scope in self.work.stages:
                woken[scope] = sorted(due)
        return woken

    def _is_news(self, last: dict[str, Any]) -> bool:
        """Tell whether records have moved a clock; that of an idle stream moves all the time."""
        marks = last.get("marks", {})
        return any(
            self.seen[point.name] - point.lateness_ms > marks.get(point.name, NEVER)
            for point in self.work.points
            if point.name in self.seen
        )

    def clocks(self, scope: str, clock: Clock) -> dict[str, int]:
        """Return what each clock of a scope shows."""
        named = self.work.stages.get(scope, {}).items()
        shows = {name: clock.least(points) for name, points in named}
        return {WALL: clock.now, self.work.away.get(scope, ""): NEVER, **shows}

    def is_settled(self, now: int) -> bool:
        """Tell whether nothing is due, nor would be if every source stayed quiet from here on."""
        shows: list[int | None] = []
        for point in self.work.points:
            times = [now] if point.idle_after_ms is not None else []
            times += [self.seen[point.name]] if point.name in self.seen else []
            shows.append(max(times) - point.lateness_ms if times else None)
        return not self._woken(Clock(2, now, tuple(shows)), {})

    # --- what is kept over a restart --------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return what must be known after a restart."""
        due = {s: {str(g): m for g, m in groups.items() if m} for s, groups in self.due.items()}
        return {
            "seq": self.seq,
            "seen": self.seen,
            "arrived": self.arrived,
            "due": due,
            "is_sure": self.is_sure,
        }

    def load(self, content: dict[str, Any] | None, seq: int) -> None:
        """Take what `to_json` gave, if it was written after the batch of clock `seq`."""
        if content is None or content["seq"] != seq:
            self.is_sure = False
            return
        self.seq = seq
        self.seen, self.arrived = dict(content["seen"]), dict(content["arrived"])
        self.is_sure = content["is_sure"]
        self.due = {
            scope: {int(group): moments for group, moments in groups.items()}
            for scope, groups in content["due"].items()
        }


def _is_due(moments: dict[str, int], shows: dict[str, int]) -> bool:
    # What waits for a clock that the program no longer has is looked at and waits for another.
    return any(moment <= shows.get(name, moment) for name, moment in moments.items())
