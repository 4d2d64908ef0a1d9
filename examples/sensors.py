"""Sensors whose readings arrive in disorder: averages by the minute, and an alert for silence.

A reading may come a minute late and still counts for its minute. A timer waits five minutes after
the latest reading; each later one sets it again, so it fires only when the sensor is silent.

Prints:

    10:00 sensor_789: 23.5 degrees, mean of 4
    10:00 sensor_790: 20.0 degrees, mean of 1
    10:01 sensor_789: 24.0 degrees, mean of 1
    10:05 sensor_790: silent
    10:06 sensor_789: silent
    10:09 sensor_789: 23.0 degrees, mean of 1
    10:14 sensor_789: silent
"""

from datetime import UTC, datetime, timedelta

import millpond as mp

READINGS = [
    ("10:00:05", "sensor_789", 23.0),
    ("10:00:20", "sensor_790", 20.0),
    ("10:01:10", "sensor_789", 24.0),
    ("10:00:50", "sensor_789", 24.5),  # late
    ("10:00:35", "sensor_789", 23.5),  # late
    ("10:00:40", "sensor_789", 23.0),  # late
    ("10:09:00", "sensor_789", 23.0),
]


def milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(f"2024-05-01T{time}+00:00").timestamp() * 1000)


def clock(timestamp: int) -> str:
    return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%H:%M}"


def average(window: dict, sensor: str, timestamp: int, headers: list | None) -> str:
    mean = f"{window['mean']} degrees, mean of {window['n']}"
    return f"{clock(window['start'])} {sensor}: {mean}"


def heard(value: float, state: mp.State) -> None:
    latest = max(state.timestamp, state.get("latest", 0))  # a late one moves nothing back
    state.set("latest", latest)
    state.set_timer("silence", at=latest + 5 * 60_000)


def silent(sensor: str, state: mp.State, timer: mp.Timer) -> str:
    return f"{clock(timer.at)} {sensor}: silent"


app = mp.Application(consumer_group="sensors", persistence="none", loglevel="WARNING")
records = [(sensor, degrees, milliseconds(time)) for time, sensor, degrees in READINGS]
# Nothing follows the last reading: after a second the wall clock takes over.
readings = app.dataframe(source=records).watermark(
    lateness=timedelta(minutes=1), idle_after=timedelta(seconds=1)
)
minutes = readings.tumbling_window(timedelta(minutes=1)).agg(mean=mp.Mean(), n=mp.Count())
minutes.final().apply(average, metadata=True)
readings.apply(heard, stateful=True, on_timer=silent).filter(bool)  # what heard() gives is None

print("\n".join(sorted(app.run())))
