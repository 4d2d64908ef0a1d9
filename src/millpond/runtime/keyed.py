"""A stateful stage over one key group: what Spark's processor and the local engine call.

Takes the packed rows of a group, brings their records into the order of their origin, and
runs the stage on the group's store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from millpond.runtime.batch import Row, concat, family_of, in_order, read_payload
from millpond.runtime.stage import StageRunner
from millpond.state.store import Store

__all__ = ["run_group"]


def run_group(runner: StageRunner, rows: Iterable[Row], store: Store, group: int) -> Iterator[Row]:
    """Run a stage over the rows of one key group."""
    batches: dict[int, list[pa.RecordBatch]] = {}
    for row in rows:
        _, edge, columns = family_of(row.kind)
        batches.setdefault(edge, []).append(read_payload(row.payload, columns))
    if len(batches) == 1:
        ((edge, parts),) = batches.items()
        return runner.run(in_order(concat(parts)), [runner.entries[edge]], store, group)
    return _run_mixed(runner, batches, store, group)


def _run_mixed(
    runner: StageRunner, batches: dict[int, list[pa.RecordBatch]], store: Store, group: int
) -> Iterator[Row]:
    """Records that came by several edges run in one order, each read in its own way."""
    whole = concat([batch for parts in batches.values() for batch in parts])
    edges = [e for e, parts in batches.items() for part in parts for _ in range(part.num_rows)]
    numbered = whole.append_column("edge", pa.array(edges, pa.int32()))
    ordered = in_order(numbered)
    entries = [runner.entries[edge] for edge in ordered.column("edge").to_pylist()]
    names = [name for name in ordered.schema.names if name != "edge"]
    return runner.run(ordered.select(names), entries, store, group)
