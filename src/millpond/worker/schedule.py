"""What a stage does because of the time and not because of a record.

Steps that wait for the clock (windows, timers) are watchers here. At the beginning of a batch, and
once more at its end, the timer index of a key group names the keys to look at; each watcher says
what is due for the key, the stage runs it like a record of its own, and the key is registered again
for the next moment. Values that have expired are swept on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from millpond.errors import MillpondError, shown
from millpond.program.clocks import ClockPoint
from millpond.program.plan import Plan, Stage
from millpond.program.steps import Map, Step
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.timer_index import NEVER, TimerIndex
from millpond.state.timers import WALL, StepClock, Timer
from millpond.state.view import State
from millpond.wire.clock import Clock
from millpond.worker.current_step import ENDINGS, failure_of
from millpond.worker.emit import Push, StepFailure

__all__ = ["Firing", "Schedule", "TimerWatcher", "Visits", "Watcher", "never_ends"]


class Firing(NamedTuple):
    """Something that is due for the key in view."""

    at: int
    name: str
    """Tells it from others of the same step and key."""
    run: Callable[[Any], None]
    """Does it; called with the key."""
    drop: Callable[[], object]
    """Forgets it, where it failed and failures are let go. Of a timer: tells if it was there."""


class Watcher(Protocol):
    """A step that waits for a clock."""

    clock: str
    """The name of the clock in its stage."""

    @property
    def delay_ms(self) -> int:
        """How far the step is held back behind that clock."""

    def due(self) -> list[Firing]:
        """Return what is due for the key in view."""

    def next_due(self) -> int | None:
        """Return the stage's time at which the key in view must be looked at again."""

    def never_ends(self, key: Any) -> None:
        """Raise that the step has more and more to do for a key."""


class Visits:
    """What is to be done in a key group because of the time, the earliest first.

    Steps that are held back wait until the records of the batch are through (`after_records`): what
    closes above them may still belong to what closes in them. So those that are held back least
    come first, and what they give is looked at before the next ones.
    """

    def __init__(
        self,
        watchers: list[Watcher],
        context: KeyContext,
        take: Callable[[], Iterable[tuple[str, bytes | None]]],
        *,
        after_records: bool,
    ) -> None:
        """Make visits.

        Args:
            watchers: The steps that wait for a clock.
            context: Brings keys into view.
            take: Gives the keys that are due since it was last called, and by which clock.
            after_records: Whether the records of the batch are through.
        """
        self._watchers = [(i, w) for i, w in enumerate(watchers) if after_records or not w.delay_ms]
        self._watchers_by_number = dict(self._watchers)
        self._take_due = take
        self._done: Counter[bytes | None] = Counter()
        self._context = context
        self._queue: list[tuple[int, bool, bytes, int, str]] = []
        self._firings: dict[tuple[bytes | None, int, str], Firing] = {}
        self.looked_at: dict[tuple[str, bytes | None], None] = {}
        """The keys that must be settled afterwards, each by the clock it was looked at for."""

    def __iter__(self) -> Iterator[tuple[bytes | None, Firing]]:
        """Yield what to do; what is done may bring more."""
        self._take()
        for delay in sorted({watcher.delay_ms for _, watcher in self._watchers}):
            mine = [(i, w) for i, w in self._watchers if w.delay_ms == delay]
            keys = {key: None for _, key in self.looked_at}
            while keys:
                for key in keys:
                    self._context.bind(key)
                    self._look(key, mine)
                yield from self._due()
                keys = self._take()

    def _take(self) -> dict[bytes | None, None]:
        """Return the keys that have become due."""
        taken = dict.fromkeys(self._take_due())
        self.looked_at.update(taken)
        return {key: None for _, key in taken}

    def _look(self, key: bytes | None, watchers: Sequence[tuple[int, Watcher]]) -> None:
        """Add what is due for the key in view and not known yet."""
        for number, watcher in watchers:
            for firing in watcher.due():
                place = (key, number, firing.name)
                if place not in self._firings:
                    self._firings[place] = firing
                    item = (firing.at, key is not None, key or b"", number, firing.name)
                    heappush(self._queue, item)

    def _due(self) -> Iterator[tuple[bytes | None, Firing]]:
        timers = [(i, w) for i, w in self._watchers if isinstance(w, TimerWatcher)]
        while self._queue:
            _, is_key, key_bytes, number, name = heappop(self._queue)
            key = key_bytes if is_key else None
            firing = self._firings.pop((key, number, name))
            self._context.bind(key)
            watcher = self._watchers_by_number[number]
            self._done[key] += isinstance(watcher, TimerWatcher)
            if self._done[key] > _TOO_MANY:
                firing = firing._replace(run=watcher.never_ends)
            yield key, firing
            if self._context.has_timers():  # it may have set one that is due
                self._look(key, timers)


class Schedule:
    """The clocks of one stage, and the steps that wait for them."""

    def __init__(
        self, plan: Plan, stage: Stage, context: KeyContext, reached: dict[str, int]
    ) -> None:
        self._plan = plan
        self._scope = stage.scope
        self._reached = reached
        self._context = context
        self._names = plan.stage_clocks(stage)
        self._away = plan.away(stage)
        timed = (step for step in stage.steps if isinstance(step, Map) and step.on_timer)
        self._owners = {step.name for step in timed}
        self._clocks: list[tuple[StepClock, tuple[int, ...]]] = []
        self.watchers: list[Watcher] = []
        self.shows: dict[str, int] = {}
        """What each clock of the stage shows."""
        self.seen: dict[int, int] = {}
        """The largest timestamp that came by each clock point in this stage."""

    def clock_of(self, step: Step, scope: str | None = None) -> StepClock:
        """Return what tells a step the time; `scope`: that of its state. Default: the stage's."""
        ref = self._plan.clocks[step]
        place = f"{self._scope if scope is None else scope}/{step.store}"
        least = self._reached.get(place, NEVER)
        clock = StepClock(self._plan.clock_name(ref.points), ref.delay_ms, least)
        self._clocks.append((clock, ref.points))
        return clock

    def lateness_of(self, step: Step) -> int:
        """Return how far the watermark of a step stays behind the largest timestamp."""
        ref = self._plan.clocks[step]
        late = (self._plan.points[number].clocking.lateness_ms for number in ref.points)
        return ref.delay_ms + max(late, default=0)

    def begin(self, clock: Clock) -> None:
        """Set every clock to the time of a batch."""
        self._context.now = clock.now
        self.shows = {name: clock.least(points) for name, points in self._names.items()}
        self.shows[WALL] = clock.now
        for step_clock, points in self._clocks:
            delay = step_clock.delay_ms
            step_clock.watermark = max(clock.least(points) - delay, step_clock.least)
            # Behind a window, the results of this batch are about the time that has just passed.
            known = clock.least_before(points) if delay else clock.least(points)
            step_clock.late_mark = max(known - delay, step_clock.least)

    def visits(self, pages: Pages, *, after_records: bool) -> Visits:
        """Return what is due in a group."""
        for name, timer_index in list(pages.timer_indexes.items()):
            if name not in self.shows and name != self._away:
                self._adopt(name, timer_index)
        take = partial(self._take_due, pages)
        return Visits(self.watchers, self._context, take, after_records=after_records)

    def _take_due(self, pages: Pages) -> list[tuple[str, bytes | None]]:
        """Return the keys that are due by each clock, and forget that they were registered."""
        found: list[tuple[str, bytes | None]] = []
        for name, shows in self.shows.items():
            if name not in pages.timer_indexes:
                continue
            for due, key in pages.timer_indexes[name].take_due(shows):
                self._context.bind(key)
                if self._context.take_timer(due, name):
                    found.append((name, key))
        return found

    def _adopt(self, name: str, timer_index: TimerIndex) -> None:
        """Let keys that wait for a clock which the program no longer has wait for those it has."""
        for due, key in timer_index.take_due(2**63):
            self._context.bind(key)
            if self._context.take_timer(due, name):
                self.settle([(other, key) for other in self.shows])

    def settle(self, keys: Iterable[tuple[str, bytes | None]]) -> None:
        """Sweep the keys that were looked at and note when they are to be looked at again."""
        for name, key in keys:
            self._context.bind(key)
            moments = [w.next_due() for w in self.watchers if w.clock == name]
            if name != WALL:
                moments.append(self._sweep(name))
            following = [moment for moment in moments if moment is not None]
            if following:
                self._context.register(min(following), name)
            if self._context.has_timers():
                self._put_aside()

    def _put_aside(self) -> None:
        """Have the key in view looked at again once there are functions for all its timers."""
        timers = self._context.timers()
        away = [own for owner, own in timers.items() if owner not in self._owners]
        if away:
            self._context.register(min(at for own in away for at, _ in own.values()), self._away)

    def _sweep(self, name: str) -> int | None:
        """Remove what has expired for the steps that keep it; return when to look again."""
        moments = []
        every = [clock for clock, _ in self._clocks]
        for stored, expires, tag in self._context.expiring():
            # Where the program no longer has the clock, all that it has must have passed.
            clocks = [clock for clock in every if clock.tag == tag] or every
            if all(expires <= clock.watermark for clock in clocks):
                self._context.drop(stored)
            elif any(clock.name == name for clock in clocks):
                delay = max(clock.delay_ms for clock in clocks)
                moments.append(max(expires + delay, self.shows[name] + 1))
        return min(moments, default=None)

    def next_due(self, pages: Pages) -> dict[str, int]:
        """Return the next moment of each clock at which a group has something to do."""
        moments = {name: timer_index.next_due for name, timer_index in pages.timer_indexes.items()}
        return {name: moment for name, moment in moments.items() if moment is not None}

    def take_seen(self) -> dict[int, int]:
        """Return the largest timestamps, and begin again."""
        seen = dict(self.seen)
        self.seen.clear()
        return seen

    def observe(self, point: ClockPoint | None, timestamp: int | None) -> None:
        """Take the largest timestamp of records that came by a clock point, if there are both."""
        if point is not None and timestamp is not None:
            self.seen[point.number] = max(timestamp, self.seen.get(point.number, timestamp))


class TimerWatcher:
    """The timers of one step by one clock."""

    def __init__(
        self,
        step: Map,
        state: State,
        context: KeyContext,
        step_clock: StepClock,
        give: Push,
        kind: str,
    ) -> None:
        self._step = step
        self._state = state
        self._context = context
        self._step_clock = step_clock
        self._give = give
        self._kind = kind
        self.clock = step_clock.name if kind == "event" else WALL
        self.delay_ms = step_clock.delay_ms if kind == "event" else 0

    def _own(self) -> Iterator[tuple[str, int]]:
        own = self._context.timers().get(self._step.name, {})
        return ((name, at) for name, (at, kind) in own.items() if kind == self._kind)

    def due(self) -> list[Firing]:
        return self._due_at(
            self._step_clock.watermark if self._kind == "event" else self._context.now
        )

    def _due_at(self, shows: int) -> list[Firing]:
        return [
            Firing(at, name, self._runner(name, at), partial(self._drop, name, at))
            for name, at in self._own()
            if at <= shows
        ]

    def _drop(self, name: str, at: int) -> bool:
        """Forget a timer; False where it is not there, or is set to another moment."""
        is_there = (name, at) in self._own()
        if is_there:
            self._state.cancel_timer(name)
        return is_there

    def before(self, push: Push, lateness_ms: int) -> Push:
        """Fire what is due for a key before a record that is later.

        The watermark moves only between batches. A timer between two records of one key would
        fire or not as the batches are cut, if it were not for the clock of the key.
        """
        context, cursor = self._context, self._context.cursor

        def push_after_timers(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            if not context.has_timers() or not self._due_at(timestamp - lateness_ms):
                push(value, key, timestamp, headers)
                return
            for firing in cursor.children(self._firings(key, timestamp - lateness_ms)):
                if firing is None:
                    cursor.at_time(timestamp)
                    push(value, key, timestamp, headers)
                else:
                    cursor.at_time(firing.at)
                    self._fire(firing, key)

        return push_after_timers

    def _firings(self, key: Any, shows: int) -> Iterator[Firing | None]:
        """Yield what is due, the earliest first, and None when it is the record's turn."""
        fired = 0
        while self._context.has_timers() and (due := self._due_at(shows)):
            if fired == _TOO_MANY:
                self.never_ends(key)
            yield min(due, key=_moment)
            fired += 1
        yield None

    def _fire(self, firing: Firing, key: Any) -> None:
        try:
            firing.run(key)
        except (StepFailure, *ENDINGS) as error:
            failure = failure_of(error, self._step)
            raise StepFailure(failure.step, failure.error, firing=firing) from failure

    def next_due(self) -> int | None:
        return min((at + self.delay_ms for _, at in self._own()), default=None)

    def never_ends(self, key: Any) -> None:
        raise never_ends(self._step, key)

    def _runner(self, name: str, at: int) -> Callable[[Any], None]:
        on_timer, state = self._step.on_timer, self._state
        assert on_timer is not None

        def fire(key: Any) -> None:
            if (name, at) not in self._own():
                return  # an earlier timer of the key has moved or cancelled it
            state.cancel_timer(name)
            try:
                result = on_timer(key, state, Timer(name, at, self._kind))  # type: ignore[arg-type]
            except Exception as error:
                raise StepFailure(self._step, error) from error
            if result is not None:
                self._give(result, key, at, None)

        return fire


# Timers of one key that may fire before one record: more than any program means to set.
_TOO_MANY = 100_000


def _moment(firing: Firing) -> tuple[int, str]:
    return firing.at, firing.name


def never_ends(step: Step, key: Any) -> StepFailure:
    """Return that a step does one thing after the other for a key, all at one moment."""
    error = MillpondError(
        f"{_TOO_MANY} timers of key {shown(key)} fired at one go.\n"
        "Fix: a timer that sets itself again must choose a later moment."
    )
    return StepFailure(step, error)
