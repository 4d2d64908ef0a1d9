"""Stage 0: records of a source enter the plan.

Takes log segments, gives packed rows. Where nothing is done before the first stateful step,
records go on without a look at any of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.protocols import SourceReader
from millpond.errors import Failure, MillpondError
from millpond.record import NOWHERE
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import FAILURE, HEADERS, Row, kind_of, records_schema
from millpond.worker.stage import StageRunner

__all__ = ["entered", "given_up", "read_range", "run_source"]

# Records of one range that a stage holds at a time.
_SLICE = 100_000


def entered(
    segment: pa.RecordBatch, source: int, partition: int, start: int, now: int = 0
) -> pa.RecordBatch:
    """Return the records of a segment with the place they came from, and a time.

    Where the segment has no column `offset`, its records follow one another from `start` on.
    """
    rows = segment.num_rows
    headers = segment.column("headers")
    flags = HEADERS if headers.null_count < rows else 0
    columns = [
        segment.column("key"),
        segment.column("value"),
        pc.fill_null(times, now) if (times := segment.column("timestamp")).null_count else times,
        pa.array(np.full(rows, source, np.int32)),
        pa.array(np.full(rows, partition, np.int64)),
        _offsets(segment, start),
    ]
    return pa.RecordBatch.from_arrays(
        columns + ([headers] if flags else []), schema=records_schema(flags)
    )


def _offsets(segment: pa.RecordBatch, start: int) -> pa.Array:
    if "offset" in segment.schema.names:
        return segment.column("offset")
    return pa.array(np.arange(start, start + segment.num_rows, dtype=np.int64))


def read_range(
    reader: SourceReader, number: int, partition: str, start: int, end: int, now: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as they enter the plan, some at a time.

    Records without a time have that of the batch, `now`, which is the same when it is replayed.
    """
    for place, offset, segment in reader.located(partition, start, end):
        for low in range(0, segment.num_rows, _SLICE):
            yield entered(segment.slice(low, _SLICE), number, place, offset + low, now)


def run_source(
    runner: StageRunner, number: int, records: pa.RecordBatch, clock: Clock
) -> Iterator[Row]:
    """Run stage 0 over records of one source."""
    return runner.run(number, records, clock)


def given_up(error: MillpondError) -> Row:
    """Return what ends the run with an error of a source: no step and no record is to blame."""
    nothing = dict.fromkeys(("step", "call_site", "topic", "key", "error", "traceback"), "")
    failure = Failure(**nothing, partition=NOWHERE, offset=-1, exception=pickle.dumps(error))
    return Row("", -1, kind_of(FAILURE, 0), pickle.dumps(failure))
