"""The manifest of a state directory: what must stay the same for the state to be read again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from millpond.documents import sealed, unsealed
from millpond.program.layouts import translated
from millpond.storage.audit import Event, edited_batches, entry_of, event_of
from millpond.storage.claims import Claims, Era
from millpond.storage.formats import check_format

__all__ = ["FORMAT", "BegunBackfill", "Manifest", "lease_in", "read_manifest", "stream_of"]

# 1: settings with the aggregations in them, as version 0.1.0 wrote them. 2: layouts, the stores
# that the last program used, and which change was accepted.
FORMAT = 2


class BegunBackfill(msgspec.Struct, frozen=True):
    """A backfill that has begun and not ended: no live run may begin."""

    until: dict[str, dict[str, int]]
    """Up to where topics are read; those that are not named, up to where they ended."""
    live: dict[str, dict[str, int]]
    """Where the live run begins to read the topics for which there are files."""
    outputs: bool | None = None
    """Whether what comes out is written; None: an older version wrote this."""


class Manifest(Claims):
    """What must stay the same for the state to be read again."""

    groups: int
    partitions: int
    generation: int = 1
    start_offsets: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Where each source of this generation began."""
    format: int = FORMAT
    topic_ids: dict[str, str] = msgspec.field(default_factory=dict)
    """What Kafka calls the topics that are read: a topic created again has another id."""
    id: str = ""
    """Tells a group that was deleted and created again from the one whose outputs topics have."""
    stream: str = ""
    """Under which name outputs are delivered: what came under this name is not written again."""
    replay_until: int = 0
    """Batches up to this clock must be done as the journal says."""
    audit: list[Event] = msgspec.field(default_factory=list)
    """What was done to the state manually, the latest last."""
    backfill: BegunBackfill | None = None
    live_from: int = 0
    """Batches before this one read files in the place of topics: nobody can go back to them."""
    since: int = -1
    """The batch from which this generation goes on: it was done before there was a manifest."""
    accepted: str = ""
    """The fingerprint of the change of the program that was accepted, see `compare`."""
    earlier: list[Era] = msgspec.field(default_factory=list)
    """What was said of the state before."""
    lease: int = 0
    """The number of the lease under which this was written; 0: the system kept the lock."""

    def at(self, batch: int | None) -> Manifest:
        """Return the manifest with what was said of the state after a batch; None: no batch.

        What a program said that never came to commit a batch is forgotten.
        """
        if batch is None:
            return self.saying(Claims(), earlier=[])
        before = [era for era in self.earlier if era.until < batch]
        era = next((era for era in self.earlier if era.until >= batch), None)
        return self.saying(self if era is None else era, earlier=before)

    def say(self, claims: Claims, after: int | None) -> None:
        """Say something else of the state, from the batch after this one on."""
        if after is not None and claims != self.claims():
            self.earlier = [*self.earlier, Era.of(self, after)]
        for name in Claims.__struct_fields__:
            setattr(self, name, getattr(claims, name))

    def edits(self) -> list[int]:
        """Return the batches in which people changed the state, as far as they still count."""
        return edited_batches(self.audit)

    def note(self, event: Event) -> None:
        """Write down that the state was changed manually."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.audit.append(msgspec.structs.replace(event, at=at, generation=self.generation))

    def content(self) -> dict[str, Any]:
        """Return the manifest as it is on disk."""
        content = msgspec.to_builtins(msgspec.structs.replace(self, audit=[]))
        content["audit"] = [entry_of(event) for event in self.audit]
        content["backfill"] = content["backfill"] or {}
        return dict(content)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return sealed(self.content(), indent=2)


_FIELDS = {field.name for field in msgspec.structs.fields(Manifest)}


def read_manifest(content: str | dict[str, Any], file: str) -> Manifest:
    """Return the manifest of a text, or of the content of one; or refuse it.

    Raises:
        StateError: a newer version wrote it.
        ValueError, KeyError, TypeError, AttributeError: it is damaged.
    """
    content = unsealed(content) if isinstance(content, str) else content
    if "format" not in content:
        msg = "it has no format"
        raise ValueError(msg)
    check_format(content, FORMAT, file)
    content = translated(content)
    content["earlier"] = [translated(era) for era in content.get("earlier", [])]
    content["backfill"] = content.get("backfill") or None
    audit = [event_of(entry) for entry in content.pop("audit", [])]
    # What an older version left out has its default; what a newer one added is not ours to lose.
    unknown = content.keys() - _FIELDS
    if unknown:
        msg = f"it has unknown fields {sorted(unknown)}"
        raise ValueError(msg)
    manifest = msgspec.convert({**content, "format": FORMAT}, Manifest)
    manifest.audit = audit
    return manifest


def lease_in(text: str | None) -> int:
    """Return the number of the lease under which a manifest was written, if that is known."""
    try:
        return int(unsealed(text)["lease"])
    except (ValueError, KeyError, TypeError):
        return 0


def stream_of(group: str, manifest: Manifest) -> str:
    """Return a new name under which a generation delivers its outputs.

    No two are alike: a copy of a state directory that lives on twice gets two.
    """
    return f"{group}/{manifest.id}/{manifest.generation}/{uuid4().hex[:8]}"
