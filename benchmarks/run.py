"""`make bench`: Millpond beside its peers, each ratio from one run; writes docs/benchmarks.md.

python run.py PEERS_PYTHON           all cases, three rounds each
python run.py --check PEERS_PYTHON   some of them, once; fails where a ratio is worse than its floor

Programs stay up and are asked by turns (see `serving`): one run of each to warm up, then the rounds
that count. For latency and the first output they are started again in every round. Of a ratio the
median over rounds is reported, and both sides of it come from one round.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import data
from about import machine
from first import seconds_to_first_output
from latency import latencies
from plots import draw
from rich.console import Console
from serving import HERE, Program

from millpond.config import DEFAULT_BATCH

DOCS = HERE.parent / "docs"
console = Console()

Ask = Callable[[bool], float]
"""Has one run done and returns its figure; gets whether it is to warm up only."""


@dataclass
class Case:
    """Two things that were measured by turns."""

    name: str
    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    goals: dict[str, float] = field(default_factory=dict)
    """By peer: at least so many times its rate; of times, at most so much of them."""

    def ratios(self, peer: str) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.peers[peer], strict=True)]

    def ratio(self, peer: str) -> float:
        return statistics.median(self.ratios(peer))

    @property
    def is_time(self) -> bool:
        """Whether less is better."""
        return self.unit in ("s", "ms")

    def is_met(self, peer: str, goal: float) -> bool:
        ratio = self.ratio(peer)
        return ratio <= goal if self.is_time else ratio >= goal


# What is run, and what it runs for each side.
COMMANDS = {
    "all": "make bench",
    "millpond": "python benchmarks/millpond_side.py FOLDER",
    "guide, native, mapInArrow, five UDFs": "python benchmarks/spark_side.py FOLDER",
    "bytewax, quix": "python benchmarks/peers_side.py FOLDER",
    "first output": "millpond run benchmarks/first_millpond.py; python benchmarks/first_pyspark.py",
    "latency": "python benchmarks/latency_millpond.py; python benchmarks/latency_pyspark.py",
}


class Bench:
    """The cases of one run, and where their data lie."""

    def __init__(self, folder: Path, peers_python: str, rounds: int) -> None:
        self.folder = folder
        self.python = peers_python
        self.rounds = rounds
        self.cases: list[Case] = []
        self.facts: dict[str, Any] = {
            "machine": machine() | versions(peers_python),
            "commands": COMMANDS,
        }
        self.began = time.monotonic()

    def compare(
        self,
        name: str,
        what: str,
        unit: str,
        ours: Ask,
        peers: dict[str, Ask],
        goals: dict[str, float],
        warm: bool = True,
    ) -> Case:
        """Measure by turns."""
        case = Case(name, what, unit, peers={peer: [] for peer in peers}, goals=goals)
        for number in range(-1 if warm else 0, self.rounds):
            mine = ours(number < 0)
            theirs = {peer: ask(number < 0) for peer, ask in peers.items()}
            if number >= 0:
                case.ours.append(mine)
                for peer, figure in theirs.items():
                    case.peers[peer].append(figure)
        self.cases.append(case)
        text = ", ".join(f"{case.ratio(peer):.2f} x {peer}" for peer in peers)
        self.say(f"{name}: {statistics.median(case.ours):,.1f} {unit} ({text})")
        return case

    def say(self, text: str) -> None:
        console.print(f"{time.monotonic() - self.began:4.0f} s  {text}")

    # --- cases ------------------------------------------------------------------------------

    def throughput(
        self, ours: Program, spark: Program, sizes: dict[int, tuple[int, int, int]]
    ) -> None:
        """All sides have batches of one size, but for the guide where that would take minutes."""
        for keys, (records, batch, few) in sizes.items():
            files = batch * data.FILES // records
            peers = {
                "guide": lambda warms, k=keys, r=few: spark.ask(
                    "counts", keys=k, records=r // 4 if warms else r, files=data.FILES
                )["all"],
                "native": lambda _, k=keys, r=records, f=files: spark.ask(
                    "native", keys=k, records=r, files=f
                )["all"],
            }
            self.compare(
                f"count-{keys}",
                f"running count per key, {keys:,} keys, {records // batch} batches of {batch:,}",
                "records/s",
                lambda _, k=keys, r=records, b=batch: ours.ask("counts", keys=k, records=r, most=b)[
                    "all"
                ],
                peers,
                {"guide": 9 if keys < 100_000 else 40, "native": 0.8},
            )

    def python_peers(self, ours: Program, sizes: dict[int, tuple[int, int]]) -> None:
        with Program("peers_side.py", self.folder, python=self.python) as others:
            for keys, (records, few) in sizes.items():
                self.compare(
                    f"peers-{keys}",
                    f"running count per key, {keys:,} keys, batches of up to {DEFAULT_BATCH:,}",
                    "records/s",
                    lambda _, k=keys, r=records: ours.ask(
                        "counts", keys=k, records=r, most=DEFAULT_BATCH
                    )["all"],
                    {
                        peer: lambda _, p=peer, k=keys, r=few: others.ask(p, keys=k, records=r)[
                            "all"
                        ]
                        for peer in ("bytewax", "quix")
                    },
                    {"bytewax": 2, "quix": 2},
                    warm=False,
                )

    def chain(self, ours: Program, spark: Program, records: int, few: int) -> None:
        self.compare(
            "chain",
            "five steps without state",
            "records/s",
            lambda _: ours.ask("chain", records=records)["all"],
            {
                "mapInArrow": lambda _: spark.ask("arrow", records=records)["all"],
                "five UDFs": lambda warms: spark.ask("udfs", records=few // 4 if warms else few)[
                    "all"
                ],
            },
            {"mapInArrow": 0.9, "five UDFs": 3},
        )

    def skew(self, ours: Program, records: int) -> None:
        self.compare(
            "skew",
            "half of all records on one key, beside none",
            "records/s",
            lambda _: ours.ask("counts", keys=10_000, records=records, skew=True)["all"],
            {"uniform": lambda _: ours.ask("counts", keys=10_000, records=records)["all"]},
            {"uniform": 0.5},
            warm=False,
        )

    def first_output(self) -> None:
        self.compare(
            "first-output",
            "from `millpond run` to the first output",
            "s",
            lambda _: seconds_to_first_output("millpond", self.folder / "first"),
            {"pyspark": lambda _: seconds_to_first_output("pyspark", self.folder / "first")},
            {"pyspark": 0.5},
            warm=False,
        )

    def latency(self, seconds: dict[int, float]) -> None:
        """One record through an application that runs, at some loads for so many seconds each."""
        runs: dict[str, list[Any]] = {"millpond": [], "pyspark": []}
        for _ in range(self.rounds):
            for which, figures in runs.items():
                figures.append(latencies(which, self.folder / "latency", seconds))
        for rate in seconds:
            for place, share in enumerate(("median", "99th percentile")):
                case = Case(
                    f"latency-{rate}-{share.partition(' ')[0]}",
                    f"one record at {rate:,} records/s, {share}",
                    "ms",
                    [figures[rate][place] for figures in runs["millpond"]],
                    {"pyspark": [figures[rate][place] for figures in runs["pyspark"]]},
                    {"pyspark": 0.7},
                )
                self.cases.append(case)
                mine = statistics.median(case.ours)
                self.say(f"{case.what}: {mine:.0f} ms ({case.ratio('pyspark'):.2f} x pyspark)")

    def growth(self, ours: Program, sizes: list[int], batches: int) -> None:
        """A batch that touches 1,000 keys, of states of several sizes by turns."""
        found = [{**ours.ask("filled", keys=keys), "rounds_ms": []} for keys in sizes]
        for number in range(-1, self.rounds):
            for keys, row in zip(sizes, found, strict=True):
                cost = ours.ask("touched", keys=keys, batches=batches, each=1_000)["median_ms"]
                row["rounds_ms"] += [cost] if number >= 0 else []
        for row in found:
            ratios = zip(row["rounds_ms"], found[0]["rounds_ms"], strict=True)
            row["ratios"] = [mine / least for mine, least in ratios]
            row["median_ms"] = statistics.median(row["rounds_ms"])
            row["ratio"] = statistics.median(row["ratios"])
            text = f"{row['keys']:,} keys: {row['median_ms']:.0f} ms a batch"
            self.say(f"{text} ({row['ratio']:.2f} x the smallest)")
        self.facts["growth"] = found


# --- what is written ----------------------------------------------------------------------------


def versions(python: str) -> dict[str, str]:
    """Return the versions of the peers that have an environment of their own."""
    names = ("bytewax", "quixstreams")
    script = f"from importlib.metadata import version; print(*map(version, {names}))"
    text = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout
    return dict(zip(names, text.split(), strict=True))


def page(bench: Bench) -> str:
    """Return docs/benchmarks.md."""
    about = ", ".join(f"{name} {value}" for name, value in bench.facts["machine"].items())
    minutes = f"{bench.facts['seconds'] / 60:.1f} minutes"
    lines = [
        "# Benchmarks",
        "",
        "`make bench` measures what is on this page and writes it, with every single figure in",
        "[benchmarks.json](benchmarks.json). Both sides of a ratio come from one run, in which the",
        "programs take turns. A figure is the median of",
        f"{bench.rounds} rounds, a ratio the median of the rounds' ratios, after it the",
        f"least and the largest of them. Measured in {minutes} on: {about}.",
        "",
        "| what | Millpond | beside | it | ratio | goal |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for case in bench.cases:
        for peer in case.peers:
            mine, theirs = statistics.median(case.ours), statistics.median(case.peers[peer])
            digits = 1 if case.is_time else 0
            spread = f"{min(case.ratios(peer)):.2f} to {max(case.ratios(peer)):.2f}"
            sign = "at most" if case.is_time else "at least"
            lines.append(
                f"| {case.what} | {mine:,.{digits}f} {case.unit} | {peer} | {theirs:,.{digits}f} | "
                f"{case.ratio(peer):.2f} ({spread}) | {sign} {case.goals[peer]}"
                f"{'' if case.is_met(peer, case.goals[peer]) else ', missed'} |"
            )
    lines += ["", "![Throughput against keys](images/plots/throughput.svg)", ""]
    lines += ["![Latency against load](images/plots/latency.svg)"]
    if "growth" in bench.facts:
        lines += ["", "## A growing state", ""]
        lines += ["![Cost of a batch against keys in state](images/plots/growth.svg)", ""]
        lines += ["A batch that touches 1,000 random keys, by the number of keys in state."]
        is_met = all(row["ratio"] <= 1.5 for row in bench.facts["growth"])
        lines += [f"The goal: flat within 1.5 times{'' if is_met else ', missed'}."]
        lines += ["On disk lie the snapshots and the changes of the batches that filled the state."]
        lines += ["What it takes in memory: [performance](performance.md#memory).", ""]
        lines += [
            "| keys in state | median batch | ratio | bytes of pages a key | bytes on disk a key |"
        ]
        lines += ["| --- | --- | --- | --- | --- |"]
        for row in bench.facts["growth"]:
            spread = f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}"
            lines.append(
                f"| {row['keys']:,} | {row['median_ms']:.0f} ms | {row['ratio']:.2f} ({spread}) | "
                f"{row['page_bytes_per_key']:.0f} | {row['disk_bytes_per_key']:.0f} |"
            )
    others = [(HERE / name).read_text() for name in ("peers.md", "more.md")]
    return "\n".join([*lines, "", *others])


def main() -> None:
    arguments = [word for word in sys.argv[1:] if word != "--check"]
    is_check = "--check" in sys.argv
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        bench = Bench(Path(name), arguments[0], 1 if is_check else 3)
        with Program("millpond_side.py", name) as ours, Program("spark_side.py", name) as spark:
            if is_check:
                bench.throughput(ours, spark, {10_000: (1_200_000, 150_000, 150_000)})
                bench.chain(ours, spark, 1_000_000, 200_000)
                bench.growth(ours, [10_000, 1_000_000], 20)
            else:
                bench.throughput(
                    ours,
                    spark,
                    {
                        10_000: (2_400_000, 150_000, 150_000),
                        1_000_000: (1_200_000, 300_000, 24_000),
                    },
                )
                bench.chain(ours, spark, 1_200_000, 120_000)
                bench.skew(ours, 1_200_000)
                sizes = {10_000: (6_400_000, 400_000), 1_000_000: (3_200_000, 400_000)}
                bench.python_peers(ours, sizes)
                bench.growth(ours, [10_000, 100_000, 1_000_000, 5_000_000], 30)
        bench.first_output()
        if not is_check:
            bench.latency({10: 8, 1_000: 5})
    if is_check:
        check(bench)
        return
    bench.facts["seconds"] = round(time.monotonic() - began)
    figures = {**bench.facts, "cases": list(map(asdict, bench.cases))}
    (DOCS / "benchmarks.json").write_text(json.dumps(figures, indent=1) + "\n")
    (DOCS / "benchmarks.md").write_text(page(bench))
    draw(figures, DOCS / "images" / "plots")


def check(bench: Bench) -> None:
    """Fail where a ratio is worse than its floor."""
    floors = json.loads((HERE / "floors.json").read_text())
    bad = [
        f"{case.name}: {case.ratio(peer):.2f} x {peer}, the floor is {floors[case.name][peer]}"
        for case in bench.cases
        for peer in case.peers
        if not case.is_met(peer, floors[case.name][peer])
    ]
    ratio, most = bench.facts["growth"][-1]["ratio"], floors["growth"]
    if ratio > most:
        bad.append(f"growth: {ratio:.2f} x the smallest, at most {most}")
    if bad:
        raise SystemExit("slower than it was:\n" + "\n".join(bad))
    console.print("No ratio is worse than its floor.")


if __name__ == "__main__":
    main()
