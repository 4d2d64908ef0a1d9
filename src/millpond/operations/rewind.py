"""Going back to a batch: state and input are then as they were after it.

Takes an opened group that is stopped, and a batch or a time; makes a new generation of what the
checkpoint has of that batch. The batches after it are replayed by the next run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.errors import ConfigError, StateError
from millpond.operations.generations import (
    check_not_of_files,
    journal_of,
    new_generation,
    recorded,
    user_name,
)
from millpond.operations.session import At, Opened
from millpond.storage.audit import Rename, Rewind
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest, stream_of

__all__ = ["Rewound", "rewind"]


@dataclass(frozen=True)
class Rewound:
    """What going back to a batch means."""

    batch: int
    time_ms: int
    batches: int
    """Batches that will be replayed."""
    records: int
    """Records that will be read again."""
    outputs: str
    lost_edits: int
    """Manual changes that are taken back with it."""
    partitions: tuple[int, int]
    """Parts of the state: now, and in that batch."""

    def __str__(self) -> str:
        what = {
            "keep": "their outputs are where they belong and are not written again",
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


def rewind(opened: Opened, to: At, outputs: str, dry_run: bool) -> Rewound:
    """Go back to a batch."""
    if outputs not in ("keep", "again"):
        msg = f"outputs must be 'keep' or 'again', got {outputs!r}."
        raise ConfigError(msg + '\nFix: outputs="keep", which writes nothing twice.')
    manifest = opened.manifest()
    number = opened.batch(to, manifest)
    checkpoint = opened.directory.checkpoint(manifest)
    planned = [n for n in checkpoint.planned() if n > number]
    later = [batch for n in planned if (batch := checkpoint.batch(n)) is not None]
    if outputs == "keep" and any(batch.foreign for batch in later):
        msg = (
            "batches of Spark's own sources cannot be cut as they were, so their outputs would "
            "not be the same."
        )
        raise StateError(msg + '\nFix: outputs="again", if readers can bear to see them twice.')
    check_not_of_files(manifest, number)
    done = checkpoint.batch(number)
    assert done is not None
    committed = [batch for batch in later if batch.number <= (checkpoint.last() or 0)]
    # Those that an earlier rewind or repair has left to be replayed come after them.
    waiting = _waiting(opened.directory, manifest)
    again = {**recorded(committed), **waiting}
    is_foreign = any(batch.foreign for batch in committed)
    last_read = again[max(again)]["millpond"] if again else {}
    meant = Rewound(
        number,
        done.time_ms,
        len(committed) if is_foreign else len(again),
        _records(done.offsets, last_read),
        outputs,
        sum("edits" in batch.source for batch in committed),
        (manifest.partitions, done.partitions or manifest.partitions),
    )
    if dry_run or not (committed or (waiting and outputs == "again")):
        return meant
    with new_generation(opened, "rewind", number) as new:
        if outputs == "keep":
            last = max(again, default=0)
            new.journal = Journal(max(new.journal.delivered, last - 1), new.journal.batches)
            new.manifest.replay_until = max(new.old.replay_until, last)
        else:
            new.journal = Journal()
            new.manifest.replay_until = 0
            new.manifest.stream = stream_of(opened.directory.group, new.manifest)
        for old, name in reversed(_renames(new.old, number)):
            new.rename_scope(name, old)
        new.manifest.partitions = meant.partitions[1]
        new.manifest.note(Rewind(to=number, outputs=outputs, by=user_name()))
    return meant


def _waiting(directory: StateDirectory, manifest: Manifest) -> dict[int, dict[str, Any]]:
    """Return the batches that will be replayed already, by the number of their clock."""
    later = journal_of(directory, manifest).after(directory.committed_clock(manifest))
    return {seq: batch for seq, batch in later.items() if seq <= manifest.replay_until}


def _renames(manifest: Manifest, batch: int) -> list[tuple[str, str]]:
    """Return the renames of key scopes that lie after a batch."""
    still = [b for b in manifest.edits() if b > batch]
    return [
        event.scopes
        for event in manifest.audit
        if isinstance(event, Rename) and event.scopes is not None and event.batch in still
    ]


def _records(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> int:
    return sum(
        end - before.get(name, {}).get(partition, 0)
        for name, offsets in after.items()
        for partition, end in offsets.items()
    )
