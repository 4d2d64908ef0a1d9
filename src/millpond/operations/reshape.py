"""Giving the checkpoint another shape, where a program has more or fewer key changes than the last.

Spark's checkpoint has one operator for each layer of key changes, and state lies in the operator
that its scope had. Takes a group and a plan; writes every blob of the state into a checkpoint of
the shape of the plan, in one batch. Offsets, time and what was begun stay, nothing is put out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.errors import StateError
from millpond.operations.edit_batch import frame_of
from millpond.operations.generations import NewGeneration, new_generation, user_name
from millpond.operations.session import Opened
from millpond.program.plan import Plan
from millpond.state.edit import encode_edits
from millpond.storage.audit import Reshape
from millpond.storage.clock_file import KnownTime
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest

if TYPE_CHECKING:
    from millpond.spark.rescale import Fingerprint

__all__ = ["layers_of", "reshape"]

logger = logging.getLogger("millpond")


def reshape(opened: Opened, plan: Plan, settle: Callable[[Manifest], None]) -> None:
    """Write the state into a checkpoint of the shape of a plan, as a new generation.

    Args:
        opened: The group, held.
        plan: The program that is to go on with it.
        settle: Writes into the manifest what else is to be known of the state from then on.
    """
    began = time.monotonic()
    with new_generation(opened, "reshape", copies=False) as new:
        last = opened.batch(None, new.old)
        layer_of = layers_of(new.manifest, plan)
        found = _write(opened, new, last, plan.layers, layer_of)
        _go_on(opened, new, last)
        new.manifest.layers, new.manifest.layer_of = plan.layers, layer_of
        new.manifest.earlier = []  # it is of batches that this checkpoint does not have
        settle(new.manifest)
        new.manifest.note(
            Reshape(
                before=new.old.layers,
                layers=plan.layers,
                batch=new.checkpoint.last(),
                last_batch=last,
                by=user_name(),
                state=found,
            )
        )
    seconds = time.monotonic() - began
    logger.info(
        "the program has %d key change(s) with state, and the state was written for %d: its "
        "checkpoint was rewritten in %.1f s (%d blobs, %d bytes); nothing is lost",
        *(plan.layers, new.old.layers, seconds, *found[:2]),
    )


def layers_of(known: Manifest, plan: Plan) -> dict[str, int]:
    """Return the layer of each key scope; what the program does not use stays where there is one.

    Stages without state have a layer, too, but no scope that must be found again.
    """
    kept = {scope: min(layer, plan.layers) for scope, layer in known.layer_of.items()}
    return {**kept, **{stage.scope: stage.layer for stage in plan.stages if stage.stores}}


def _write(
    opened: Opened, new: NewGeneration, last: int, layers: int, layer_of: dict[str, int]
) -> Fingerprint:
    """Write all blobs as the first batch of the new checkpoint, and compare them."""
    from millpond.spark.code_shipping import send_package
    from millpond.spark.edit import EDITS, run_edit, written
    from millpond.spark.rescale import fingerprint, fingerprints, together

    send_package(opened.session)
    before: dict[str, Fingerprint] = {}
    rows = frame_of(opened, [("", 0, EDITS, encode_edits([]))])
    if new.old.layers:
        blobs = opened.reader(new.old).blobs(last)
        before, rows = fingerprints(blobs), written(blobs)
    places = {**dict.fromkeys(before, 1), **layer_of}
    scopes = [
        frozenset(scope for scope, layer in places.items() if layer == number)
        for number in range(1, layers + 1)
    ]
    begin = opened.directory.checkpoint(new.old).batch(last)
    shape = (scopes, new.old.groups, new.old.partitions)
    run_edit(new.checkpoint, rows, *shape, begin=begin)
    expected = found = together(before.values())
    if layers:
        new.manifest.layers = layers
        reader = opened.reader(new.manifest, new.checkpoint.folder)
        found = fingerprint(reader.blobs(new.checkpoint.last() or 0))
    if found != expected:
        msg = f"in its new shape the state has {found}, before it had {expected}"
        raise StateError(f"{msg}; nothing was changed.\nFix: millpond state verify APP.py.")
    return found


def _go_on(opened: Opened, new: NewGeneration, last: int) -> None:
    """Let the next batch be the one that was next, at the same time, and wake every key group."""
    batch = opened.directory.checkpoint(new.old).batch(last)
    seq = 0 if batch is None else batch.clock.seq
    new.clock = KnownTime.asking(seq, {}, {}) if new.clock is None else new.clock.asked_again()
    new.clock.seq = seq
    # What was done before cannot be replayed from this checkpoint: its first batch has it all.
    new.journal = Journal(new.journal.delivered, new.journal.after(seq))
    new.manifest.live_from = 0
