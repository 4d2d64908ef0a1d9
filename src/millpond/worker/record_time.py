"""The time of a record: given by a step, reported to the clocks, refused where it is absurd."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf, isfinite
from typing import Any

from millpond.arguments.duration import EARLIEST_MS, LATEST_MS, as_int64, moment
from millpond.connectors.topic import TimestampType
from millpond.errors import FutureTimestampError, MillpondError, shown
from millpond.program.clocks import ClockPoint
from millpond.program.steps import Map, Read, Step, Window
from millpond.state.key_context import KeyContext
from millpond.worker.apply import Call
from millpond.worker.emit import Push, StepFailure, failed
from millpond.worker.schedule import Schedule

__all__ = ["clocked", "extracted", "set_timestamp", "stamped"]


def clocked(
    point: ClockPoint, step: Step, schedule: Schedule, context: KeyContext, give: Push
) -> Push:
    number, ahead = point.number, point.clocking.max_future_ms
    seen, cursor = schedule.seen, context.cursor
    # A window may start a little before its records. What is above the range and guarded is said
    # to be of the future.
    least = -inf if isinstance(step, Window) else EARLIEST_MS
    most = inf if isinstance(step, Window) or point.is_guarded else LATEST_MS

    def tell(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        if not least <= timestamp <= most:
            raise StepFailure(step, _out_of_range(timestamp))
        if ahead is not None and timestamp > context.now + ahead:
            if point.is_guarded:
                raise StepFailure(step, too_far_ahead(timestamp, context.now, ahead))
        elif timestamp > seen.get(number, _NEVER):
            seen[number] = timestamp
        before = cursor.at_time(timestamp)
        give(value, key, timestamp, headers)
        cursor.at_time(before)

    return tell


_NEVER = -(2**63) - 1


def _out_of_range(timestamp: int) -> MillpondError:
    return MillpondError(
        f"the record's time, {timestamp}, is not in the years 1 to 9999.\n"
        "Fix: correct the producer, or what gives the time: milliseconds since 1970, not micro- "
        "or nanoseconds."
    )


def too_far_ahead(timestamp: int, now: int, ahead: int) -> FutureTimestampError:
    """Return what is said of a record from the future."""
    return FutureTimestampError(
        f"the record's time, {timestamp}, is {timestamp - now} ms ahead of the wall clock, more "
        f"than the {ahead} ms that max_future allows; it would close everybody's windows.\n"
        "Fix: correct the producer's clock or the timestamp extractor (are its numbers "
        "milliseconds?), or raise max_future."
    )


def extracted(read: Read, extract: Callable[..., Any], give: Push) -> Push:
    """Give each record the time that the topic's extractor finds in it."""

    def stamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            extracted = extract(value, headers, timestamp, TimestampType.CREATE_TIME)
            timestamp = _checked_timestamp(extracted, "timestamp_extractor")
        except Exception as error:
            failed(read, error)
            return
        give(value, key, timestamp, headers)

    return stamp


def stamped(step: Step, on: Callable[[Any], Any], give: Push) -> Push:
    """Give each record the time that a function finds in its value."""

    def stamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            found = on(value)
            is_number = type(found) is int and as_int64(found) == found
            timestamp = found if is_number else moment(found, "the time of a record")
        except Exception as error:
            failed(step, error)
            return
        give(value, key, timestamp, headers)

    return stamp


def set_timestamp(step: Map, call: Call, give: Push) -> Push:
    def set_timestamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            stamp = _checked_timestamp(call(value, key, timestamp, headers), "set_timestamp()")
        except Exception as error:
            failed(step, error)
            return
        give(value, key, stamp, headers)

    return set_timestamp


def _checked_timestamp(moment: Any, what: str) -> int:
    """Return a timestamp that is an int, or say what is wrong."""
    if type(moment) is float and isfinite(moment):
        moment = floor(moment)
    if type(moment) is int and as_int64(moment) == moment:
        return moment
    msg = (
        f"{what} must give a number of milliseconds, got {shown(moment)}.\n"
        "Fix: int(moment.timestamp() * 1000) for a datetime, int(seconds * 1000) for seconds."
    )
    raise MillpondError(msg)
