"""The state directory of one consumer group.

    state_dir/<group>/
      lock                     held while an application runs; the system frees it when it dies
      manifest.json            format, key groups, partitions, scopes and stores, generation
      generations/0001/        a Spark checkpoint
      clock-0001.json          what the last batch saw of the time; without it, it is done again
      sources/                 spools of list sources, file lists of file sources

Takes a path and a group; gives the checkpoint to use and where its sources stand. Changing
what Spark cannot change (no more state, other offsets) is a new generation.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from millpond.connectors.log import durable_write
from millpond.errors import ConfigError, GroupInUseError, StateError
from millpond.plan.plan import Plan

__all__ = ["Manifest", "StateDirectory"]

FORMAT = 1


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
    """What the windows and aggregates of each key scope were made with."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """What Kafka calls the topics that are read: a topic made anew has another id."""
    id: str = ""
    """Tells a group that was deleted and made anew from the one whose outputs topics have."""


class StateDirectory:
    """The folder of one consumer group."""

    def __init__(self, state_dir: str | Path, group: str) -> None:
        text = str(state_dir)
        if "://" in text and not text.startswith("file://"):
            msg = (
                f"state_dir={text!r}: only local folders can be used so far.\n"
                "Fix: give a path on a disk that driver and workers share."
            )
            raise ConfigError(msg)
        self.group = group
        self.path = Path(text.removeprefix("file://")).absolute() / group
        self._lock: Any = None

    @property
    def sources(self) -> Path:
        return self.path / "sources"

    def generation(self, manifest: Manifest) -> Path:
        """Return the checkpoint of the current generation."""
        return self.path / "generations" / f"{manifest.generation:04}"

    # --- the lock ---------------------------------------------------------------------------

    @contextmanager
    def held(self, what: str) -> Iterator[None]:
        """Hold the group's lock, or say who does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                msg = (
                    f"consumer group {self.group!r} is in use by {holder}; {what} was refused.\n"
                    "Fix: stop the other application, or choose another consumer_group."
                )
                raise GroupInUseError(msg) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    # --- the manifest -----------------------------------------------------------------------

    def load(self) -> Manifest | None:
        """Return the manifest, or None where the group has never run."""
        file = self.path / "manifest.json"
        if not file.exists():
            return None
        try:
            content = json.loads(file.read_text())
            if content["format"] > FORMAT:
                msg = (
                    f"{file} has format {content['format']}; this version of Millpond reads up to "
                    f"{FORMAT}.\nFix: run the version that wrote it, or a newer one."
                )
                raise StateError(msg)
            return Manifest(**content)
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{file} cannot be read: {error}.\nFix: restore it, or remove {self.path}."
            raise StateError(msg) from error

    def save(self, manifest: Manifest) -> None:
        """Write the manifest."""
        self.path.mkdir(parents=True, exist_ok=True)
        durable_write(self.path / "manifest.json", asdict(manifest))

    def check(self, plan: Plan) -> Manifest | None:
        """Refuse a plan that the state does not fit; return what is known of the state."""
        manifest = self.load()
        if manifest is None:
            return None
        if not self._has_batches(manifest):  # nothing was committed, so there is no state
            manifest.stores, manifest.layer_of, manifest.settings = {}, {}, {}
        elif manifest.layers != plan.layers:
            msg = (
                f"the state of group {self.group!r} was written by a program with "
                f"{manifest.layers} change(s) of key; this one has {plan.layers}.\n"
                "Fix: use another consumer_group, or start without state: app.clear_state()."
            )
            raise StateError(msg)
        _check_names(manifest, plan, self.group)
        _check_layers(manifest, plan, self.group)
        _check_settings(manifest, plan, self.group)
        return manifest

    def admit(self, plan: Plan, groups: int, partitions: int) -> Manifest:
        """Return the manifest under which a plan may run, or refuse it."""
        manifest = self.check(plan) or Manifest(groups, partitions, id=uuid4().hex)
        manifest.layers = plan.layers
        manifest.layer_of.update({s.scope: s.layer for s in plan.stages if s.stores})
        for scope, settings in plan.settings().items():
            manifest.settings.setdefault(scope, {}).update(settings)
        for scope, stores in plan.stores().items():
            known = manifest.stores.setdefault(scope, [])
            known += [store for store in stores if store not in known]
        self.save(manifest)
        return manifest

    def _has_batches(self, manifest: Manifest) -> bool:
        return any((self.generation(manifest) / "commits").glob("[0-9]*"))

    # --- where the sources stand ------------------------------------------------------------

    def committed_offsets(self, manifest: Manifest) -> dict[str, dict[str, int]]:
        """Return the offsets up to which the current generation has processed its sources."""
        committed = self._committed(manifest)
        return manifest.start_offsets if committed is None else dict(committed["millpond"])

    def committed_clock(self, manifest: Manifest) -> int:
        """Return the number of the clock of the last committed batch; 0 before the first."""
        committed = self._committed(manifest)
        return 0 if committed is None else int(committed.get("clock", {}).get("seq", 0))

    def clock_file(self, manifest: Manifest) -> Path:
        """Return where what is known about the time is kept between batches."""
        return self.path / f"clock-{manifest.generation:04d}.json"

    def planned_offsets(self, manifest: Manifest, batch_id: int) -> dict[str, dict[str, int]]:
        """Return the offsets up to which a batch reads, committed or not."""
        planned = self._planned(manifest, batch_id)
        return {} if planned is None else dict(planned["millpond"])

    def _committed(self, manifest: Manifest) -> dict[str, Any] | None:
        commits = self.generation(manifest) / "commits"
        done = [int(f.name) for f in commits.glob("[0-9]*") if f.name.isdigit()]
        return self._planned(manifest, max(done)) if done else None

    def _planned(self, manifest: Manifest, batch_id: int) -> dict[str, Any] | None:
        file = self.generation(manifest) / "offsets" / str(batch_id)
        lines = file.read_text().splitlines()
        # Line 0 is the version, line 1 the batch's settings, then one line a source.
        for line in lines[2:]:
            offsets = json.loads(line) if line.startswith("{") else None
            if isinstance(offsets, dict) and "millpond" in offsets:
                return offsets
        return None

    def take_back(self, manifest: Manifest) -> None:
        """Let the last committed batch be done once more, with the same records and time.

        Where the next one is planned already, its clock has what that batch saw: nothing to do.
        """
        commits = self.generation(manifest) / "commits"
        last = max(int(f.name) for f in commits.glob("[0-9]*") if f.name.isdigit())
        if (self.generation(manifest) / "offsets" / str(last + 1)).exists():
            return
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    # --- clearing ---------------------------------------------------------------------------

    def clear(self, *, reset_offsets: bool) -> None:
        """Begin a generation without state; keep or forget the offsets."""
        manifest = self.load()
        if manifest is None:
            return
        old, clock = self.generation(manifest), self.clock_file(manifest)
        # A source that this generation did not read keeps the place it had before.
        start = {**manifest.start_offsets, **self.committed_offsets(manifest)}
        manifest.generation += 1
        manifest.start_offsets = {} if reset_offsets else start
        manifest.topic_ids = {} if reset_offsets else manifest.topic_ids
        manifest.stores, manifest.layer_of, manifest.settings = {}, {}, {}
        self.save(manifest)
        if reset_offsets:  # behind the manifest: the old offsets refer to what is removed here
            shutil.rmtree(self.sources, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        clock.unlink(missing_ok=True)


def _check_layers(manifest: Manifest, plan: Plan, group: str) -> None:
    """Refuse state that would be looked for in another Spark operator than has it."""
    for stage in plan.stages:
        if stage.stores and manifest.layer_of.get(stage.scope, stage.layer) != stage.layer:
            msg = (
                f"the state {stage.scope!r} of group {group!r} was kept behind "
                f"{manifest.layer_of[stage.scope]} change(s) of key and is now behind "
                f"{stage.layer}: it would not be found.\n"
                "Fix: put the stateful step back where it was, or use another consumer_group, or "
                "start without state: app.clear_state()."
            )
            raise StateError(msg)


def _check_settings(manifest: Manifest, plan: Plan, group: str) -> None:
    """Refuse state that was made by another window or another aggregation."""
    for scope, settings in plan.settings().items():
        for store, made_with in settings.items():
            before = manifest.settings.get(scope, {}).get(store, made_with)
            if before != made_with:
                msg = (
                    f"the state {scope}/{store} of group {group!r} was made with\n  {before}\nand "
                    f"the program now asks for\n  {made_with}\n"
                    "Fix: put it back, or give the step another name= (it starts empty), or use "
                    "another consumer_group, or start without state: app.clear_state()."
                )
                raise StateError(msg)


def _check_names(manifest: Manifest, plan: Plan, group: str) -> None:
    """Refuse what looks like a rename: state that nothing reads beside a store that is new."""
    known = {(scope, store) for scope, stores in manifest.stores.items() for store in stores}
    asked = {(scope, store) for scope, stores in plan.stores().items() for store in stores}
    gone, new = known - asked, asked - known
    if gone and new and not asked <= known:
        old_text = ", ".join(f"{scope}/{store}" for scope, store in sorted(gone))
        new_text = ", ".join(f"{scope}/{store}" for scope, store in sorted(new))
        msg = (
            f"group {group!r} has state under {old_text}, which this program does not use; it asks "
            f"for {new_text} instead. Was something renamed?\n"
            "Fix: use the old name (of the topic, the group_by or the stateful_map), or another "
            "consumer_group, or start without state: app.clear_state()."
        )
        raise StateError(msg)
