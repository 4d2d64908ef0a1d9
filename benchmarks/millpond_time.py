"""Windows and running totals in Millpond, over the JSON that `native_time.py` aggregates.

python millpond_time.py FOLDER KEYS RECORDS window|total      prints one line of JSON
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import data

import millpond as mp
from millpond.spark.session import open_session


def main() -> None:
    folder, keys, records, what = (Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4])
    topics = data.as_topic(folder, keys, records)
    shutil.rmtree(folder / "state", ignore_errors=True)
    app = mp.Application(
        consumer_group="bench",
        state_dir=folder / "state",
        topics_dir=topics,
        auto_offset_reset="earliest",
        max_records_per_batch=4_000_000,  # as many as the four files of the other program
        loglevel=None,
    )
    totals = {"n": mp.Count(), "amount": mp.Sum("amount")}
    sdf = app.dataframe(app.topic("clicks")).group_by("user_id")
    if what == "window":
        sdf.tumbling_window(data.WINDOW_MS).agg(**totals).final()
    else:
        sdf.agg(emit="batch", **totals)
    open_session(None, None, {}, "bench")  # as in the other program, Spark is up when time starts
    began = time.monotonic()
    app.run(drain=True, collect=False)
    seconds = time.monotonic() - began
    done = sum(report.read for report in app.reports)
    best = max(report.read / report.seconds for report in app.reports)
    results = sum(report.outputs for report in app.reports)
    print(json.dumps({"records": done, "all": done / seconds, "best": best, "results": results}))


main()
