"""The end of a backfill: the live run begins where history ends.

Takes an opened group that is stopped and whose backfill has read all that it reads.
"""

from __future__ import annotations

from millpond.operations.edit_batch import frame_of, run_rows
from millpond.operations.session import Opened
from millpond.state.edit import encode_edits
from millpond.storage.audit import EndBackfill

__all__ = ["end_backfill"]


def _move_offsets(opened: Opened, offsets: dict[str, dict[str, int]]) -> None:
    """Let sources go on from other offsets; the state stays as it is."""
    from millpond.spark.edit import EDITS

    rows = [("", 0, EDITS, encode_edits([]))]
    event = EndBackfill(offsets=offsets)
    run_rows(opened, lambda _: frame_of(opened, rows), event, offsets=offsets)


def end_backfill(opened: Opened) -> None:
    """Let the live run begin where a backfill ends."""
    manifest = opened.manifest()
    if manifest.backfill is not None and manifest.backfill.live:
        _move_offsets(opened, manifest.backfill.live)
        return
    with opened.directory.held("backfill"):
        manifest.backfill = None
        opened.directory.save(manifest)
