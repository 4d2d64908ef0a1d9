"""`millpond state rescale`: more or fewer parts."""

from __future__ import annotations

from dataclasses import asdict

from millpond.cli.state.output import answer
from millpond.cli.state.plan import apply_plan
from millpond.cli.state.target import AsJson, Config, DryRun, Group, Target, Yes, open_state

__all__ = ["rescale"]


def rescale(
    target: Target,
    partitions: int,
    dry_run: DryRun = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Divide the state into more or fewer parts.

    Asks only at a terminal.
    """
    opened = open_state(target, group, config)
    plan = opened.rescale(partitions, dry_run=True)
    done = apply_plan(
        *(opened, plan, "rescale"), dry_run=dry_run, yes=yes, as_json=as_json, asks_scripts=False
    )
    text = (
        f"{done.partitions_before} -> {done.partitions} parts; {done.blobs:,} pages, "
        f"{done.bytes:,} bytes, checksum {done.checksum} before and after."
    )
    answer(text, as_json, **asdict(done))
