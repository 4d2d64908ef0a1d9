"""Test stateful programs without a JVM, in milliseconds.

`run_local` runs the same stage functions that Spark runs, in this process, on a `MemoryStore`.
The local engine is the specification: a difference between it and Spark is a bug.

    def test_totals():
        assert run_local(totals(frame()), [("a", 1), ("a", 2), CRASH, ("a", 3)]) == [1, 3, 6]
"""

from millpond.connectors.sources import CRASH, END, ListSource
from millpond.state.store import MemoryStore
from millpond.testing.engine import LocalEngine, Run, run_local
from millpond.testing.frames import frame
from millpond.testing.manual_clock import ManualClock
from millpond.testing.sink_contract import check_sink
from millpond.testing.source_contract import check_source

__all__ = [
    "CRASH",
    "END",
    "ListSource",
    "LocalEngine",
    "ManualClock",
    "MemoryStore",
    "Run",
    "check_sink",
    "check_source",
    "frame",
    "run_local",
]
