"""Whether a query has looked at its sources.

Relies on: the English text of the status between two batches, "Waiting for ..." ("Waiting for data
    to arrive", "Waiting for next trigger").
Seen with: 4.3.
Without it: `run(timeout=...)` of a program that never reads a record would not end.
For Spark 4.4: `updateStatusMessage` in `MicroBatchExecution` and `StreamExecution`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["has_looked"]


def has_looked(status: dict[str, Any]) -> bool:
    """Tell whether a query has looked at its sources since it was started."""
    return str(status["message"]).startswith("Waiting for")
