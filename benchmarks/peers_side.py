"""Other Python systems, one process each: python peers_side.py FOLDER, then requests.

Runs in an environment of its own (`.venv-peers`), without Millpond and without Spark. Records are
in memory before the clock starts, and nothing is written anywhere but state.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from pathlib import Path

import msgspec
from serving import serve

FOLDER = Path(sys.argv[1])

# The same JSON as on the other side, and faster than their own.
decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

# Records after which Quix commits: as many as come in the five seconds between its commits, or so.
QUIX_COMMIT = 200_000


def clicks(keys: int, records: int) -> list[tuple[str, bytes]]:
    numbers = random.Random(0)
    users = (numbers.randrange(keys) for _ in range(records))
    return [
        (f"k{user}", b'{"user_id":"k%d","amount":%.6f,"event":"click"}' % (user, numbers.random()))
        for user in users
    ]


def bytewax(keys: int, records: int) -> dict:
    """`stateful_map`, in memory, without recovery."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    class Nowhere(StatelessSinkPartition):
        def write_batch(self, items: list) -> None:
            pass

    class Sink(DynamicSink):
        def build(self, *_: object) -> Nowhere:
            return Nowhere()

    def count(total: int | None, raw: bytes) -> tuple[int, bytes]:
        value = decode(raw)
        value["total"] = total = (total or 0) + 1
        return total, encode(value)

    flow = Dataflow("count")
    stream = op.input("clicks", flow, TestingSource(clicks(keys, records), batch_size=1_000))
    op.output("totals", op.stateful_map("count", stream, count), Sink())
    began = time.monotonic()
    run_main(flow)
    return {"records": records, "all": records / (time.monotonic() - began)}


def quix(keys: int, records: int) -> dict:
    """The state that Quix Streams gives a function, on RocksDB, without its broker."""
    from quixstreams.state.rocksdb import RocksDBStore

    def count(value: dict, state: object) -> dict:
        total = state.get("total", 0) + 1  # type: ignore[attr-defined]
        state.set("total", total)  # type: ignore[attr-defined]
        value["total"] = total
        return value

    shutil.rmtree(FOLDER / "quix", ignore_errors=True)
    store = RocksDBStore("default", "clicks", str(FOLDER / "quix"))
    store.assign_partition(0)
    items = clicks(keys, records)
    began = time.monotonic()
    for low in range(0, records, QUIX_COMMIT):
        transaction = store.start_partition_transaction(0)
        for key, raw in items[low : low + QUIX_COMMIT]:
            state = transaction.as_state(prefix=key.encode())
            encode(count(decode(raw), state))
        transaction.prepare()
        transaction.flush()
    seconds = time.monotonic() - began
    store.close()
    return {"records": records, "all": records / seconds}


if __name__ == "__main__":
    serve(bytewax=bytewax, quix=quix)
