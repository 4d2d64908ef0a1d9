"""Manual changes to state: values set, names and keys deleted, stores renamed and dropped.

Takes edits and the store of a key group; writes them through the same pages as a program does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from millpond.errors import StateError
from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.store import Store
from millpond.state.stored import (
    DEFAULT_STORE,
    name_bytes,
    store_of,
    stored_name,
    stored_value,
    version_name,
)
from millpond.state.timers import AWAY

__all__ = ["Edit", "apply_edits", "decode_edits", "encode_edits"]

_encode = msgspec.msgpack.Encoder().encode


class Edit(NamedTuple):
    """One change; key, name and value are bytes of the codec."""

    what: Literal["set", "delete", "rename", "rename-timers", "drop"]
    key: bytes | None
    store: str | None = None
    """None: all that the key has, its timers too."""
    name: bytes | None = None
    """None: all names of the store."""
    value: bytes | None = None
    new_store: str | None = None
    """What a renamed store is called, or a function with timers; like a drop, a rename is of every
    key of the group."""
    version: int = 1
    """Of which version a value is that is set; see `migrate`."""


_decode = msgspec.msgpack.Decoder(list[Edit]).decode


def encode_edits(edits: Iterable[Edit]) -> bytes:
    """Return edits as bytes."""
    return _encode(list(edits))


def decode_edits(data: bytes) -> list[Edit]:
    """Return the edits of `encode_edits`."""
    return _decode(data)


def apply_edits(store: Store, edits: Iterable[Edit], groups: int) -> int:
    """Apply edits to a key group; return how many values changed."""
    codec = Codec()
    pages = Pages(store, codec, groups)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    changed = sum(_apply(view, pages, edit) for edit in edits)
    pages.flush()
    return changed


def _apply(view: KeyContext, pages: Pages, edit: Edit) -> int:
    if edit.what == "rename":
        assert edit.store is not None and edit.new_store is not None
        return sum(_rename(view, key, edit.store, edit.new_store) for key, _ in list(pages.scan()))
    if edit.what == "rename-timers":
        assert edit.store is not None and edit.new_store is not None
        keys = [key for key, _ in list(pages.scan())]
        return sum(_rename_timers(view, key, edit.store, edit.new_store) for key in keys)
    if edit.what == "drop":
        assert edit.store is not None
        table = pages.drop_table(edit.store)
        return table + sum(_drop(view, key, edit.store) for key, _ in list(pages.scan()))
    view.bind(edit.key)
    if edit.what == "set":
        assert edit.store is not None and edit.name is not None and edit.value is not None
        return _set(view, edit.store, edit.name, edit.value, edit.version)
    entry = view.cursor.place.entry or {}
    if edit.name is not None and edit.store is not None:
        names = [stored_name(edit.store, edit.name)]
    else:
        names = [n for n in entry if edit.store is None or store_of(n) == edit.store]
    gone = [name for name in names if name in entry]
    for name in gone:
        view.drop(name)
    if edit.store is not None and not _names(view, edit.store):
        view.drop(version_name(edit.store))
    return sum(store_of(name) is not None for name in gone)


def _names(view: KeyContext, store: str) -> list[str | bytes]:
    return [name for name in view.cursor.place.entry or {} if store_of(name) == store]


def _set(view: KeyContext, store: str, name: bytes, value: bytes, version: int) -> int:
    place, mark = stored_name(store, name), version_name(store)
    entry = view.cursor.place.entry or {}
    before, was = entry.get(place), entry.get(mark, 1)
    if was != version and _names(view, store):
        msg = (
            f"a key has values of version {was} in {store!r}, which the program has not lifted to "
            f"{version} yet; nothing was changed.\nFix: let the application run until it has had "
            "a record of the key, or delete what the key has in the store first."
        )
        raise StateError(msg)
    view.replace(place, stored_value(value))
    if version != 1:
        view.put(mark, version)
    assert view.cursor.place.entry is not None
    return int(view.cursor.place.entry[place] != before)


def _drop(view: KeyContext, key: bytes | None, store: str) -> int:
    """Remove what a key has in a store: values, their version, timers, and notes to look at it."""
    view.bind(key)
    gone = _names(view, store)
    for name in gone:
        view.drop(name)
    view.drop(version_name(store))
    if store == DEFAULT_STORE and view.has_timers():  # no other store has functions with timers
        view.put_timers({})
    entry = view.cursor.place.entry
    if entry and not view.has_timers() and all(store_of(name) is None for name in entry):
        entry.clear()  # only notes of when to look at the key: there is nothing to look at
        view.cursor.place.page.is_changed = True
    return len(gone)


def _rename(view: KeyContext, key: bytes | None, old: str, new: str) -> int:
    view.bind(key)
    entry = view.cursor.place.entry or {}
    version = entry.get(version_name(old))
    moved = {name: value for name, value in entry.items() if store_of(name) == old}
    for name, value in moved.items():
        view.drop(name)
        view.put(stored_name(new, name_bytes(name)), value)
    if version is not None:
        view.drop(version_name(old))
        view.put(version_name(new), version)
    return len(moved)


def _rename_timers(view: KeyContext, key: bytes | None, old: str, new: str) -> int:
    view.bind(key)
    timers = view.timers()
    moved = timers.pop(old, {})
    if moved:
        view.put_timers({**timers, new: {**moved, **timers.get(new, {})}})
        # They may have been put aside: no program has this name for what it puts aside.
        view.register(min(at for at, _ in moved.values()), f"{AWAY}renamed ")
    return len(moved)
