"""State as rows: one for each value, and one for each change of a value.

Takes the blobs of a key group; gives tuples whose key, name and value are bytes, so that no type
of a program is needed to read them. `spark.statestore` runs it over all groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from millpond.state.codec import Codec
from millpond.state.layout import Entry, Pages, keys_of_page
from millpond.state.store import MemoryStore, Store
from millpond.state.stored import StoredItem, stored_items, stored_timers
from millpond.state.timers import Timer

__all__ = ["Change", "GroupRow", "changes", "group_rows", "group_timers", "key_items"]

_CODEC = Codec()


class GroupRow(NamedTuple):
    """One value of a key group."""

    key: bytes | None
    store: str
    name: bytes
    value: bytes
    expires: int | None


class Change(NamedTuple):
    """One value that a batch has changed; None: it was not there."""

    batch: int
    key: bytes | None
    store: str
    name: bytes
    before: bytes | None
    after: bytes | None


def group_rows(store: Store, groups: int) -> Iterator[GroupRow]:
    """Yield every value of a key group."""
    pages = Pages(store, _CODEC, groups)
    for key, entry in pages.scan():
        for item in stored_items(pages, entry):
            yield GroupRow(key, *item)


def group_timers(store: Store, groups: int) -> Iterator[tuple[bytes | None, str, Timer]]:
    """Yield every timer of a key group, with its key and the step that set it."""
    for key, entry in Pages(store, _CODEC, groups).scan():
        for step, timer in stored_timers(entry):
            yield key, step, timer


def key_items(store: Store, groups: int, key: bytes | None) -> list[StoredItem] | None:
    """Return the values of one key; None where the state does not have it."""
    pages = Pages(store, _CODEC, groups)
    entry = pages.entry(pages.page_of(key), key)
    return None if entry is None else list(stored_items(pages, entry))


def changes(
    base: Mapping[bytes, bytes],
    batches: Iterable[tuple[int, Mapping[bytes, bytes | None]]],
    groups: int,
) -> Iterator[Change]:
    """Yield what changed in each batch.

    Args:
        base: The blobs in front of the first batch.
        batches: For each batch in order, the blobs that it wrote; None: removed.
        groups: How many key groups the state has.
    """
    blobs = dict(base)
    for number, written in batches:
        touched = [blob_id for blob_id in written if blob_id[:1] == b"p"]
        before = _entries(blobs, touched, groups)
        for blob_id, blob in written.items():
            if blob is None:
                blobs.pop(blob_id, None)
            else:
                blobs[blob_id] = blob
        # A key may have moved from one page to another, so pages are compared all together.
        after = _entries(blobs, touched, groups)
        for key in dict.fromkeys([*before, *after]):
            yield from _changed(number, key, before.get(key, {}), after.get(key, {}))


def _entries(
    blobs: dict[bytes, bytes], touched: list[bytes], groups: int
) -> dict[bytes | None, dict[tuple[str, bytes], bytes]]:
    pages = Pages(MemoryStore(blobs), _CODEC, groups)
    found: dict[bytes | None, dict[tuple[str, bytes], bytes]] = {}
    for blob_id in touched:
        for key, entry in keys_of_page(pages, blob_id):
            found[key] = _values(pages, entry)
    return found


def _values(pages: Pages, entry: Entry) -> dict[tuple[str, bytes], bytes]:
    return {(item.store, item.name): item.value for item in stored_items(pages, entry)}


def _changed(number: int, key: bytes | None, before: Any, after: Any) -> Iterator[Change]:
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place), after.get(place)
        if old != new:
            store, name = place
            yield Change(number, key, store, name, old, new)
