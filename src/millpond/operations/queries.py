"""Looking into state: at one key, at all, at what changed, at what is large.

Takes an opened group; gives items for people. Nothing here changes anything, and the
application may run meanwhile: what is seen is a committed batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from millpond.errors import ConfigError, StateError
from millpond.operations.fields import Fields
from millpond.operations.items import (
    ChangedValue,
    Difference,
    GroupInfo,
    KeySize,
    KeyTimer,
    StateItem,
)
from millpond.operations.records import Recall
from millpond.operations.session import At, Opened
from millpond.program.steps import TABLE
from millpond.state.blobs import hash_key
from millpond.state.rows import key_items
from millpond.storage.manifest import Manifest

__all__ = ["diff", "get", "history", "info", "items", "scan", "table_of", "timers", "top"]

T = TypeVar("T")

# Batches that are read again for the records that caused the changes of a key; the latest ones.
_RECALLED = 20


def info(opened: Opened) -> GroupInfo:
    """Return what there is, without starting Spark."""
    directory, manifest = opened.directory, opened.manifest()
    checkpoint = directory.checkpoint(manifest)
    done = checkpoint.committed()
    manifest = manifest.at(done[-1]) if done else manifest
    last = checkpoint.batch(done[-1]) if done else None
    stores = [f"{scope}/{store}" for scope, names in manifest.stores.items() for store in names]
    return GroupInfo(
        group=directory.group,
        generation=manifest.generation,
        generations=directory.generations(),
        partitions=manifest.partitions,
        stores=sorted(stores),
        keys=directory.known_keys(manifest),
        bytes=sum(found.size for _, found in checkpoint.folder.walk()),
        first_batch=done[0] if done else None,
        last_batch=done[-1] if done else None,
        last_commit_ms=checkpoint.committed_ms().get(done[-1]) if done else None,
        watermarks=dict(last.clock.marks) if last else {},
        running=directory.is_held(),
    )


def items(opened: Opened, key: Any, store: str | None, at: At) -> list[StateItem]:
    """Return the values of one key, in every scope that has it."""
    _check_no_table(opened, store, at)

    def read() -> list[StateItem]:
        manifest, batch = opened.view(at)
        found: list[StateItem] = []
        fields = opened.fields(manifest)
        for scope, data in keys_of(opened, manifest, key, store):
            group = hash_key(data) % manifest.groups
            blobs = opened.reader(manifest).group(scope, group, batch, manifest.layer_of.get(scope))
            for item in key_items(blobs, manifest.groups, data) or []:
                if is_asked(scope, item.store, store):
                    for name, value in fields.shown(scope, *item[:3]):
                        found.append(StateItem(scope, key, item.store, name, value, item.expires))
        return found

    return _again_if_it_moved(read)


def keys_of(
    opened: Opened, manifest: Manifest, key: Any, store: str | None
) -> list[tuple[str, bytes | None]]:
    """Return the stored form of a key in each scope in which it can be one.

    Raises:
        ConfigError: where it can be one in none of them.
    """
    scopes = _scopes(manifest, store)
    found = [
        (scope, data)
        for scope in scopes
        for data in opened.possible_key(manifest, scope, key, is_asked=False)
    ]
    if not found:
        opened.key_bytes(manifest, scopes[0], key)  # says why
    return found


def table_of(opened: Opened, store: str | None, at: At) -> tuple[str, str] | None:
    """Return the scope and the name of the table that is meant; None: values are."""
    manifest, _ = opened.view(at)
    asked = [
        (scope, name)
        for scope in _scopes(manifest, store)
        for name in manifest.stores[scope]
        if is_asked(scope, name, store)
    ]
    tables = [(s, name) for s, name in asked if manifest.settings.get(s, {}).get(name) == TABLE]
    return tables[0] if len(asked) == 1 and tables else None


def _check_no_table(opened: Opened, store: str | None, at: At) -> None:
    found = table_of(opened, store, at)
    if found is not None:
        name = "/".join(found)
        msg = f"{name} is a table of update_state, with rows and columns of the program's own."
        fix = f"to_arrow({name!r}), to_pandas() or sql(); `millpond state export --store {name}`."
        raise ConfigError(f"{msg}\nFix: {fix}")


def get(opened: Opened, key: Any, store: str | None, at: At) -> dict[Any, Any]:
    """Return the names and values of one key in one store."""
    found = items(opened, key, store, at)
    places = {(item.scope, item.store) for item in found}
    if len(places) > 1:
        names = sorted(f"{scope}/{name}" for scope, name in places)
        msg = f"key {key!r} has state in {', '.join(names)}."
        raise ConfigError(msg + f"\nFix: say which, as in store={names[0]!r}.")
    return {_hashable(item.name): item.value for item in found}


def scan(
    opened: Opened,
    store: str | None = None,
    at: At = None,
    prefix: str | None = None,
    where: Callable[[StateItem], bool] | None = None,
) -> Iterator[StateItem]:
    """Yield every value."""
    _check_no_table(opened, store, at)
    manifest, batch = opened.view(at)
    read_key = {scope: opened.key_reader(manifest, scope) for scope in manifest.stores}
    rows = opened.reader(manifest).rows(batch)
    fields = opened.fields(manifest)
    for scope, key, held_in, name, value, expires in _collected(rows, opened, manifest):
        if not is_asked(scope, held_in, store):
            continue
        shown_key = read_key.get(scope, _raw)(key)
        if prefix is not None and not _text(shown_key).startswith(prefix):
            continue
        for shown_name, shown_value in fields.shown(scope, held_in, bytes(name), bytes(value)):
            item = StateItem(scope, shown_key, held_in, shown_name, shown_value, expires)
            if where is None or where(item):
                yield item


def timers(opened: Opened, at: At) -> Iterator[KeyTimer]:
    """Yield every timer that waits."""
    manifest, batch = opened.view(at)
    rows = opened.reader(manifest).timers(batch)
    for scope, key, *rest in _collected(rows, opened, manifest):
        yield KeyTimer(scope, opened.key_reader(manifest, scope)(key), *rest)


def history(opened: Opened, key: Any, store: str | None, records: bool) -> list[ChangedValue]:
    """Return each change of a key that is kept, the oldest first."""
    manifest, _ = opened.view(None)
    checkpoint = opened.directory.checkpoint(manifest)
    done = checkpoint.committed()
    # What the oldest batch changed is not known unless it was the first of all.
    first = done[0] if done[0] == 0 else done[0] + 1
    fields = _fields_by_batch(opened, opened.manifest())
    found: list[ChangedValue] = []
    for scope, data in keys_of(opened, manifest, key, store):
        group = hash_key(data) % manifest.groups
        rows = opened.reader(manifest).changes(first, done[-1], scope, group)
        own = [
            (number, held_in, name, before, after)
            for _, number, changed, held_in, name, before, after in _collected(
                rows, opened, manifest
            )
            if changed == data and is_asked(scope, held_in, store)
        ]
        recall = Recall(opened, manifest, scope, data)
        recent = sorted({number for number, *_ in own})[-_RECALLED:] if records else []
        for number, held_in, *values in own:
            batch = checkpoint.batch(number)
            is_by_hand = batch is not None and batch.is_edit
            for change in _changed(fields, (number - 1, number), (scope, held_in), values):
                row = ChangedValue(
                    number,
                    0 if batch is None else batch.time_ms,
                    scope,
                    key,
                    held_in,
                    *change,
                    is_by_hand=is_by_hand,
                    records=recall.batch(number) if number in recent and not is_by_hand else [],
                )
                found.append(row)
    return sorted(found, key=lambda change: change.batch)


def _changed(
    fields: Callable[[int], Fields],
    batches: tuple[int, int],
    place: tuple[str, str],
    values: Sequence[bytes | None],
) -> Iterator[tuple[Any, Any, Any, bool, bool]]:
    """Yield what changed of one stored value: name, before, after, is new?, is gone?"""
    name, *both = (None if data is None else bytes(data) for data in values)
    assert name is not None
    before, after = (
        dict(fields(batch).shown(*place, name, data))
        for batch, data in zip(batches, both, strict=True)
    )
    for one in dict.fromkeys([*before, *after]):
        was, now = before.get(one), after.get(one)
        # A value of another type may be equal to the one before, as 1 and 1.0.
        if was != now or len(before) + len(after) <= 2:
            yield one, was, now, one not in before, one not in after


def _fields_by_batch(opened: Opened, manifest: Manifest) -> Callable[[int], Fields]:
    """Return what shows fields by the layouts after a batch."""
    known: dict[int, Fields] = {}

    def fields(batch: int) -> Fields:
        then = manifest.at(batch)
        era = len(then.earlier)
        if era not in known:
            known[era] = opened.fields(then)
        return known[era]

    return fields


def diff(opened: Opened, before: At, after: At, store: str | None) -> Iterator[Difference]:
    """Yield every value that two batches do not have in common."""
    from millpond.spark.statestore import differing

    manifest = opened.manifest()
    reader = opened.reader(manifest)
    old, new = opened.batch(before, manifest), opened.batch(after, manifest)
    rows = differing(reader.rows(old), reader.rows(new))
    read_key = {scope: opened.key_reader(manifest, scope) for scope in manifest.stores}
    fields = _fields_by_batch(opened, manifest)
    for scope, key, held_in, *values in _collected(rows, opened, manifest):
        if is_asked(scope, held_in, store):
            shown_key = read_key.get(scope, _raw)(key)
            for change in _changed(fields, (old, new), (scope, held_in), values):
                yield Difference(scope, shown_key, held_in, *change)


def top(opened: Opened, limit: int, by: str) -> list[KeySize]:
    """Return the largest keys, or those that changed most often."""
    from millpond.spark.statestore import largest

    if by not in ("bytes", "values", "changes"):
        msg = f"by must be 'bytes', 'values' or 'changes', got {by!r}."
        raise ConfigError(msg + "\nFix: one of these, as in --by bytes.")
    manifest, batch = opened.view(None)
    reader = opened.reader(manifest)
    done = opened.directory.checkpoint(manifest).committed()
    first = done[0] if done[0] == 0 else done[0] + 1
    # Counting changes reads every batch that is kept; the size is in the last one.
    changed = reader.changes(first, batch) if by == "changes" else None
    rows = largest(reader.rows(batch), changed, limit, by)
    read_key = {scope: opened.key_reader(manifest, scope) for scope in manifest.stores}
    return [
        KeySize(scope, read_key.get(scope, _raw)(key), *counts)
        for scope, key, *counts in _collected(rows, opened, manifest)
    ]


def _collected(rows: Any, opened: Opened, manifest: Manifest) -> Iterator[Any]:
    """Yield the rows of a DataFrame, a part at a time."""
    from millpond.spark.statestore import telling

    with telling(opened.directory.checkpoint(manifest)):
        yield from rows.toLocalIterator(prefetchPartitions=True)


def _scopes(manifest: Manifest, store: str | None) -> list[str]:
    """Return the scopes that may have a store."""
    found = [
        scope
        for scope, names in manifest.stores.items()
        if store is None or any(is_asked(scope, name, store) for name in names)
    ]
    if not found:
        known = [f"{scope}/{name}" for scope, names in manifest.stores.items() for name in names]
        msg = f"there is no store {store!r}; there are {', '.join(sorted(known)) or 'none'}."
        raise StateError(msg + f"\nFix: use one of these{', as in ' + known[0] if known else ''}.")
    return found


def is_asked(scope: str, name: str, store: str | None) -> bool:
    """Tell whether a store is meant: by its own name, its scope's, or both."""
    return store is None or store in (name, scope, f"{scope}/{name}")


def _again_if_it_moved(read: Callable[[], T]) -> T:
    """Read once more where a running application has just removed what was read."""
    try:
        return read()
    except StateError:
        return read()


def _hashable(name: Any) -> Any:
    return str(name) if isinstance(name, dict | list) else name


def _text(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _raw(key: bytes | None) -> Any:
    return key
