"""Durations and moments as the face takes them: milliseconds, `timedelta`, `datetime`.

Everything below the public interface is an int of milliseconds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from millpond.errors import ConfigError, shown

__all__ = [
    "EARLIEST_MS",
    "LATEST_MS",
    "Duration",
    "as_int64",
    "milliseconds",
    "moment",
    "span",
    "wait",
]

Duration = int | timedelta
"""Milliseconds, or a `timedelta`."""

# Longer than any wait that makes sense, shorter than a date of today in milliseconds: so a
# timestamp given for a duration is found out (milliseconds; 40 years).
_LONGEST = 40 * 365 * 24 * 3600 * 1000

_MILLISECOND = timedelta(milliseconds=1)

# The first and the last time of a record or a timer (milliseconds since 1970): the years 1 to 9999,
# which `datetime`, Spark and a broker can show. The engine adds lengths, waits and lifetimes to
# them; none is longer than `_LONGEST`, so the sum of seven million of them is still an int64.
EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999


# The longest wait for something late (milliseconds; one leap year).
_LONGEST_WAIT = 366 * 24 * 3600 * 1000


def wait(given: Any, what: str) -> int:
    """Return how long to wait for late records, in milliseconds, checked."""
    found = milliseconds(given, what, least=0)
    if found > _LONGEST_WAIT:
        msg = f"{what} is {shown(given)}, more than a year: nothing would ever close."
        raise ConfigError(msg + f"\nFix: {what}=timedelta(hours=1).")
    return found


def milliseconds(given: Any, what: str, *, least: int = 1) -> int:
    """Return a duration in milliseconds, checked.

    >>> from datetime import timedelta
    >>> milliseconds(timedelta(seconds=2), "duration_ms"), milliseconds(5, "duration_ms")
    (2000, 5)
    """
    if isinstance(given, timedelta):
        found = round(given / _MILLISECOND)
    elif type(given) is int:
        found = given
    else:
        msg = f"{what} is an int of milliseconds or a timedelta, got {shown(given)}."
        raise ConfigError(msg + f"\nFix: {what}=timedelta(seconds=10).")
    if found < least:
        word = "0 or more" if least == 0 else "1 millisecond or more"
        msg = f"{what} must be {word}, got {shown(given)}."
        raise ConfigError(msg + f"\nFix: {what}=timedelta(seconds=10).")
    if found > _LONGEST:
        msg = f"{what} is {shown(found)} milliseconds, more than 40 years: was a date given?"
        raise ConfigError(msg + f"\nFix: {what} is how long, not when.")
    return found


def span(ms: int) -> str:
    """Return a duration for people.

    >>> span(90_000), span(60_000), span(1_500), span(7_200_000)
    ('90 s', '1 min', '1500 ms', '2 h')
    """
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def as_int64(moment: int) -> int:
    """Return a time as a column of a segment can hold it.

    What is cut to that is no time of a record all the same, so the record fails and nothing else.
    """
    return min(max(moment, -(2**63)), 2**63 - 1)


def moment(given: Any, what: str) -> int:
    """Return a moment in milliseconds since 1970, checked.

    >>> from datetime import UTC, datetime
    >>> moment(datetime(1970, 1, 2, tzinfo=UTC), "at")
    86400000
    """
    if type(given) is int and EARLIEST_MS <= given <= LATEST_MS:
        return given
    if isinstance(given, datetime) and given.tzinfo is not None:
        return min(round(given.timestamp() * 1000), LATEST_MS)  # `datetime.max` is rounded up
    if isinstance(given, datetime):
        msg = f"{what} has no time zone: {given!r}.\nFix: datetime(..., tzinfo=UTC)."
        raise ConfigError(msg)
    if type(given) is int:
        msg = f"{what} is {shown(given)}, which is not in the years 1 to 9999."
        raise ConfigError(msg + "\nFix: milliseconds since 1970, not micro- or nanoseconds.")
    msg = f"{what} is an int of milliseconds since 1970 or a datetime, got {shown(given)}."
    hint = "int(seconds * 1000)"
    if isinstance(given, str):
        hint = "datetime.fromisoformat(text), with a time zone"
    raise ConfigError(msg + f"\nFix: {hint}.")
