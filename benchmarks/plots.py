"""The plots of docs/benchmarks.md, from the figures of a run."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

__all__ = ["draw"]

COLOURS = {"Millpond": "#1f77b4", "guide": "#d62728", "native": "#7f7f7f", "pyspark": "#d62728"}


def draw(figures: dict[str, Any], folder: Path) -> None:
    """Write every plot for which there are figures."""
    cases = {case["name"]: case for case in figures["cases"]}
    _throughput(cases, folder / "throughput.svg")
    _latency(cases, folder / "latency.svg")
    if "growth" in figures:
        _growth(figures["growth"], folder / "growth.svg")


def _throughput(cases: dict[str, Any], file: Path) -> None:
    found = {int(n.partition("-")[2]): case for n, case in cases.items() if n.startswith("count-")}
    keys = sorted(found)
    rates = {"Millpond": [statistics.median(found[k]["ours"]) for k in keys]}
    for peer in found[keys[0]]["peers"]:
        rates[peer] = [statistics.median(found[k]["peers"][peer]) for k in keys]
    _lines(file, keys, rates, "keys", "records/s", "A running count per key")


def _latency(cases: dict[str, Any], file: Path) -> None:
    found = {int(n.split("-")[1]): c for n, c in cases.items() if n.endswith("-median")}
    loads = sorted(found)
    times = {
        "Millpond": [statistics.median(found[load]["ours"]) for load in loads],
        "pyspark": [statistics.median(found[load]["peers"]["pyspark"]) for load in loads],
    }
    _lines(
        file, loads, times, "records/s", "ms, median", "One record through a running application"
    )


def _growth(rows: list[dict[str, Any]], file: Path) -> None:
    costs = {"Millpond": [row["median_ms"] for row in rows]}
    keys = [row["keys"] for row in rows]
    _lines(file, keys, costs, "keys in state", "ms", "A batch that touches 1,000 keys")


def _lines(
    file: Path, places: list[int], lines: dict[str, list[float]], x: str, y: str, title: str
) -> None:
    figure, axes = plt.subplots(figsize=(7, 3.4))
    for name, values in lines.items():
        axes.plot(places, values, "o-", color=COLOURS.get(name), label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)
