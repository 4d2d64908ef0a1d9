"""`millpond state rescale`: more or fewer parts."""

from __future__ import annotations

from dataclasses import asdict

from millpond.cli.state.output import answer
from millpond.cli.state.target import AsJson, Config, Group, Target, open_state

__all__ = ["rescale"]


def rescale(
    target: Target,
    partitions: int,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Divide the state into more or fewer parts."""
    done = open_state(target, group, config).rescale(partitions)
    text = (
        f"{done.partitions_before} -> {done.partitions} parts; {done.blobs:,} pages, "
        f"{done.bytes:,} bytes, checksum {done.checksum} before and after."
    )
    answer(text, as_json, **asdict(done))
