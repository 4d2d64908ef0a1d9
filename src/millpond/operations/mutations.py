"""Changing state: back in time, copied, edited, divided again.

Takes an opened group that is stopped (a copy can be taken of one that runs). What is changed is
a new generation, and the manifest says who did what; where anything fails, all is as it was.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from millpond.connectors.topic import check_name
from millpond.documents import sealed
from millpond.errors import ConfigError, DamagedStateError, StateError, shown
from millpond.operations.fields import has_named_parts
from millpond.operations.generations import (
    NewGeneration,
    clock_after,
    journal_of,
    new_generation,
    recorded,
)
from millpond.operations.session import At, Opened
from millpond.state.blobs import hash_key
from millpond.state.edit import Edit, encode_edits
from millpond.storage.checkpoint import Checkpoint, damaged
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest, stream_of

__all__ = ["Rescaled", "Rewound"]

# Edits that one row brings to a key group.
_AT_ONCE = 5_000


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
    _check_not_of_files(manifest, number)
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
            _rename_in(new, name, old)
        new.manifest.partitions = meant.partitions[1]
        new.manifest.note("rewind", to=number, outputs=outputs, by=user_name())
    return meant


def _waiting(directory: StateDirectory, manifest: Manifest) -> dict[int, dict[str, Any]]:
    """Return the batches that will be replayed already, by the number of their clock."""
    later = journal_of(directory, manifest).after(directory.committed_clock(manifest))
    return {seq: batch for seq, batch in later.items() if seq <= manifest.replay_until}


def _renames(manifest: Manifest, batch: int) -> list[tuple[str, str]]:
    """Return the renames of key scopes that lie after a batch."""
    still = [b for b in manifest.edits() if b > batch]
    return [
        (entry["scopes"][0], entry["scopes"][1])
        for entry in manifest.audit
        if "scopes" in entry and entry.get("batch") in still
    ]


def _rename_in(new: NewGeneration, old: str, name: str) -> None:
    """Let batches that are replayed wake the groups of a scope under its other name."""
    for batch in new.journal.batches.values():
        wake = batch.get("clock", {}).get("wake", {})
        if old in wake:
            wake[name] = wake.pop(old)


def _records(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> int:
    return sum(
        end - before.get(name, {}).get(partition, 0)
        for name, offsets in after.items()
        for partition, end in offsets.items()
    )


# --- copies ---------------------------------------------------------------------------------


def fork(opened: Opened, group: str, at: At, state_dir: str | None) -> int:
    """Copy the group under another name; return the batch from which it goes on."""
    manifest = opened.manifest()
    number = opened.batch(at, manifest)
    check_name(group, "consumer group")
    target = opened.sibling(group, state_dir)
    _check_not_of_files(manifest, number)
    if _is_taken(target):
        msg = f"there is a group {group!r} already in {target.folder}."
        raise StateError(msg + "\nFix: choose another name.")
    copied = replace(manifest.at(number), id=uuid4().hex, generation=1, audit=list(manifest.audit))
    copied.stream = stream_of(group, copied)
    copied.replay_until = 0
    batch = opened.directory.checkpoint(manifest).batch(number)
    copied.partitions = (batch.partitions if batch else 0) or copied.partitions
    copied.note("fork", of=opened.directory.group, batch=number, by=user_name())
    _copy(opened.directory, manifest, target, copied, number)
    return number


def backup(opened: Opened, path: str) -> int:
    """Copy the group to another state directory; return the batch that it holds."""
    manifest = opened.manifest()
    number = opened.batch(None, manifest)
    target = opened.sibling(opened.directory.group, path)
    if target.folder == opened.directory.folder:
        msg = f"{target.folder} is the state itself."
        raise StateError(msg + "\nFix: give the backup a folder of its own.")
    if _is_taken(target):
        msg = f"{target.folder} holds a group or a backup already."
        raise StateError(msg + "\nFix: give each backup a folder of its own.")
    # A run on the copy is another one: what it puts out is not what the group has put out.
    copied = replace(manifest.at(number), id=uuid4().hex, generation=1, audit=list(manifest.audit))
    copied.stream = stream_of(opened.directory.group, copied)
    copied.replay_until = 0
    copied.note("backup", batch=number, by=user_name())
    _copy(opened.directory, manifest, target, copied, number, share=False)
    return number


def restore(opened: Opened, path: str, dry_run: bool) -> int:
    """Take the place of the group's state with that of a backup; return its last batch."""
    source = opened.sibling(opened.directory.group, path)
    kept = source.load()
    if kept is None:
        msg = f"there is no backup of group {opened.directory.group!r} in {path}."
        raise StateError(msg + "\nFix: check the folder.")
    number = source.checkpoint(kept).last()
    if number is None:
        msg = f"the backup in {path} holds no batch."
        raise StateError(msg + "\nFix: choose another one.")
    if dry_run:
        return number
    directory = opened.directory
    with directory.held("restore") as hold:
        try:
            before = directory.load()
        except DamagedStateError:  # that is what a backup is for
            before = None
        restored = replace(kept, audit=list(kept.audit if before is None else before.audit))
        restored.generation = directory.next_generation()
        restored.replay_until = 0
        # Batches after the backup may be cut otherwise: what they put out is new.
        restored.stream = stream_of(directory.group, restored)
        restored.note("restore", batch=number, by=user_name())
        hold.check()
        _copy(source, kept, directory, restored, number, share=False)
        directory.drop_others(restored.generation, 0 if before is None else before.generation)
    return number


def _copy(
    source: StateDirectory,
    manifest: Manifest,
    target: StateDirectory,
    copied: Manifest,
    last: int,
    *,
    share: bool = True,
) -> None:
    """Copy a generation with its sources; the manifest comes last."""
    folder = target.generation_folder(copied.generation)
    copied.since = last
    try:
        if lost := source.lost_commit(manifest):
            raise damaged(lost, "it is gone")
        source.checkpoint(manifest).copy_to(folder, last, share=share)
        Checkpoint(folder).check(manifest.layers)
        for place in Checkpoint(folder).unfit():
            home = source.generation(manifest).path
            bad = Location(place._files, place.path.replace(folder.path, home))
            raise damaged(bad, "its checksum does not fit, and nothing was copied")
        clock = clock_after(source, manifest, last)
        if clock is not None:
            target.clock_file(copied).write(sealed(clock))
        for place, info in source.sources.walk():
            relative = place.path.removeprefix(source.sources.path + "/")
            _copy_source(place, target.sources / relative, info.name, share)
        target.begin(copied)
    except BaseException:
        target.abandon(copied.generation)
        raise


def _is_taken(target: StateDirectory) -> bool:
    """Tell whether there is a group; what a copy left that was cut short is removed."""
    names = {info.name for info in target.folder.entries()}
    has_run = any(name.startswith(("lock", "journal")) for name in names)
    has_copy = any(name.startswith("manifest-") for name in names)
    if "manifest.json" in names or has_run or (has_copy and not _is_cut_short(target)):
        return True
    target.drop_others()
    return False


def _is_cut_short(target: StateDirectory) -> bool:
    """Tell whether a copy has all but its manifest, which is written last, and never ran."""
    try:
        manifest = target.recalled()
    except DamagedStateError:
        return False
    is_copy = bool(manifest.audit) and manifest.audit[-1]["what"] in ("fork", "backup")
    return is_copy and max(target.checkpoint(manifest).planned(), default=-1) == manifest.since


def _check_not_of_files(manifest: Manifest, batch: int) -> None:
    """Refuse to go on from a batch whose next ones would read files as if they were a topic."""
    if batch < manifest.live_from:
        msg = f"batch {batch} is of a backfill from files, which ended with {manifest.live_from}."
        raise StateError(msg + f"\nFix: choose batch {manifest.live_from} or a later one.")


def _copy_source(place: Location, target: Location, name: str, share: bool) -> None:
    """Segments never change, so their bytes may be shared; nothing else may: locks above all."""
    if name.endswith(".arrow"):
        place.copy_to(target, share)
    elif not name.endswith("lock"):
        target.write(place.read() or b"")


# --- edits ----------------------------------------------------------------------------------


ALL: Any = object()
"""Every name of a key."""


def place(opened: Opened, store: str | None) -> tuple[str, str]:
    """Return the scope and the store that are meant; None: the only one that can be edited."""
    manifest, _ = opened.view(None)
    scope, name = find_place(manifest, store, lambda *found: not has_own_form(manifest, *found))
    if has_own_form(manifest, scope, name):
        msg = f"{scope}/{name} is kept in a form of its own, not as values that a function set."
        fix = "name another one with --store; or delete the key, or rewind to before the mistake."
        raise StateError(f"{msg}\nFix: {fix}")
    return scope, name


def set_values(
    opened: Opened, scope: str, store: str, given: Iterable[tuple[Any, dict[Any, Any]]], what: str
) -> int:
    """Set names of keys in one store."""
    manifest, _ = opened.view(None)
    keys: list[str] = []
    edits = []
    version = version_in(manifest, scope, store)
    for key, values in given:
        keys.append(repr(key))
        data = opened.key_bytes(manifest, scope, key)
        for name, value in values.items():
            stored = (opened.stored(name), opened.stored(value))
            edits.append((scope, Edit("set", data, store, *stored, version=version)))
    shown_keys = keys if len(keys) <= 10 else [*keys[:10], f"and {len(keys) - 10} more"]
    details: dict[str, Any] = {"store": f"{scope}/{store}", "keys": shown_keys}
    if len(keys) == 1:
        details["values"] = {repr(name): shown(value, 200) for name, value in values.items()}
    return edit(opened, edits, what, details)


def has_own_form(manifest: Manifest, scope: str, store: str) -> bool:
    """Tell whether a store is that of a window, an aggregation or a table."""
    return store in manifest.settings.get(scope, {})


def version_in(manifest: Manifest, scope: str, store: str) -> int:
    """Return the version of the values of a store."""
    return manifest.versions.get(scope, {}).get(store, 1)


def delete(opened: Opened, key: Any, name: Any, store: str | None) -> int:
    """Delete one name of a key, or all it has."""
    manifest, _ = opened.view(None)
    if name is ALL and store is None:
        targets: list[tuple[str, str | None]] = [(scope, None) for scope in manifest.stores]
    else:
        targets = [find_place(manifest, store)]
    stored = None if name is ALL else opened.stored(name)
    if name is not ALL and has_named_parts(manifest, *map(str, targets[0])):
        place = "/".join(map(str, targets[0]))
        msg = f"{place} keeps the fields of an aggregation, or its windows, as one value."
        fix = f"leave the name out, which deletes all of it: state delete KEY --store {place}."
        raise StateError(f"{msg}\nFix: {fix}")
    edits = [
        (scope, Edit("delete", data, held_in, stored))
        for scope, held_in in targets
        for data in opened.possible_key(manifest, scope, key, is_asked=len(targets) == 1)
    ]
    details = {"keys": [repr(key)], "store": store or "all"}
    return edit(opened, edits, "delete", details | ({} if name is ALL else {"name": repr(name)}))


def edit(
    opened: Opened,
    edits: Iterable[tuple[str, Edit]],
    what: str,
    details: dict[str, Any],
    amend: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    renamed: dict[str, str] | None = None,
) -> int:
    """Apply edits, each to the key of a scope; return how many values changed."""
    manifest, _ = opened.view(None)
    grouped: dict[tuple[str, int], list[Edit]] = {}
    for scope, one in edits:
        if scope not in manifest.stores:
            msg = f"there is no key scope {scope!r}; there are {', '.join(manifest.stores)}."
            raise StateError(msg + "\nFix: use one of these.")
        if one.what in ("rename", "rename-timers", "drop"):
            for group in range(manifest.groups):
                grouped.setdefault((scope, group), []).append(one)
        else:
            grouped.setdefault((scope, hash_key(one.key) % manifest.groups), []).append(one)
    from millpond.spark.edit import EDITS

    rows = [
        (scope, group, EDITS, encode_edits(mine[low : low + _AT_ONCE]))
        for (scope, group), mine in grouped.items()
        for low in range(0, len(mine), _AT_ONCE)
    ]
    return run_rows(opened, lambda _: frame_of(opened, rows), what, details, amend, renamed=renamed)


def frame_of(opened: Opened, rows: list[tuple[str, int, int, bytes]]) -> Any:
    schema = "scope string, grp int, kind int, payload binary"
    return opened.session.createDataFrame(
        [(scope, group, kind, bytearray(payload)) for scope, group, kind, payload in rows], schema
    )


def run_rows(
    opened: Opened,
    rows: Callable[[Manifest], Any],
    what: str,
    details: dict[str, Any],
    amend: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    offsets: dict[str, dict[str, int]] | None = None,
    settle: Callable[[Manifest], None] | None = None,
    renamed: dict[str, str] | None = None,
) -> int:
    """Run rows, made when the group is ours, as a batch of their own in a new generation."""
    from millpond.spark.code_shipping import send_package
    from millpond.spark.edit import run_edit

    send_package(opened.session)
    with new_generation(opened, what) as new:
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
            seq = 0 if batch is None else batch.clock.get("seq", 0)
            new.clock = {"seq": seq, "seen": {}, "arrived": {}, "due": {}, "is_sure": False}
        if offsets is not None:
            manifest.backfill, manifest.live_from = {}, new.checkpoint.last() or 0
        if "scopes" in details:
            _rename_in(new, *details["scopes"])
        last = new.checkpoint.last()
        manifest.note(what, changed=changed, batch=last, by=user_name(), **details)
    return changed


def move_offsets(opened: Opened, offsets: dict[str, dict[str, int]], what: str) -> None:
    """Let sources go on from other offsets; the state stays as it is."""
    from millpond.spark.edit import EDITS

    rows = [("", 0, EDITS, encode_edits([]))]
    run_rows(opened, lambda _: frame_of(opened, rows), what, {"offsets": offsets}, offsets=offsets)


def end_backfill(opened: Opened) -> None:
    """Let the live run begin where a backfill ends."""
    manifest = opened.manifest()
    live = manifest.backfill.get("live", {})
    if live:
        move_offsets(opened, live, "backfill")
        return
    with opened.directory.held("backfill"):
        manifest.backfill = {}
        opened.directory.save(manifest)


def find_place(
    manifest: Manifest, name: str | None, fits: Callable[[str, str], bool] | None = None
) -> tuple[str, str]:
    """Return the scope and the store of a name; None: the only one there is, or that fits."""
    found = [
        (scope, store)
        for scope, stores in manifest.stores.items()
        for store in stores
        if name in (None, f"{scope}/{store}", store, scope)
    ]
    if fits is not None and len(found) > 1:
        found = [place for place in found if fits(*place)] or found
    if len(found) != 1:
        places = [f"{s}/{n}" for s, names in manifest.stores.items() for n in names]
        what = f"{len(found)} stores match {name!r}" if name else "no store was named"
        msg = f"{what}; there are {', '.join(places) or 'none'}."
        first = "/".join(found[0]) if found else (places or ["none"])[0]
        raise StateError(msg + f"\nFix: name one: --store {first}, or store={first!r} in Python.")
    return found[0]


# --- parallelism ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Rescaled:
    """State before and after it was divided again."""

    partitions_before: int
    partitions: int
    blobs: int
    bytes: int
    checksum: str


def rescale(opened: Opened, partitions: int) -> Rescaled:
    """Divide the state into so many parts."""
    manifest = opened.manifest()
    if type(partitions) is not int or not 1 <= partitions <= manifest.groups:
        msg = f"partitions must be 1 to {manifest.groups}, got {partitions!r}."
        raise ConfigError(msg + "\nFix: the number of key groups is the most there can be.")
    if partitions == manifest.partitions:
        msg = f"the state has {partitions} partition(s) already; nothing was changed."
        raise ConfigError(msg + "\nFix: give another number, or leave the state as it is.")
    from millpond.spark.rescale import fingerprint, repartition

    before = opened.reader(manifest)
    with new_generation(opened, "rescale") as new:
        last = opened.batch(None, new.old)
        expected = fingerprint(before.blobs(last))
        repartition(opened.session, new.checkpoint, partitions)
        new.manifest.partitions = partitions
        after = opened.reader(new.manifest)
        found = fingerprint(after.blobs(new.checkpoint.last() or 0))
        if found != expected:
            msg = (
                f"after the rescale the state has {found}, before it had {expected}; nothing was "
                "changed.\nFix: millpond state verify."
            )
            raise StateError(msg)
        new.manifest.note(
            "rescale", before=new.old.partitions, partitions=partitions, by=user_name(), state=found
        )
    count, size, checksum = expected
    return Rescaled(new.old.partitions, partitions, count, size, checksum)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
