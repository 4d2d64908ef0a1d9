"""Windows of so many records of a key. They close with their last record, whatever the time."""

from __future__ import annotations

from typing import Any

from millpond.arguments.windows import Counted
from millpond.program.steps import Window
from millpond.worker.time_window import Result, WindowLogic

__all__ = ["CountedWindows"]


class CountedWindows(WindowLogic):
    """State under "": [count, start, end, what `Totals` keeps] of each, the oldest first."""

    def __init__(self, step: Window, *rest: Any) -> None:
        super().__init__(step, *rest)
        assert isinstance(step.kind, Counted)
        self._kind = step.kind

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> list[Result]:
        kind = self._kind
        windows: list[list[Any]] = self.state.get("", [])
        if not windows or (kind.step is not None and windows[0][0] % kind.step == 0):
            kept = self.totals.keep(self.totals.start())
            windows.append([0, timestamp, timestamp, kept])
        given: list[Result] = []
        for window in windows:
            count, start, end, kept = window
            states = self.totals.add(self.totals.read(kept), value, timestamp)
            kept = self.totals.keep(states)
            window[:] = [count + 1, min(start, timestamp), max(end, timestamp), kept]
            if not self.is_final or count + 1 == kind.count:
                given.append(self.result(window[1], window[2], states))
        windows = [window for window in windows if window[0] < kind.count]
        if windows:
            self.state.set("", windows)
        else:
            self.state.delete("")
        return given
