"""The manifest of a state directory: what must stay the same for the state to be read again."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from millpond.documents import unsealed
from millpond.errors import StateError
from millpond.program.layouts import Layout, translated

__all__ = ["FORMAT", "Manifest", "read_manifest", "stream_of"]

# 1: settings with the aggregations in them, as version 0.1.0 wrote them. 2: layouts, the stores
# that the last program used, and which change was accepted.
FORMAT = 2

# What a manifest says of the state: it changes with the program, and by manual changes.
_CLAIMS = (
    "layers", "stores", "active", "layer_of", "settings", "layouts", "keys", "versions", "timers",
)  # fmt: skip


@dataclass
class Manifest:
    """What must stay the same for the state to be read again."""

    groups: int
    partitions: int
    generation: int = 1
    layers: int = 0
    stores: dict[str, list[str]] = field(default_factory=dict)
    """Stores of each key scope, those of earlier programs included."""
    start_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Where each source of this generation began."""
    format: int = FORMAT
    layer_of: dict[str, int] = field(default_factory=dict)
    """The layer, so the Spark operator, that has the state of each key scope."""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """How the windows and aggregates of each key scope were made, aggregations aside."""
    layouts: dict[str, dict[str, list[Layout]]] = field(default_factory=dict)
    """All layouts that the states of each store have had, the present one last."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """What Kafka calls the topics that are read: a topic created again has another id."""
    id: str = ""
    """Tells a group that was deleted and created again from the one whose outputs topics have."""
    stream: str = ""
    """Under which name outputs are delivered: what came under this name is not written again."""
    keys: dict[str, str] = field(default_factory=dict)
    """How the keys of each key scope are read: "typed", or the name of a deserializer."""
    versions: dict[str, dict[str, int]] = field(default_factory=dict)
    """To which version the values of each store are lifted; where nothing is said, 1."""
    replay_until: int = 0
    """Batches up to this clock must be done as the journal says."""
    audit: list[dict[str, Any]] = field(default_factory=list)
    """What was done to the state manually, the latest last."""
    backfill: dict[str, Any] = field(default_factory=dict)
    """What a backfill reads that has not ended: no live run may begin."""
    live_from: int = 0
    """Batches before this one read files in the place of topics: nobody can go back to them."""
    since: int = -1
    """The batch from which this generation goes on: it was done before there was a manifest."""
    active: dict[str, list[str]] | None = None
    """The stores that the last program used; None: not known, an older version wrote this."""
    timers: dict[str, list[str]] = field(default_factory=dict)
    """The functions of each key scope that set timers, those of earlier programs included, each
    as "name()"."""
    accepted: str = ""
    """The fingerprint of the change of the program that was accepted, see `compare`."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """What was said of the state up to a batch ("until"), where something else is said now."""
    lease: int = 0
    """The number of the lease under which this was written; 0: the system kept the lock."""

    def claims(self) -> dict[str, Any]:
        """Return what is said of the state: whose it is and how it is to be read."""
        return {name: deepcopy(getattr(self, name)) for name in _CLAIMS}

    def at(self, batch: int | None) -> Manifest:
        """Return the manifest with what was said of the state after a batch; None: no batch.

        What a program said that never came to commit a batch is forgotten.
        """
        if batch is None:
            return replace(self, **Manifest(0, 0).claims(), earlier=[])
        before = [era for era in self.earlier if era["until"] < batch]
        era = next((era for era in self.earlier if era["until"] >= batch), None)
        # An era that an older version wrote down lacks what came later.
        said = self.claims() if era is None else {**Manifest(0, 0).claims(), **deepcopy(era)}
        said.pop("until", None)
        return replace(self, **said, earlier=before)

    def say(self, claims: dict[str, Any], after: int | None) -> None:
        """Say something else of the state, from the batch after this one on."""
        if after is not None and claims != self.claims():
            self.earlier = [*self.earlier, {"until": after, **self.claims()}]
        for name, value in claims.items():
            setattr(self, name, value)

    def edits(self) -> list[int]:
        """Return the batches in which people changed the state, as far as they still count."""
        found: list[int] = []
        for entry in self.audit:
            if "changed" in entry and "batch" in entry:
                found.append(entry["batch"])
            elif entry["what"] == "reshape":  # batches count from 0 again
                found = []
            elif entry["what"] in ("rewind", "repair", "restore", "clear_state"):
                last = entry.get("to", entry.get("batch"))
                found = [batch for batch in found if last is not None and batch <= last]
        return found

    def note(self, what: str, **details: Any) -> None:
        """Write down that the state was changed manually."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.audit.append({"at": at, "what": what, "generation": self.generation, **details})


def read_manifest(text: str, file: str) -> Manifest:
    """Return the manifest of a text, or refuse it."""
    content = unsealed(text)
    if content["format"] > FORMAT:
        msg = (
            f"{file} has format {content['format']}; this version of Millpond reads up to "
            f"{FORMAT}.\nFix: run the version that wrote it, or a newer one."
        )
        raise StateError(msg)
    content = translated(content)
    content["earlier"] = [translated(era) for era in content.get("earlier", [])]
    content["format"] = FORMAT
    # What an older version left out has its default; what a newer one added is not ours to lose.
    unknown = content.keys() - {f.name for f in fields(Manifest)}
    if unknown:
        msg = f"it has unknown fields {sorted(unknown)}"
        raise ValueError(msg)
    return Manifest(**content)


def stream_of(group: str, manifest: Manifest) -> str:
    """Return a new name under which a generation delivers its outputs.

    No two are alike: a copy of a state directory that lives on twice gets two.
    """
    return f"{group}/{manifest.id}/{manifest.generation}/{uuid4().hex[:8]}"
