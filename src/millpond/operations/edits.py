"""Values that people set and delete.

Takes an opened group that is stopped, keys and values; makes a new generation whose last batch
writes them. The batch is run by `edit_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.errors import StateError, shown
from millpond.operations.edit_batch import frame_of, run_rows
from millpond.operations.fields import has_named_parts
from millpond.operations.session import Opened
from millpond.state.blobs import hash_key
from millpond.state.edit import Edit, encode_edits
from millpond.storage.audit import Delete, EditEvent, SetValues
from millpond.storage.claims import Claims
from millpond.storage.manifest import Manifest

__all__ = ["ALL", "delete", "edit", "find_place", "place", "set_values", "version_in"]

# Edits that one row brings to a key group.
_AT_ONCE = 5_000


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
    opened: Opened, scope: str, store: str, given: Iterable[tuple[Any, dict[Any, Any]]]
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
    event = SetValues(store=f"{scope}/{store}", keys=shown_keys)
    if len(keys) == 1:
        event.values = {repr(name): shown(value, 200) for name, value in values.items()}
    return edit(opened, edits, event)


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
    event = Delete(keys=[repr(key)], store=store or "all", name=None if name is ALL else repr(name))
    return edit(opened, edits, event)


def edit(
    opened: Opened,
    edits: Iterable[tuple[str, Edit]],
    event: EditEvent,
    amend: Callable[[Claims], Claims] | None = None,
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
    return run_rows(opened, lambda _: frame_of(opened, rows), event, amend, renamed=renamed)


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
        how = f"name one of these in full, such as {first}"
        if name is None:
            how = f"name one: --store {first}, or store={first!r} in Python"
        raise StateError(f"{msg}\nFix: {how}.")
    return found[0]
