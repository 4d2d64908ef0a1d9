"""What the stages of a batch gave, brought together on the driver.

Takes the packed rows of a batch, in any order; gives the records of each output in the order
of the input, the counts, and the first failure if there was one.
"""

from __future__ import annotations

import logging
import marshal
import pickle
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.driver.held_back import HeldBack
from millpond.errors import (
    EngineError,
    Failure,
    MillpondError,
    ResourceError,
    StateError,
    StepError,
)
from millpond.program.plan import Plan
from millpond.record import Record
from millpond.wire import any_value
from millpond.wire.headers import decode_headers
from millpond.wire.packed_rows import (
    FAILURE,
    OUTPUT,
    REPORT,
    Row,
    concat,
    family_of,
    in_order,
)
from millpond.wire.payloads import read_payload

__all__ = ["BatchReport", "Gathered", "StageCounts", "gather", "log_late", "to_records"]

logger = logging.getLogger("millpond")


@dataclass
class StageCounts:
    """What became of the records that entered a stage: entered = out + filtered + late + dead."""

    entered: int = 0
    out: int = 0
    filtered: int = 0
    late: int = 0
    dead: int = 0


@dataclass
class BatchReport:
    """What one batch did."""

    batch_id: int = -1
    stages: dict[int, StageCounts] = field(default_factory=lambda: defaultdict(StageCounts))
    outputs: int = 0
    """Records that reached the end of a frame."""
    refused: int = 0
    """Outputs that their topic refuses, each a dead letter. Their records have left their stage, so
    they count there as out, and not as dead."""
    seconds: float = 0.0
    """From the first task to the last output, before the commit."""
    keys: dict[tuple[str, int], int] = field(default_factory=dict)
    """Keys in state of each (scope, key group) that the batch touched."""
    bytes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of their pages."""
    times: dict[int, int] = field(default_factory=dict)
    """The largest timestamp that came by each clock point."""
    due: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """The next moment of each clock at which a touched group has something to do."""
    clock_seq: int = 0
    """Which clock the batch went by."""
    waited: dict[str, float] = field(default_factory=dict)
    """For how many seconds its delivery waited for a sink or a broker, where that was a second."""
    held_back: list[HeldBack] = field(default_factory=list)
    """The sources for which windows or timers wait, though other records have passed them."""

    @property
    def read(self) -> int:
        return self.stages[0].entered

    @property
    def dead(self) -> int:
        return sum(stage.dead for stage in self.stages.values())

    @property
    def late(self) -> int:
        return sum(stage.late for stage in self.stages.values())

    @property
    def reconciles(self) -> bool:
        """Whether every record that entered a stage is accounted for."""
        return all(
            s.entered == s.out + s.filtered + s.late + s.dead and s.filtered >= 0
            for s in self.stages.values()
        )


@dataclass
class Gathered:
    """The outputs of one batch."""

    report: BatchReport
    outputs: dict[int, pa.RecordBatch]


def gather(rows: Iterable[Row], batch_id: int) -> Gathered:
    """Return what a batch gave.

    Raises:
        StepError: a step failed on a record, and such failures stop the run.
        StateError, EngineError: a step could not read or write its state.
    """
    report = BatchReport(batch_id)
    parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    failures: list[Failure] = []
    for row in rows:
        family, number, columns = family_of(row.kind)
        if family == OUTPUT:
            parts[number].append(read_payload(row.payload, columns))
        elif family == REPORT:
            _add(report, marshal.loads(row.payload))
        elif family == FAILURE:
            failures.append(pickle.loads(row.payload))
    if failures:
        raise _error_of(min(failures, key=lambda f: (f.topic, f.partition, f.offset)))
    return Gathered(report, {n: in_order(concat(batches)) for n, batches in parts.items()})


def log_late(report: BatchReport, plan: Plan) -> None:
    """Warn of late records where the program does not take them."""
    windows = plan.without_late()
    if report.late and windows:
        names = ", ".join(f"{step.store} ({step.call_site})" for step in windows)
        logger.warning(
            "batch %s: %s record(s) came too late; nothing takes late records of %s.\n"
            "Fix: take them with late(), or wait longer: watermark(lateness=...), grace_ms=...",
            *(report.batch_id, report.late, names),
        )


def to_records(batch: pa.RecordBatch, topics: list[str]) -> list[Record]:
    """Return the records of an output for the driver, whose values are (value, key) in flight."""
    has_headers = "headers" in batch.schema.names
    headers = batch.column("headers").to_pylist() if has_headers else [None] * batch.num_rows
    columns = (batch.column(i).to_pylist() for i in (1, 2, 3, 4, 5))
    records = []
    for packed, time, source, partition, offset, header in zip(*columns, headers, strict=True):
        value, key = any_value.decode(packed)
        is_record = 0 <= source < len(topics)
        place = (topics[source], partition, offset) if is_record else ("", -1, -1)
        records.append(Record(key, value, time, decode_headers(header), *place))
    return records


def _add(report: BatchReport, part: dict[str, object]) -> None:
    counts = report.stages[int(part["stage"])]  # type: ignore[call-overload]
    counts.entered += part["in"]  # type: ignore[operator]
    counts.out += part["out"]  # type: ignore[operator]
    counts.filtered += part["filtered"]  # type: ignore[operator]
    counts.late += part["late"]  # type: ignore[operator]
    counts.dead += part["dead"]  # type: ignore[operator]
    report.outputs += part["outputs"]  # type: ignore[operator]
    if part["keys"]:
        scope, group, count, size, due = part["keys"]  # type: ignore[misc]
        report.keys[scope, group] = count  # type: ignore[has-type]
        report.bytes[scope, group] = size  # type: ignore[has-type]
        report.due[scope, group] = due  # type: ignore[has-type]
    for point, timestamp in part["times"].items():  # type: ignore[attr-defined]
        report.times[point] = max(timestamp, report.times.get(point, timestamp))
    report.clock_seq = max(report.clock_seq, part["seq"])  # type: ignore[call-overload]


def _error_of(failure: Failure) -> MillpondError:
    """Return what is to be raised: the failure of the step, or the error that caused it."""
    cause = None if failure.exception is None else pickle.loads(failure.exception)
    if isinstance(cause, MillpondError) and not failure.step:
        return cause  # of a source
    # No fault of the function or the record.
    if isinstance(cause, StateError | EngineError | ResourceError):
        cause.add_note(f"Met by {failure.step} ({failure.call_site}), key {failure.key}.")
        return cause
    error = StepError(failure)
    error.__cause__ = cause
    return error
