"""Millpond's side of the benchmarks: python millpond_side.py FOLDER, then requests."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from itertools import count as count_from
from pathlib import Path

import data
from serving import memory, serve, sizes_of_files

import millpond as mp
from millpond.connectors.log import Log
from millpond.spark.session import open_session

FOLDER = Path(sys.argv[1])

# Small batches that are done before the clock starts.
WARMING = 10

# Each run begins without state. Spark may still be writing that of the run before.
NUMBERS = count_from(1)


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


def measured(app: mp.Application) -> dict:
    """Run an application over what waits; return its rates."""
    app.reports.clear()
    began = time.monotonic()
    app.run(drain=True, collect=False)
    seconds = time.monotonic() - began
    reports = list(app.reports)
    done = sum(report.read for report in reports)
    return {
        "records": done,
        "all": done / seconds,
        "best": max(report.read / report.seconds for report in reports),
        "batches_ms": [report.seconds * 1000 for report in reports],
        "keys": sum({k: v for r in reports for k, v in r.keys.items()}.values()),
    }


def application(topics: Path, group: str, most: int | None = None) -> mp.Application:
    return mp.Application(
        consumer_group=group,
        state_dir=FOLDER / "state",
        topics_dir=topics,
        auto_offset_reset="earliest",
        max_records_per_batch=most,
        loglevel=None,
    )


def counts(keys: int, records: int, skew: bool = False, most: int | None = None) -> dict:
    """A running count per key, topic to topic."""
    topics = data.as_topic(FOLDER, keys, records, skew)
    app = application(topics, f"count-{next(NUMBERS)}", most or records // data.FILES * 4)
    app.dataframe(app.topic("clicks")).apply(count, stateful=True).to_topic(app.topic("totals"))
    return measured(app)


def chain(records: int) -> dict:
    """Five steps without state, topic to topic."""
    topics = data.as_topic(FOLDER, 10_000, records)
    app = application(topics, f"chain-{next(NUMBERS)}", records // data.FILES * 4)
    frame = app.dataframe(app.topic("clicks")).apply(data.cents).filter(data.is_large)
    frame = frame.apply(data.renamed).apply(data.sized).apply(data.noted)
    frame.to_topic(app.topic("totals"))
    return measured(app)


def filled(keys: int) -> dict:
    """State of so many keys, for `touched`."""
    log, group = Log(FOLDER / f"grown-{keys}"), f"grown-{keys}"
    log.create("clicks", 1)
    for low in range(0, keys, 500_000):
        log.append("clicks", 0, data.touches(range(low, min(keys, low + 500_000))))
    app = application(log.path, group, 500_000)
    app.dataframe(app.topic("clicks")).apply(count, stateful=True)
    found = measured(app)
    sizes = {place: size for report in app.reports for place, size in report.bytes.items()}
    return {
        "keys": found["keys"],
        "page_bytes_per_key": sum(sizes.values()) / keys,
        "disk_bytes_per_key": sum(sizes_of_files(FOLDER / "state" / group)) / keys,
    }


def touched(keys: int, batches: int, each: int) -> dict:
    """What a batch costs that touches some keys of `filled` state."""
    log, numbers = Log(FOLDER / f"grown-{keys}"), random.Random(3)
    for _ in range(batches + WARMING):
        log.append("clicks", 0, data.touches(numbers.sample(range(keys), each)))
    app = application(log.path, f"grown-{keys}", each)
    app.dataframe(app.topic("clicks")).apply(count, stateful=True)
    return {"median_ms": statistics.median(measured(app)["batches_ms"][WARMING:])}


def taken() -> dict:
    """The bytes that the driver, the JVM and all Python workers have in memory."""
    return memory(os.getpid())


if __name__ == "__main__":
    open_session(None, None, {}, "bench")
    serve(counts=counts, chain=chain, filled=filled, touched=touched, taken=taken)
