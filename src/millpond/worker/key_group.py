"""A stateful stage over one key group: what Spark's processor and the local engine call.

Takes the packed rows of a group, brings their records into the order of their origin, and
runs the stage on the group's store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from millpond.program.plan import Plan
from millpond.state.codec import Codec
from millpond.state.store import Store
from millpond.wire.clock import Clock
from millpond.wire.packed_rows import (
    Row,
    concat,
    family_of,
    in_order,
    records_schema,
)
from millpond.wire.payloads import read_payload
from millpond.worker.stage import StageRunner

__all__ = ["key_decoder", "run_group"]


def run_group(runner: StageRunner, rows: Iterable[Row], store: Store, group: int) -> Iterator[Row]:
    """Run a stage over the rows of one key group."""
    batches: dict[int, list[pa.RecordBatch]] = {}
    clock: Clock | None = None
    for row in rows:
        if row.clock and clock is None:
            clock = Clock.decode(row.clock)
        if row.payload:
            _, edge, columns = family_of(row.kind)
            batches.setdefault(edge, []).append(read_payload(row.payload, columns))
    if len(batches) > 1:
        return _run_mixed(runner, batches, store, group, clock)
    edge, parts = next(iter(batches.items()), (next(iter(runner.entries)), [_NOTHING]))
    records = in_order(concat(parts))
    return runner.run_group(records, [runner.entries[edge]], store, group, clock)


_EMPTY = records_schema(0)
_NOTHING = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in _EMPTY], schema=_EMPTY)


def _run_mixed(
    runner: StageRunner,
    batches: dict[int, list[pa.RecordBatch]],
    store: Store,
    group: int,
    clock: Clock | None,
) -> Iterator[Row]:
    """Records that came by several edges run in one order, each read in its own way."""
    # The sort is stable: of records of one origin, those of the lower edge come first.
    batches = dict(sorted(batches.items()))
    whole = concat([batch for parts in batches.values() for batch in parts])
    edges = [e for e, parts in batches.items() for part in parts for _ in range(part.num_rows)]
    numbered = whole.append_column("edge", pa.array(edges, pa.int32()))
    ordered = in_order(numbered)
    entries = [runner.entries[edge] for edge in ordered.column("edge").to_pylist()]
    names = [name for name in ordered.schema.names if name != "edge"]
    return runner.run_group(ordered.select(names), entries, store, group, clock)


def key_decoder(plan: Plan, scope: str, codec: Codec) -> Callable[[bytes], Any]:
    """Return what reads the keys of a scope; raw bytes where the program no longer has it."""
    stage = next((stage for stage in plan.stages if stage.scope == scope), None)
    edge = next((e for e in plan.edges if stage and e.target == stage.number), None)
    if edge is None:
        return bytes
    if edge.raw_key_of is None:
        return codec.decode
    return plan.reads[edge.raw_key_of].source.key_deserializer
