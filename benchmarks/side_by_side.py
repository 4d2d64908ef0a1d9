"""`make bench-time`: windows and running totals beside Spark's own, and a state that expires.

Each case runs in a process of its own, one after the other. Timings on a shared machine are
noisy; read the ratios.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent

console = Console()


def run(program: str, *arguments: object) -> dict:
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    console.print(f"[dim]{program} {' '.join(map(str, arguments[1:]))} ...")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def time_based(folder: Path) -> None:
    table = Table(title="Aggregation of JSON, 10,000 keys (records/s: all / best batch)")
    for column in ("what", "Spark's own, no Python", "Millpond", "ratio: all / best"):
        table.add_column(column)
    for what, text in (
        ("window", "tumbling window, count and sum, final"),
        ("total", "running count and sum, once a batch"),
    ):
        native = run("native_time.py", folder, 10_000, 16_000_000, what)
        ours = run("millpond_time.py", folder, 10_000, 16_000_000, what)
        table.add_row(
            text,
            f"{native['all']:,.0f} / {native['best']:,.0f}",
            f"{ours['all']:,.0f} / {ours['best']:,.0f}",
            f"{ours['all'] / native['all']:.2f} / {ours['best'] / native['best']:.2f}",
        )
    console.print(table)


def expiry(folder: Path) -> None:
    plot = HERE.parent / "docs" / "images" / "plots" / "expiry.svg"
    found = run("expiry.py", folder / "expiry", 1_000_000, plot)
    table = Table("hours of events", "keys in state", "MB of pages", title="A TTL of one hour")
    for sample in found["samples"][3::4]:
        megabytes = sample["bytes"] / 1e6
        table.add_row(f"{sample['hours']:.0f}", f"{sample['keys']:,}", f"{megabytes:.1f}")
    console.print(table)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        time_based(Path(name))
        expiry(Path(name))


if __name__ == "__main__":
    main()
