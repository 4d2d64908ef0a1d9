"""The main thread of a run: watches the query, shows progress, decides when to stop."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from millpond.driver.clock_jumps import JumpWatch
from millpond.driver.progress import Meter
from millpond.errors import EngineError
from millpond.spark.internals.error_texts import JVM_LOST
from millpond.spark.query import Query
from millpond.spark.request import Limits, Program
from millpond.spark.run_sources import RunSources
from millpond.spark.run_state import RunState
from millpond.spark.stop_signals import EndAtOnce, StopSignals
from millpond.spark.watchdog import Watchdog

__all__ = ["Follower"]

# Seconds between two looks at the query where it may end by itself, where it may not, and between
# two computations of the lag. A look asks the JVM, two or three calls.
_LOOK, _GLANCE, _LAG = 0.05, 0.25, 0.5

# Seconds that the end of a run waits for the last look at the lag.
_LAST_LAG = 1.0

logger = logging.getLogger("millpond")


class Follower:
    """Watches one query to its end."""

    def __init__(
        self,
        query: Query,
        program: Program,
        limits: Limits,
        *,
        sources: RunSources,
        state: RunState,
        watchdog: Watchdog,
        meter: Meter,
        signals: StopSignals,
    ) -> None:
        self._query = query
        self._config = program.config
        self._limits = limits
        self._sources = sources
        self._state = state
        self._watchdog = watchdog
        self._meter = meter
        self._signals = signals

    def follow(self) -> None:
        """Watch the query to its end, and leave everything so that a later run can go on."""
        has_ended = False
        try:
            self._watch()
            self._check()
        except JVM_LOST as error:
            msg = (
                f"Spark's JVM does not answer any more: {error}\n"
                "Fix: run again; state and offsets are as of the last committed batch."
            )
            raise EngineError(msg) from error
        except EndAtOnce:
            self._sources.feeder.abandon()
            has_ended = True
            self._query.abandon()
            raise
        finally:
            if not has_ended:
                self._sources.feeder.abandon()
                # It may not hide what ended the run: the JVM may be gone.
                with suppress(Exception):
                    self._query.stop()
                self._sources.feeder.end()

    def _watch(self) -> None:
        """Watch the query until it has ended; the lag is looked for beside it."""
        over = threading.Event()
        looker = threading.Thread(target=self._know_lag, args=[over], daemon=True)
        looker.start()
        try:
            self._watch_query()
        finally:
            over.set()
        looker.join(_LAST_LAG)
        if not looker.is_alive():  # else it waits for a broker that is away
            self._sources.committed.look_again()
            self._meter.lag(self._sources.lag())

    def _check(self) -> None:
        """Raise what ended the query; where it was the loss of a worker, with step and record."""
        try:
            self._query.check()
        except EngineError as error:
            asked = self._signals.asked
            if asked and type(error) is EngineError:
                reason = str(error).partition("\n")[0]
                logger.warning("ending without the batch: Spark's processes have ended: %s", reason)
                raise EndAtOnce(asked[0][0]) from None
            named = self._watchdog.named(error)
            if named is error:
                raise
            raise named from None

    def _watch_query(self) -> None:
        query, limits, wall = self._query, self._limits, JumpWatch()
        next_look = 0.0
        ends_alone = limits.timeout or limits.count or limits.drain or self._sources.spools
        stop = self._signals.stop
        while not query.wait(_LOOK if ends_alone or stop.is_set() else _GLANCE):
            if self._sources.feeder.error is not None:
                raise self._sources.feeder.error
            now = time.monotonic()
            if wall.log(_now_ms(), now) < 0 and self._config.commit_interval:
                logger.warning(
                    "Spark waits for the next batch of commit_interval by the wall clock, until it "
                    "shows what it did before.\nFix: stop the program, and run it again."
                )
            if now >= next_look:
                self._meter.waiting(self._watchdog.look())
                next_look = now + _LAG
            if limits.timeout and query.is_active and query.is_busy:
                self._state.is_at_work(now)
            if stop.is_set() or self._is_finished(now):
                self._meter.stopping()
                query.ask_to_stop()
            self._check_patience(now)

    def _know_lag(self, over: threading.Event) -> None:
        """Keep the lag known: in a thread of its own, because a broker may not answer."""
        with suppress(*JVM_LOST):  # the JVM is gone, which others report
            while True:
                self._meter.lag(self._sources.lag())
                if over.wait(_LAG):
                    return

    def _check_patience(self, now: float) -> None:
        """End the run where a signal asked for a stop and the batch does not end."""
        limit, asked = self._config.stop_timeout, self._signals.asked
        if asked and now - asked[0][1] >= limit:
            what = "; ".join(map(str, self._watchdog.waiting)) or "the batch is still at work"
            logger.warning("the batch did not end in %g s, ending without it: %s", limit, what)
            raise EndAtOnce(asked[0][0])

    def _is_finished(self, now: float) -> bool:
        limits = self._limits
        if limits.count and self._state.outputs >= limits.count:
            return True
        if limits.timeout and now - self._state.busy_since >= limits.timeout:
            return True
        return self._sources.are_read() and self._state.is_settled(_now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
