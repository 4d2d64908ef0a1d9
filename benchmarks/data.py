"""The data of all benchmarks: JSON clicks of random users, as Parquet and as an embedded topic."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT

FILES = 16

# The windows that are measured: five minutes, of a stream with a record each millisecond.
WINDOW_MS = 300_000


def tables(keys: int, records: int, skew: bool = False):
    numbers = np.random.default_rng(0)
    per_file = records // FILES
    for i in range(FILES):
        users, amounts = numbers.integers(0, keys, per_file), numbers.random(per_file)
        if skew:  # half of all records are of one key
            users[::2] = 0
        values = [
            b'{"user_id":"k%d","amount":%.6f,"event":"click"}' % pair
            for pair in zip(users, amounts, strict=True)
        ]
        columns = {
            "key": pa.array([b"k%d" % user for user in users], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(np.arange(per_file) + i * per_file, pa.int64()),
            "headers": pa.nulls(per_file, pa.binary()),
        }
        yield pa.table(columns, SEGMENT)


def as_parquet(folder: Path, keys: int, records: int) -> Path:
    target = folder / f"parquet-{keys}-{records}"
    if not target.exists():
        aside = target.with_suffix(".writing")
        aside.mkdir(parents=True, exist_ok=True)
        for i, table in enumerate(tables(keys, records)):
            pq.write_table(table.select(["key", "value", "timestamp"]), aside / f"{i:04}.parquet")
        aside.rename(target)
    return target


def as_topic(folder: Path, keys: int, records: int, skew: bool = False) -> Path:
    target = folder / f"topics-{keys}-{records}{'-skew' * skew}"
    if not target.exists():
        aside = target.with_suffix(".writing")
        shutil.rmtree(aside, ignore_errors=True)
        log = Log(aside)
        log.create("clicks", 1)
        for table in tables(keys, records, skew):
            log.append("clicks", 0, table)
        aside.rename(target)
    shutil.rmtree(target / "totals", ignore_errors=True)
    return target


def touches(users) -> pa.Table:
    """One click of each user."""
    columns = {
        "key": pa.array([b"k%d" % user for user in users], pa.binary()),
        "value": pa.array([b'{"event":"click"}'] * len(users), pa.binary()),
        "timestamp": pa.array(np.zeros(len(users), np.int64)),
        "headers": pa.nulls(len(users), pa.binary()),
    }
    return pa.table(columns, SEGMENT)


# --- five steps without state: what each of them does to a click ------------------------------


def cents(click: dict) -> dict:
    click["cents"] = round(click.pop("amount") * 100)
    return click


def is_large(click: dict) -> bool:
    return click["cents"] > 10


def renamed(click: dict) -> dict:
    click["user"] = click.pop("user_id")
    return click


def sized(click: dict) -> dict:
    click["size"] = "large" if click["cents"] > 50 else "small"
    return click


def noted(click: dict) -> dict:
    click["note"] = f"{click['user']} paid a {click['size']} amount"
    return click
