"""What a batch that touches 1,000 keys costs, by the number of keys in state.

python growth.py FOLDER KEYS      prints one line of JSON
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
from pathlib import Path

import millpond as mp

folder, keys = Path(sys.argv[1]), int(sys.argv[2])
BATCHES, TOUCHED = 12, 1_000


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


def main() -> None:
    shutil.rmtree(folder / "growth", ignore_errors=True)
    numbers = random.Random(3)
    app = mp.Application(
        consumer_group="growth",
        state_dir=folder / "growth" / "state",
        topics_dir=folder / "growth" / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=max(TOUCHED, 250_000),
        loglevel=None,
    )
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(count, stateful=True)
    with app.get_producer() as producer:
        for i in range(keys):
            producer.produce("clicks", f"k{i}", b'{"event":"click"}')
    app.run(drain=True, collect=False)
    fill = {k: v for r in app.reports for k, v in r.keys.items()}
    costs = []
    with app.get_producer() as producer:
        for _ in range(BATCHES):
            for key in numbers.sample(range(keys), TOUCHED):
                producer.produce("clicks", f"k{key}", b'{"event":"click"}')
    app.reports.clear()
    small = mp.Application(
        consumer_group="growth",
        state_dir=folder / "growth" / "state",
        topics_dir=folder / "growth" / "topics",
        max_records_per_batch=TOUCHED,
        loglevel=None,
    )
    small.dataframe(small.topic("clicks")).apply(count, stateful=True)
    small.run(drain=True, collect=False)
    costs = [report.seconds for report in small.reports][2:]
    result = {"keys": sum(fill.values()), "median_ms": statistics.median(costs) * 1000}
    print(json.dumps(result))


main()
