"""The plots of docs/benchmarks.md, from the figures of a run."""

from __future__ import annotations

import re
import statistics
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

__all__ = ["draw", "save", "themed"]

# What the colours of a plot are called, and what they are on a light and on a dark page where the
# page has none of these names. The names and colours are those of website/diagrams.py.
THEME = {
    "#000000": ("ink", "#1f2933", "#e4e7eb"),
    "#cccccc": ("soft", "#52606d", "#9aa5b1"),
    "#b0b0b0": ("soft", "#52606d", "#9aa5b1"),
    "#7f7f7f": ("soft", "#52606d", "#9aa5b1"),
    "#1f77b4": ("blue", "#0b6a84", "#62c3dc"),
    "#ff7f0e": ("orange", "#c2571a", "#f2a26b"),
    "#d62728": ("red", "#b3261e", "#f28b82"),
    "#2ca02c": ("green", "#2f7d4f", "#81c995"),
}

COLOURS = {
    "Millpond": "#1f77b4",
    "guide": "#d62728",
    "pyspark": "#d62728",
    "native": "#7f7f7f",
    "bytewax": "#ff7f0e",
    "quix": "#2ca02c",
}


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
    axes.set_ylim(0, 1.08 * max(max(values) for values in lines.values()))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.legend(frameon=False)
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    """Write a plot that can be read on a light page and on a dark one."""
    figure.tight_layout()
    drawn = StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": file.stem}
    with mpl.rc_context(settings):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    file.write_text(themed(drawn.getvalue(), file.stem))


def themed(svg: str, name: str) -> str:
    """Return a plot whose colours are those of the page that it is part of.

    Where it is a picture of its own, they go by the reader's system. It has no background, and its
    names begin with `name`, so that a page may have several.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<style[^>]*>[^<]*</style>", "", svg)
    svg = re.sub(r'(?<=\bid=")|(?<=href="#)|(?<=url\(#)', f"{name}-", svg)
    svg = svg.replace("fill: #ffffff", "fill: none")
    for colour, (role, _, _) in THEME.items():
        svg = svg.replace(colour, f"var(--plot-{role})")
    kept = [role for role, _, _ in THEME.values() if f"--plot-{role})" in svg or role == "ink"]
    light = {role: colour for role, colour, _ in THEME.values() if role in kept}
    dark = {role: colour for role, _, colour in THEME.values() if role in kept}
    style = (
        f".plot{{fill:var(--plot-ink);stroke-linejoin:round;{_named(light)}}}"
        f"@media(prefers-color-scheme:dark){{.plot{{{_named(dark)}}}}}"
    )
    svg = re.sub(
        r'<svg ((?:[^>"]|"[^"]*")*)>', rf'<svg class="plot" \1><style>{style}</style>', svg
    )
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


def _named(colours: dict[str, str]) -> str:
    return ";".join(f"--plot-{role}:var(--{role},{colour})" for role, colour in colours.items())
