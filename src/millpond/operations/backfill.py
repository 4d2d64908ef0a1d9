"""The end of a backfill: the live run begins where history ends.

Takes an opened group that is stopped and whose backfill has read all that it reads.
"""

from __future__ import annotations

from millpond.operations.edit_batch import frame_of, run_rows
from millpond.operations.session import Opened
from millpond.state.edit import encode_edits

__all__ = ["end_backfill"]


def _move_offsets(opened: Opened, offsets: dict[str, dict[str, int]], what: str) -> None:
    """Let sources go on from other offsets; the state stays as it is."""
    from millpond.spark.edit import EDITS

    rows = [("", 0, EDITS, encode_edits([]))]
    run_rows(opened, lambda _: frame_of(opened, rows), what, {"offsets": offsets}, offsets=offsets)


def end_backfill(opened: Opened) -> None:
    """Let the live run begin where a backfill ends."""
    manifest = opened.manifest()
    live = manifest.backfill.get("live", {})
    if live:
        _move_offsets(opened, live, "backfill")
        return
    with opened.directory.held("backfill"):
        manifest.backfill = {}
        opened.directory.save(manifest)
