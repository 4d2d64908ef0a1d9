"""What a stage says of a batch: how many records became what, and which failure ends the run."""

from __future__ import annotations

import marshal
import pickle
from dataclasses import dataclass
from typing import Any

from millpond.errors import Failure
from millpond.wire.packed_rows import FAILURE, REPORT, Row, kind_of

__all__ = ["Counts", "failure_row", "report_row"]


@dataclass
class Counts:
    """What became of the records that entered a stage."""

    entered: int = 0
    out: int = 0
    late: int = 0
    dead: int = 0
    outputs: int = 0
    keys: Any = None

    def add(self, entered: int, out: int = 0, late: int = 0, dead: int = 0) -> None:
        self.entered += entered
        self.out += out
        self.late += late
        self.dead += dead


def report_row(stage: int, counts: Counts, times: dict[int, int], seq: int) -> Row:
    """Return the row that tells the driver of a batch.

    Args:
        stage: The number of the stage.
        counts: Its records.
        times: The largest timestamp at each clock point.
        seq: The number of the batch, as its clock has it.
    """
    report = {
        "stage": stage,
        "in": counts.entered,
        "out": counts.out,
        "late": counts.late,
        "dead": counts.dead,
        "filtered": counts.entered - counts.out - counts.late - counts.dead,
        "outputs": counts.outputs,
        "keys": counts.keys,
        "times": times,
        "seq": seq,
    }
    return Row("", -1, kind_of(REPORT, 0), marshal.dumps(report))


def failure_row(failure: Failure) -> Row:
    """Return the row that ends the run."""
    return Row("", -1, kind_of(FAILURE, 0), pickle.dumps(failure))
