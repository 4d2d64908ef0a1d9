"""A batch that changes state manually, in a new generation.

Takes an opened group that is stopped, and rows for its key groups; runs them as a batch between
those of the program. The manifest then says who did what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from millpond.operations.basis import Basis
from millpond.operations.generations import new_generation, user_name
from millpond.operations.session import Opened
from millpond.storage.audit import EditEvent, Rename
from millpond.storage.claims import Claims
from millpond.storage.clock_file import KnownTime
from millpond.storage.manifest import Manifest

__all__ = ["frame_of", "run_rows"]


def frame_of(opened: Opened, rows: list[tuple[str, int, int, bytes]]) -> Any:
    schema = "scope string, grp int, kind int, payload binary"
    return opened.session.createDataFrame(
        [(scope, group, kind, bytearray(payload)) for scope, group, kind, payload in rows], schema
    )


def run_rows(
    opened: Opened,
    rows: Callable[[Manifest], Any],
    event: EditEvent,
    amend: Callable[[Claims], Claims] | None = None,
    offsets: dict[str, dict[str, int]] | None = None,
    settle: Callable[[Manifest], None] | None = None,
    renamed: dict[str, str] | None = None,
    basis: Basis | None = None,
) -> int:
    """Run rows, made when the group is ours, as a batch of their own in a new generation."""
    from millpond.spark.code_shipping import send_package
    from millpond.spark.edit import run_edit

    send_package(opened.session)
    with new_generation(opened, event.what, basis=basis) as new:
        manifest = new.manifest
        if amend is not None:
            manifest.say(amend(manifest.claims()), new.checkpoint.last())
        if settle is not None:
            settle(manifest)
        layer_of = {**new.old.layer_of, **manifest.layer_of}
        layers = [
            frozenset(scope for scope, layer in layer_of.items() if layer == number)
            for number in range(1, manifest.layers + 1)
        ]
        shape = (layers, manifest.groups, manifest.partitions)
        changed = run_edit(new.checkpoint, rows(new.old), *shape, offsets, renamed=renamed)
        if new.clock is None:
            # The last batch is the edit, and must not be replayed by a program.
            batch = new.checkpoint.batch(new.checkpoint.last() or 0)
            new.clock = KnownTime.asking(0 if batch is None else batch.clock.seq, {}, {})
        if offsets is not None:
            manifest.backfill, manifest.live_from = None, new.checkpoint.last() or 0
        if isinstance(event, Rename) and event.scopes is not None:
            new.rename_scope(*event.scopes)
        last = new.checkpoint.last()
        manifest.note(replace(event, changed=changed, batch=last, by=user_name()))
    return changed
