"""The same running count per key in Millpond: embedded log to embedded log.

python millpond_count.py FOLDER KEYS RECORDS      prints one line of JSON
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import data

import millpond as mp

folder, keys, records = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


def main() -> None:
    topics = data.as_topic(folder, keys, records)
    shutil.rmtree(folder / "state", ignore_errors=True)
    app = mp.Application(
        consumer_group="bench",
        state_dir=folder / "state",
        topics_dir=topics,
        auto_offset_reset="earliest",
        max_records_per_batch=1_000_000,
        loglevel=None,
    )
    clicks, totals = app.topic("clicks"), app.topic("totals")
    app.dataframe(clicks).apply(count, stateful=True).to_topic(totals)
    from millpond.spark.session import open_session

    open_session(None, None, {}, "bench")  # as in the other program, Spark is up when time starts
    began = time.monotonic()
    app.run(drain=True, collect=False)
    seconds = time.monotonic() - began
    done = sum(report.read for report in app.reports)
    best = max(report.read / report.seconds for report in app.reports)
    in_state = sum({k: v for r in app.reports for k, v in r.keys.items()}.values())
    print(json.dumps({"records": done, "all": done / seconds, "best": best, "keys": in_state}))


main()
