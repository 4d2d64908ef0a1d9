"""State with a TTL stays as large as what is alive: ten hours of events, a million keys an hour.

python expiry.py FOLDER [KEYS_PER_HOUR] [PLOT.svg]      prints one line of JSON

Each key comes once and is remembered for an hour of event time; without the TTL the state would
have ten million keys in the end.
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

import millpond as mp
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT

HOURS = 10
HOUR_MS = 3_600_000


def write_topic(folder: Path, per_hour: int) -> None:
    """Write the events in order: one key after the other, evenly over each hour."""
    shutil.rmtree(folder, ignore_errors=True)
    log = Log(folder)
    log.create("visits", 1)
    for hour in range(HOURS):
        first = hour * per_hour
        columns = {
            "key": pa.array([b"k%d" % n for n in range(first, first + per_hour)], pa.binary()),
            "value": pa.array([b'{"page":"home"}'] * per_hour, pa.binary()),
            "timestamp": pa.array(hour * HOUR_MS + np.arange(per_hour) * HOUR_MS // per_hour),
            "headers": pa.nulls(per_hour, pa.binary()),
        }
        log.append("visits", 0, pa.table(columns, SEGMENT))


def remember(value: dict, state: mp.State) -> None:
    state.set("page", value["page"], ttl=timedelta(hours=1))


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    folder = Path(sys.argv[1])
    per_hour = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    write_topic(folder / "topics", per_hour)
    shutil.rmtree(folder / "state", ignore_errors=True)
    samples: list[dict] = []
    keys: dict = {}
    sizes: dict = {}
    app = mp.Application(
        consumer_group="expiry",
        state_dir=folder / "state",
        topics_dir=folder / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=per_hour // 4,
        loglevel=None,
    )
    app.dataframe(app.topic("visits")).update(remember, stateful=True).sink(lambda *_: None)
    app.run(drain=True, collect=False)
    read = 0
    for report in app.reports:
        keys.update(report.keys)
        sizes.update(report.bytes)
        read += report.read
        samples.append(
            {
                "hours": read / per_hour,
                "keys": sum(keys.values()),
                "bytes": sum(sizes.values()),
                "seconds": report.seconds,
            }
        )
    if len(sys.argv) > 3:
        plot(samples, per_hour, Path(sys.argv[3]))
    later = [s["keys"] for s in samples if s["hours"] > 2]
    print(
        json.dumps(
            {
                "records": read,
                "least_keys": min(later),
                "most_keys": max(later),
                "most_bytes": max(s["bytes"] for s in samples),
                "disk_bytes": disk_bytes(folder / "state"),
                "samples": samples,
            }
        )
    )


def plot(samples: list[dict], per_hour: int, file: Path) -> None:
    from matplotlib import pyplot as plt
    from plots import save

    hours = [s["hours"] for s in samples]
    figure, axes = plt.subplots(figsize=(7, 3.4))
    axes.plot(
        hours, [h * per_hour / 1e6 for h in hours], "--", color="#b0b0b0", label="without TTL"
    )
    axes.plot(hours, [s["keys"] / 1e6 for s in samples], color="#1f77b4", label="keys in state")
    axes.set_xlabel("hours of events")
    axes.set_ylabel("million keys")
    other = axes.twinx()
    other.plot(hours, [s["bytes"] / 1e6 for s in samples], color="#d62728", label="bytes of pages")
    other.set_ylabel("MB")
    other.set_ylim(0, 2 * max(s["bytes"] for s in samples) / 1e6)
    lines = [*axes.get_lines(), *other.get_lines()]
    axes.legend(lines, [line.get_label() for line in lines], loc="upper left", frameon=False)
    axes.set_title("A TTL of one hour, a million new keys an hour")
    save(figure, file)


if __name__ == "__main__":
    main()
