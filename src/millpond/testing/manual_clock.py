"""A wall clock for tests."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """A clock that moves when it is set: what a record without a timestamp gets.

    >>> clock = ManualClock(1000)
    >>> clock.advance(500)
    >>> clock()
    1500
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward.

        >>> clock = ManualClock(1000)
        >>> clock.advance(500)
        >>> clock.now_ms
        1500

        Args:
            ms: By how many milliseconds.
        """
        self.now_ms += ms
