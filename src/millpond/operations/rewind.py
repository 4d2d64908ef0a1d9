"""Going back to a batch: state and input are then as they were after it.

Takes an opened group that is stopped, and a batch or a time; gives a plan. Where the plan is
applied, a new generation is made of what the checkpoint has of that batch, and the next run
replays the batches after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.errors import ConfigError, StateError
from millpond.operations.basis import Basis, basis_of
from millpond.operations.generations import (
    check_not_of_files,
    journal_of,
    new_generation,
    recorded,
    user_name,
)
from millpond.operations.session import At, Opened
from millpond.storage.audit import Rename, Rewind
from millpond.storage.batch_source import Planned, offsets_in
from millpond.storage.checkpoint import Batch, damaged
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest, stream_of

__all__ = ["RewindPlan", "apply_rewind", "check_rewind", "plan_rewind", "prepare_rewind"]


@dataclass(frozen=True)
class RewindPlan:
    """What going back to a batch means."""

    batch: int
    time_ms: int
    batches: int
    """Batches that will be replayed."""
    records: int
    """Records that will be read again."""
    outputs: str
    """ "keep": they are not written again; "again": all that is replayed is written again."""
    lost_edits: int
    """Manual changes that are taken back with it."""
    partitions: tuple[int, int]
    """Parts of the state: now, and in that batch."""
    replay_until: int
    """The clock of the last batch that is replayed; 0: none is."""
    renames: tuple[tuple[str, str], ...]
    """The key scopes that were renamed after that batch, the latest last."""
    changes: bool
    """Whether there is anything to do."""
    basis: Basis

    def __str__(self) -> str:
        what = {
            "keep": "what came out of them is not written "
            "again, even if something else comes out now",
            "again": "their outputs are written again: readers see them twice",
        }[self.outputs]
        text = f"state and input go back to batch {self.batch}"
        if self.batches:
            text += f"; {self.batches} batches with {self.records:,} records are replayed, {what}"
        if self.lost_edits:
            text += f"; {self.lost_edits} manual change(s) after it are taken back"
        now, then = self.partitions
        if now != then:
            text += f"; the state is in {then} parts again, not in {now}"
        return text


def prepare_rewind(opened: Opened, to: At, outputs: str) -> RewindPlan:
    """Return the plan of going back to a batch or a time; nothing is changed."""
    if outputs not in ("keep", "again"):
        msg = f"outputs must be 'keep' or 'again', got {outputs!r}."
        raise ConfigError(msg + '\nFix: outputs="keep", which writes nothing twice.')
    manifest = opened.manifest()
    number = opened.batch(to, manifest)
    checkpoint = opened.directory.checkpoint(manifest)
    planned = [n for n in checkpoint.planned() if n >= number]
    batches = [batch for n in planned if (batch := checkpoint.batch(n)) is not None]
    if not batches or batches[0].number != number:
        raise damaged(checkpoint.planned_file(number), "it is gone")
    check_rewind(manifest, batches, outputs)
    basis = basis_of(opened.directory, manifest)
    waiting = _waiting(opened.directory, manifest)
    return plan_rewind(manifest, batches, waiting, outputs, basis)


def check_rewind(manifest: Manifest, batches: Sequence[Batch], outputs: str) -> None:
    """Refuse to go back to the first of some batches where nobody could go on from there."""
    if outputs == "keep" and any(batch.foreign for batch in batches[1:]):
        msg = (
            "batches of Spark's own sources cannot be cut as they were, so their outputs would "
            "not be the same."
        )
        raise StateError(msg + '\nFix: outputs="again", if readers can bear to see them twice.')
    check_not_of_files(manifest, batches[0].number)


def plan_rewind(
    manifest: Manifest,
    batches: Sequence[Batch],
    waiting: Mapping[int, Planned],
    outputs: str,
    basis: Basis,
) -> RewindPlan:
    """Return the plan of going back to the first of some batches.

    Args:
        manifest: That of the group.
        batches: The batch to go back to, and all that were planned after it.
        waiting: What an earlier rewind or repair has left to be replayed, by number of the clock.
        outputs: "keep" or "again".
        basis: The state as it is.
    """
    done, *later = batches
    committed = [batch for batch in later if batch.number <= (basis.batch or 0)]
    # Those that an earlier rewind or repair has left to be replayed come after them.
    again = {**recorded(committed), **waiting}
    is_foreign = any(batch.foreign for batch in committed)
    last_read = offsets_in(again[max(again)]) if again else {}
    return RewindPlan(
        batch=done.number,
        time_ms=done.time_ms,
        batches=len(committed) if is_foreign else len(again),
        records=_records(done.offsets, last_read),
        outputs=outputs,
        lost_edits=sum(batch.is_edit for batch in committed),
        partitions=(manifest.partitions, done.partitions or manifest.partitions),
        replay_until=max(again, default=0),
        renames=_renames(manifest, done.number),
        changes=bool(committed or (waiting and outputs == "again")),
        basis=basis,
    )


def apply_rewind(opened: Opened, plan: RewindPlan) -> None:
    """Go back as planned.

    Raises:
        StateError: where the state is not the one that the plan was made from.
    """
    if not plan.changes:
        return
    with new_generation(opened, "rewind", plan.batch, basis=plan.basis) as new:
        if plan.outputs == "keep":
            last = plan.replay_until
            new.journal = Journal(max(new.journal.delivered, last - 1), new.journal.batches)
            new.manifest.replay_until = max(new.old.replay_until, last)
        else:
            new.journal = Journal()
            new.manifest.replay_until = 0
            new.manifest.stream = stream_of(opened.directory.group, new.manifest)
        for old, name in reversed(plan.renames):
            new.rename_scope(name, old)
        new.manifest.partitions = plan.partitions[1]
        new.manifest.note(Rewind(to=plan.batch, outputs=plan.outputs, by=user_name()))


def _waiting(directory: StateDirectory, manifest: Manifest) -> dict[int, Planned]:
    """Return the batches that will be replayed already, by the number of their clock."""
    later = journal_of(directory, manifest).after(directory.committed_clock(manifest))
    return {seq: batch for seq, batch in later.items() if seq <= manifest.replay_until}


def _renames(manifest: Manifest, batch: int) -> tuple[tuple[str, str], ...]:
    """Return the renames of key scopes that lie after a batch."""
    still = [b for b in manifest.edits() if b > batch]
    return tuple(
        event.scopes
        for event in manifest.audit
        if isinstance(event, Rename) and event.scopes is not None and event.batch in still
    )


def _records(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> int:
    return sum(
        end - before.get(name, {}).get(partition, 0)
        for name, offsets in after.items()
        for partition, end in offsets.items()
    )
