"""What a person sees while an application runs: one live line, or plain log lines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from millpond.driver.gather import BatchReport
from millpond.driver.held_back import QUIET_MS, HeldBack, log_held, silence
from millpond.driver.printing import Printer, rendered
from millpond.driver.waiting import SHOWN_AFTER, Reminder, Waiting

__all__ = ["Meter"]

# Seconds between two plain log lines where there is no terminal.
_LOG_EVERY = 10.0

# Seconds over which records are counted for their rate, unless a batch takes longer than half.
_WINDOW = 10.0

# Seconds between two log lines about a source that goes on holding the others back.
_REMIND_EVERY = 600.0

logger = logging.getLogger("millpond")


class Meter:
    """Shows records a second, batch, keys in state and lag."""

    def __init__(
        self,
        group: str,
        keys: dict[tuple[str, int], int],
        stop: threading.Event | None = None,
    ) -> None:
        self._group = group
        self._stop = stop or threading.Event()
        self._printer: Printer | None = None
        self._console = Console(stderr=True)
        self._out = Console()
        self._keys = keys
        self._live: Live | None = None
        self._records = self._dead = self._late = self._outputs = 0
        self._batch: int | None = None
        self._recent: tuple[float, list[tuple[float, float, int]]] = (0.0, [])
        """Since when batches are remembered; when each began and ended, and its records. Replaced,
        not changed: one thread tells of batches, and another looks."""
        self._lag: int | None = None
        self._since = self._logged = time.monotonic()
        self._phase = "starting Spark"
        self.held_back: Callable[[int], list[HeldBack]] = lambda now: []
        """Gives the sources that hold a watermark back, at a time of the wall clock."""
        self._waiting: list[Waiting] = []
        self._reminder = Reminder()
        self._holding: dict[tuple[str, ...], tuple[float, float | None]] = {}
        """Since when each is seen to do so, and when that was last logged."""

    def __enter__(self) -> Meter:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=False)
            self._live.start()
            self.refresh()
        else:
            logger.info("group %s: starting Spark", self._group)
        return self

    def __exit__(self, *_: object) -> None:
        if self._printer is not None:
            self._printer.close()
        self._phase = "stopped"
        if self._live is not None:
            self._live.update(self._text())
            self._live.stop()
        else:
            logger.info("%s", self._text().plain)
        self._log_held(at_end=True)

    def started(self) -> None:
        """Say that records can flow."""
        self._phase = "running"
        self._since = time.monotonic()
        if self._live is None:
            logger.info("group %s: running", self._group)

    def batch(self, report: BatchReport) -> None:
        """Count a batch."""
        now = time.monotonic()
        seconds = max(report.seconds, 0.001)
        since, batches = self._recent
        kept = [batch for batch in batches if batch[1] > now - max(_WINDOW, 2 * seconds)]
        gone = batches[: len(batches) - len(kept)]
        since = gone[-1][1] if gone else since or self._since
        self._recent = since, [*kept, (now - seconds, now, report.read)]
        self._batch = report.batch_id
        self._records += report.read
        self._dead += report.dead + report.refused
        self._late += report.late
        lag = self._lag
        if lag is not None:
            self._lag = max(0, lag - report.read)
        self._outputs += report.outputs
        self._keys.update(report.keys)
        self.refresh()

    def lag(self, records: int | None) -> None:
        """Note how many records wait."""
        self._lag = records
        self._log_held()
        self.refresh()

    def waiting(self, waiting: list[Waiting]) -> None:
        """Note what does not answer: a step, a sink, a broker."""
        self._waiting = waiting
        self._reminder.look(waiting)
        self.refresh()

    def stopping(self) -> None:
        """Say that the run ends after the current batch."""
        self._phase = "stopping"
        self.refresh()

    def refresh(self) -> None:
        if self._live is not None:
            self._live.update(Spinner("dots", self._text(), style="cyan"))
        elif time.monotonic() - self._logged > _LOG_EVERY:
            self._logged = time.monotonic()
            logger.info("%s", self._text().plain)

    def _log_held(self, *, at_end: bool = False) -> None:
        """Say once, and then rarely, that windows wait for a source that others have passed."""
        now, seen = time.monotonic(), self._holding
        held = self.held_back(time.time_ns() // 1_000_000)
        holding = {(one.source, *one.steps): one for one in held if one.ahead is not None}
        self._holding = {place: seen.get(place, (now, None)) for place in holding}
        for place, (since, logged) in self._holding.items():
            is_new = logged is None and (at_end or now - since >= QUIET_MS / 1000)
            if is_new or (logged is not None and now - logged >= _REMIND_EVERY):
                self._holding[place] = since, now
                log_held([holding[place]])

    def show(self, values: list[Any], pretty: bool, more: int = 0) -> None:
        """Print values above the live line; `more` is how many are left out."""
        if self._printer is None:
            is_above = self._live is not None and self._out.is_terminal
            console = self._live.console if self._live is not None and is_above else None
            if console is None and self._out.is_terminal:
                console = self._out
            self._printer = Printer(self._stop, console)
        self._printer.put(rendered(values, pretty, more, self._out.width), pretty)

    def _rate(self) -> float:
        """Return records a second in the last seconds."""
        (since, batches), now = self._recent, time.monotonic()
        began, ended, _ = batches[-1]
        if now - ended < max(1.0, 2 * (ended - began)):  # the next batch may be at work
            now = ended
        start = max(since, now - max(_WINDOW, 2 * (ended - began)))
        done = sum(
            records * max(0.0, end - max(begin, start)) / (end - begin)
            for begin, end, records in batches
        )
        return done / max(now - start, 0.001)

    def _pace(self) -> tuple[str, str]:
        if self._phase == "stopped":
            return "in ", f"{time.monotonic() - self._since:,.0f} s"
        rate = self._rate()
        return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}", "/s"

    def _text(self) -> Text:
        text = Text.assemble((f"{self._group}", "bold cyan"), f"  {self._phase}")
        for number, unit in self._parts():
            text.append("  ·  ")
            text.append(number, "bold")
            text.append(unit)
        return text

    def _parts(self) -> list[tuple[str, str]]:
        parts = []
        lag = self._lag  # another thread may find that it is not known any more
        if self._batch is not None:
            parts = [
                _counted(self._records, "record"),
                self._pace(),
                ("batch ", f"{self._batch}"),
                _counted(sum(self._keys.values()), "key", " in state"),
            ]
        elif self._phase == "running":
            parts = [("waiting for records" if lag == 0 else "first batch", "")]
        if lag is not None:
            parts.append(("lag ", f"{lag:,}"))
        parts += [("", str(one)) for one in self._waiting if one.seconds >= SHOWN_AFTER]
        parts += self._waits()
        if self._late:
            parts.append((f"{self._late:,}", " late"))
        if self._dead:
            parts.append(_counted(self._dead, "dead letter"))
        return parts

    def _waits(self) -> list[tuple[str, str]]:
        """Return for which quiet sources the watermark waits."""
        if self._batch is None:
            return []  # they may have records that this run has not read yet
        now = time.time_ns() // 1_000_000
        held = [h for h in self.held_back(now) if h.since is None or now - h.since >= QUIET_MS]
        return [("watermark waits for ", f"{h.source} ({_came(h, now)})") for h in held]


def _came(held: HeldBack, now: int) -> str:
    return "no record yet" if held.since is None else f"none for {silence(now - held.since)}"


def _counted(number: int, what: str, more: str = "") -> tuple[str, str]:
    return f"{number:,}", f" {what}{'' if number == 1 else 's'}{more}"
