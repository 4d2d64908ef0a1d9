"""A source of records at a steady rate, which may grow at the beginning.

Takes a rate; gives the records of any range again, with the same times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.arguments.callsite import here
from millpond.arguments.duration import Duration, milliseconds
from millpond.arguments.windows import LIVE, Clocking
from millpond.connectors.json_serde import JSONDeserializer
from millpond.connectors.protocols import Offsets, SourceKind, SourceReader
from millpond.connectors.segments import SEGMENT
from millpond.connectors.serde import BytesDeserializer, Deserializer
from millpond.connectors.topic import check_name
from millpond.errors import ConfigError, shown

__all__ = ["RateReader", "RateSource"]

_OF_SPARK = {
    "rowsPerSecond": "RateSource(rows_per_second=10)",
    "rampUpTime": "RateSource(rows_per_second=10, ramp_up=timedelta(seconds=5)), or milliseconds",
    "numPartitions": "leave it out; group_by() spreads the records over the cores",
}


@dataclass(frozen=True)
class RateSource:
    """Records at a steady rate: values `{"value": 0}`, `{"value": 1}`, ... with their times.

    >>> from millpond import Application
    >>> app = Application(consumer_group="shop")
    >>> numbers = app.dataframe(source=RateSource(rows_per_second=100))

    Args:
        rows_per_second: How many records a second.
        count: Stop after so many; None: forever.
        name: Name of the source; state and offsets belong to it.
        ramp_up: How long the rate takes to grow from 0 to `rows_per_second`, evenly: milliseconds
            or a `timedelta`, like Spark's `rampUpTime`.
    """

    kind: ClassVar[SourceKind] = "rate"
    clocking: ClassVar[Clocking] = LIVE

    rows_per_second: int
    count: int | None = None
    name: str = "rate"
    ramp_up: Duration = 0

    if not TYPE_CHECKING:

        def __new__(cls, *_: Any, **given: Any) -> RateSource:
            for name, ours in _OF_SPARK.items():
                if name in given:
                    msg = f"RateSource has no {name!r}, which is Spark's name ({here()})."
                    raise ConfigError(f"{msg}\nFix: {ours}.")
            return super().__new__(cls)

    def __post_init__(self) -> None:
        check_name(self.name, "source")
        if type(self.rows_per_second) is not int or self.rows_per_second < 1:
            msg = f"rows_per_second must be an int of 1 or more, got {shown(self.rows_per_second)}."
            raise ConfigError(msg + "\nFix: RateSource(rows_per_second=10).")
        if self.ramp_up != 0:
            milliseconds(self.ramp_up, "ramp_up")

    @property
    def value_deserializer(self) -> Deserializer:
        return JSONDeserializer()

    @property
    def key_deserializer(self) -> Deserializer:
        return BytesDeserializer()

    def reader(self, spool: str) -> RateReader:
        ramp_up_ms = milliseconds(self.ramp_up, "ramp_up") if self.ramp_up != 0 else 0
        return RateReader(self.rows_per_second, self.count, ramp_up_ms)


@dataclass(frozen=True)
class RateReader(SourceReader):
    """The partition's number is the moment of the start, so every range can be made again."""

    rate: int
    count: int | None
    ramp_up_ms: int = 0

    def initial(self, reset: str) -> Offsets:
        return {str(_now_ms()): 0}

    def ends(self, begin: Offsets) -> Offsets:
        now = _now_ms()
        most = self.count if self.count is not None else 2**62
        return {p: max(o, min(most, self._made(now - int(p)))) for p, o in begin.items()}

    def _made(self, passed: int) -> int:
        """Return how many records there are so many milliseconds after the start."""
        ramp_up, passed = self.ramp_up_ms, max(0, passed)
        if passed < ramp_up:
            return passed**2 * self.rate // (2000 * ramp_up)
        return (2 * passed - ramp_up) * self.rate // 2000

    def _passed(self, number: int) -> int:
        """Return after how many milliseconds a record comes."""
        ramp_up = self.ramp_up_ms
        if 2000 * number < ramp_up * self.rate:
            return isqrt(2000 * number * ramp_up // self.rate)
        return (2000 * number // self.rate + ramp_up) // 2

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        rows = range(start, end)
        begin = int(partition)
        columns = [
            pa.nulls(len(rows), pa.binary()),
            pa.array([b'{"value":%d}' % i for i in rows], pa.binary()),
            pa.array([begin + self._passed(i) for i in rows], pa.int64()),
            pa.nulls(len(rows), pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SEGMENT)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
