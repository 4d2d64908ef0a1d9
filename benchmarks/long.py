"""`make bench-long`: what a long time does to an application.

Prints tables, and writes those of the numbers below to docs/benchmarks-long.json.

python long.py batches FOLDER [10000]      so many small batches in a row: time, memory, files
python long.py outage FOLDER [10000000]    so many records waiting at the start: memory
python long.py memory FOLDER [5000000]     so many keys in state: memory for each
python long.py names FOLDER [1000000]      one key with so many names: time of changing one
python long.py latency FOLDER [120]        latencies when programs have run for so many seconds
python long.py sync FOLDER [100]           so many batches: what it costs to wait for the disk
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import data
from about import machine
from latency import latencies
from rich.console import Console
from rich.table import Table
from serving import HERE, Program, memory, sizes_of_files

import millpond as mp
from millpond.connectors.log import Log
from millpond.spark import run
from millpond.storage.durable import Disk

KEYS = 1_000

# Rows of the tables.
PARTS = 10

FIGURES = HERE.parent / "docs" / "benchmarks-long.json"

console = Console()


class Figures:
    """A table that is printed row by row, and kept with what it was measured on."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns
        self._rows: list[tuple[str, ...]] = []

    def add(self, *row: str) -> None:
        console.print(*row, sep="\t")
        self._rows.append(row)

    def show(self, name: str | None) -> None:
        """Print the table, and write it beside those of the other commands if it has a name."""
        table = Table(*self._columns)
        for row in self._rows:
            table.add_row(*row)
        console.print(table)
        if name is None:
            return
        all_of_it = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        all_of_it[name] = {
            "command": f"python benchmarks/long.py {name} FOLDER",
            "machine": machine(),
            "rows": [dict(zip(self._columns, row, strict=True)) for row in self._rows],
        }
        FIGURES.write_text(json.dumps(all_of_it, indent=1) + "\n")


def count(value: dict, state: mp.State) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    value["total"] = total
    return value


def application(folder: Path, most: int | None, **options: Any) -> mp.Application:
    return mp.Application(
        consumer_group="long",
        state_dir=folder / "state",
        topics_dir=folder / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=most,
        loglevel=None,
        **options,
    )


def counting(folder: Path, most: int | None, **options: Any) -> mp.Application:
    app = application(folder, most, **options)
    app.dataframe(app.topic("clicks")).apply(count, stateful=True).to_topic(app.topic("totals"))
    return app


def batches(folder: Path, number: int) -> Figures:
    """Small batches in a row, of ten records each."""
    log = Log(folder / "topics")
    log.create("clicks", 1)
    log.append("clicks", 0, data.touches([i % KEYS for i in range(10 * number)]))
    app = counting(folder, 10)
    running = threading.Thread(target=app.run, daemon=True)
    running.start()
    kinds = ("driver", "JVM", "Python workers")
    table = Figures("batches", "median ms", "99%", *(f"{k} MiB" for k in kinds), "files", "MiB")
    done, costs = 0, []
    while done < number:
        time.sleep(0.05)
        if not running.is_alive():
            raise SystemExit(f"the run has ended after {done:,} batches")
        new = [report.seconds * 1000 for report in list(app.reports) if report.batch_id >= done]
        done, costs = done + len(new), costs + new
        if len(costs) >= number // PARTS:
            sizes = sizes_of_files(folder / "state")
            row = [f"{done:,}", f"{statistics.median(costs):.0f}"]
            row += [f"{statistics.quantiles(costs, n=100)[98]:.0f}"]
            taken = memory(os.getpid())
            row += [f"{taken[kind] / 2**20:,.0f}" for kind in kinds]
            row += [f"{len(sizes):,}", f"{sum(sizes) / 2**20:.1f}"]
            table.add(*row)
            costs = []
    app.stop()
    running.join()
    return table


def outage(folder: Path, number: int) -> Figures:
    """Records that have waited, read with the default size of a batch."""
    log = Log(folder / "topics")
    log.create("clicks", 1)
    size = 500_000
    for part in data.tables(10_000, size * data.FILES):
        for _ in range(number // size // data.FILES + 1):
            if log.end("clicks", 0) < number:
                log.append("clicks", 0, part)
    app, is_done = counting(folder, None), threading.Event()
    most: dict[str, int] = {}

    def watch() -> None:
        while not is_done.wait(0.2):
            for kind, size in memory(os.getpid()).items():
                most[kind] = max(size, most.get(kind, 0))

    threading.Thread(target=watch).start()
    began = time.monotonic()
    app.run(drain=True, collect=False)
    seconds = time.monotonic() - began
    is_done.set()
    read = sum(report.read for report in app.reports)
    table = Figures("records", "batches", "records/s", *(f"{kind} at most, MiB" for kind in most))
    sizes = [f"{size / 2**20:,.0f}" for size in most.values()]
    table.add(f"{read:,}", str(len(app.reports)), f"{read / seconds:,.0f}", *sizes)
    return table


def memory_of_keys(folder: Path, number: int) -> Figures:
    """What programs have in memory that have touched states of several sizes, each a new one."""
    folder.mkdir(parents=True)
    sizes = [10_000, 1_000_000, number]
    found: dict[int, list[dict[str, int]]] = {keys: [] for keys in sizes}
    for keys in sizes:
        with Program("millpond_side.py", folder) as program:
            program.ask("filled", keys=keys)
    for _ in range(3):
        for keys in sizes:
            with Program("millpond_side.py", folder) as program:
                program.ask("touched", keys=keys, batches=50, each=1_000)
                found[keys].append(program.ask("taken"))
    least = statistics.median(sum(kinds.values()) for kinds in found[sizes[0]])
    table = Figures("keys", *(f"{kind} MiB" for kind in found[number][0]), "bytes a key")
    for keys in sizes:
        all_of_it = [sum(kinds.values()) for kinds in found[keys]]
        parts = [
            " ".join(f"{kinds[kind] / 2**20:,.0f}" for kinds in found[keys])
            for kind in found[keys][0]
        ]
        more = (statistics.median(all_of_it) - least) / (keys - sizes[0]) if keys > sizes[0] else 0
        table.add(f"{keys:,}", *parts, f"{more:.0f}")
    return table


# Names that one record of `names` sets.
NAMES = 10_000


def named(value: dict, state: mp.State) -> None:
    if "first" in value:
        for name in range(value["first"], value["first"] + NAMES):
            state.set(f"name-{name}", name)
    else:
        name = f"name-{value['one']}"
        state.set(name, state.get(name) + 1)


def names(folder: Path, number: int) -> Figures:
    """One key with very many names: a batch that reads and changes one of them."""
    table = Figures("what", "batches", "median ms", "least", "most")
    parts = {
        "ten records that set 10,000 names each": [
            {"first": low} for low in range(0, number, NAMES)
        ],
        "one record that changes one name": [{"one": 7919 * i % number} for i in range(40)],
    }
    for (what, values), most in zip(parts.items(), (10, 1), strict=True):
        app = application(folder, most)
        app.dataframe(app.topic("names")).apply(named, stateful=True)
        with app.get_producer() as producer:
            for value in values:
                producer.produce("names", key="k", value=json.dumps(value).encode())
        app.run(drain=True, collect=False)
        costs = sorted(report.seconds * 1000 for report in app.reports)
        figures = (statistics.median(costs), costs[0], costs[-1])
        table.add(what, str(len(costs)), *(f"{cost:,.0f}" for cost in figures))
    return table


def latency(folder: Path, seconds: int) -> Figures:
    """One record through programs that have run for some time, three times by turns."""
    table = Figures("program", "records/s", "median ms", "99%")
    for _ in range(3):
        for which in ("millpond", "millpond, one compiler", "pyspark"):
            found = latencies(which, folder, {10: 8, 1_000: 5}, warming=seconds)
            for rate, figures in found.items():
                table.add(which, f"{rate:,}", *(f"{figure:.0f}" for figure in figures))
    return table


class TimedDisk(Disk):
    """Writes down how many files each batch syncs, and in how many milliseconds."""

    rounds: ClassVar[list[tuple[int, float]]] = []

    def sync(self, *beside: str) -> int:
        began = time.monotonic()
        files = super().sync(*beside)
        self.rounds.append((files, (time.monotonic() - began) * 1000))
        return files


def sync(folder: Path, number: int) -> Figures:
    """Batches of 100 records with and without waiting for the disk, three times by turns."""
    run.Disk = TimedDisk  # type: ignore[misc]
    names = ("files", "sync: median ms", "99%", "batch: median ms", "run: s")
    table = Figures("durability", "batches", *names)
    records = data.touches([i % KEYS for i in range(100 * number)])
    for turn in range(3):
        for durability in ("process", "power"):
            home = folder / f"{durability}-{turn}"
            log = Log(home / "topics")
            log.create("clicks", 1)
            log.append("clicks", 0, records)
            app, began = counting(home, 100, durability=durability), time.monotonic()
            TimedDisk.rounds.clear()
            app.run(drain=True, collect=False)
            seconds = time.monotonic() - began
            costs = [report.seconds * 1000 for report in app.reports]
            figures = ["0", "0", "0"]
            if rounds := TimedDisk.rounds[1:]:  # the first syncs the folders above, too
                figures = [f"{statistics.median(files for files, _ in rounds):.0f}"]
                figures += [f"{statistics.median(ms for _, ms in rounds):.1f}"]
                figures += [f"{statistics.quantiles([ms for _, ms in rounds], n=100)[98]:.1f}"]
            row = [*figures, f"{statistics.median(costs):.0f}", f"{seconds:.1f}"]
            table.add(durability, str(len(costs)), *row)
    return table


if __name__ == "__main__":
    what, place, *more = sys.argv[1:]
    measure, default = {
        "batches": (batches, 10_000),
        "outage": (outage, 10_000_000),
        "memory": (memory_of_keys, 5_000_000),
        "names": (names, 1_000_000),
        "latency": (latency, 120),
        "sync": (sync, 100),
    }[what]
    target, number = Path(place).absolute() / what, int(more[0]) if more else default
    shutil.rmtree(target, ignore_errors=True)
    measure(target, number).show(what if number == default else None)
