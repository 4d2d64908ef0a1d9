"""Where bytes live: the pages of one key group.

Takes a `Store` of blobs and gives the entries (name -> value) of a key. A page holds the
entries of many keys, so a batch reads each touched page once and writes each changed page once.
Pages multiply by linear hashing: one page splits for every `PAGE_BYTES` the group grows, so the
cost of a batch follows the keys it touches, not the keys that exist. What is large has blobs of its
own: a value has one, a key with very many names has pages of names (see `names`).

Blobs, by first letter of their id: `h` the head of the group, `p` + number a page, `v` + hash a
large value, `n` + hash + number a page of names, `a` a part of a timer index, `u` + name a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

from msgspec.msgpack import Ext

from millpond.errors import DamagedStateError
from millpond.state.blobs import (
    LARGE_KEY,
    LARGE_VALUE,
    MANY_NAMES,
    REPAIR,
    VERSION,
    digest,
    encode,
    hash_key,
    next_split,
    page_number,
    read,
    value_size,
)
from millpond.state.codec import Codec
from millpond.state.names import Names
from millpond.state.store import Store
from millpond.state.timer_index import NEVER, TimerIndex

__all__ = ["Entry", "Pages", "keys_of_page", "table_id"]

# A group splits a page whenever its pages hold more than this on average (bytes). A batch reads and
# writes whole pages: one that touched 1,000 of a million keys took 180 ms with 2 KiB and 170 with
# 1; where a batch touched most pages, 1 KiB was 2 to 11 per cent slower.
PAGE_BYTES = 1024

# The same for the pages of names of one key.
NAMES_PAGE_BYTES = 2 * 1024

# A flush may split two pages for each `PAGE_BYTES` that it has written, and so many more.
_MORE_SPLITS = 8

# A value, or all names of a key together, above this size (bytes) gets blobs of its own.
LARGE_BYTES = 32 * 1024

# A value above this size (bytes) is refused. Spark's state server copies a value several times on
# the heap of an executor: with 3 GB it took 256 MiB, and broke the connection at 900.
MOST_BYTES = 256 * 1024 * 1024

_HEAD = b"h"

Entry = MutableMapping[str | bytes, Any]
"""The names of one key. Values: atoms as they are, everything else encoded in an `Ext`."""


class Page:
    """The entries of the keys that hash to one page."""

    __slots__ = (
        "entries",
        "has_large",
        "is_changed",
        "keys_before",
        "large_before",
        "many",
        "size",
    )

    def __init__(self, entries: dict[bytes | None, Entry], size: int, has_large: bool) -> None:
        self.entries = entries
        self.size = size
        self.has_large = has_large
        self.is_changed = False
        self.keys_before = len(entries)
        self.large_before = set(_references(entries)) if has_large else set()
        self.many: dict[bytes | None, Names] = {}
        """The keys in use that have very many names."""


def table_id(name: str) -> bytes:
    """Return the id of the blob that is the table of a name."""
    return b"u" + name.encode()


class Pages:
    """All the pages of one key group, loaded when touched, written by `flush`."""

    def __init__(self, store: Store, codec: Codec, groups: int) -> None:
        self._store = store
        self._codec = codec
        self._groups = groups
        self._loaded: dict[int, Page] = {}
        head = store.get(_HEAD)
        self._head_before = head
        self.count: int
        self.bytes: int
        self.keys: int
        self.count, self.bytes, self.keys, *more = read(head, "head") if head else (1, 0, 0)
        heads = more[0] if more else {}
        self.timer_indexes = {
            name: TimerIndex(store, name.encode(), head) for name, head in heads.items()
        }
        """By the name of the clock that they go by."""
        self.clock: bytes = more[1] if len(more) > 1 else b""
        """What the clocks showed when somebody last said so; see `wire.clock`."""

    def number_of(self, key: bytes | None) -> int:
        """Return the page of a key."""
        return page_number(hash_key(key) // self._groups, self.count)

    def expect(self, keys: Iterable[bytes | None]) -> None:
        """Read the pages of keys that a batch will touch, all at once."""
        numbers = {0} if self.count == 1 else set(map(self.number_of, keys))
        self._store.fetch([_page_id(n) for n in sorted(numbers) if n not in self._loaded])

    def page_of(self, key: bytes | None) -> Page:
        """Return the page of a key, loading it where this batch has not touched it yet."""
        number = self.number_of(key)
        return self._loaded.get(number) or self._load(number)

    def entry(self, page: Page, key: bytes | None) -> Entry | None:
        """Return the entry of a key, or None."""
        entry: Any = page.entries.get(key)
        if type(entry) is Ext and entry.code == MANY_NAMES:
            entry = page.entries[key] = page.many[key] = self._names(key, entry)
        elif type(entry) is Ext:
            blob = self._blob(entry, "the names of a large key")
            entry = page.entries[key] = read(blob, "large key")
            page.large_before.update(_references({key: entry}))
        return entry  # type: ignore[no-any-return]

    def _names(self, key: bytes | None, head: Ext | None = None) -> Names:
        return Names(self._store, key, partial(self._spilled, key), NAMES_PAGE_BYTES, head)

    def large_value(self, reference: Ext) -> Any:
        """Return the stored form of a large value."""
        return read(self._blob(reference, "a large value"), "large value")

    def _blob(self, reference: Ext, what: str) -> bytes:
        blob_id = bytes(reference.data)
        blob = self._store.get(blob_id)
        if blob is None:
            msg = f"{what} is missing from the state (blob {blob_id.hex()})."
            raise DamagedStateError(msg + REPAIR)
        return blob

    def timer_index(self, clock: str) -> TimerIndex:
        """Return the timer index of a clock."""
        if clock not in self.timer_indexes:
            self.timer_indexes[clock] = TimerIndex(self._store, clock.encode())
        return self.timer_indexes[clock]

    def table(self, name: str) -> bytes | None:
        """Return the table of a name, as it was written."""
        blob = self._store.get(table_id(name))
        return None if blob is None else blob[1:]

    def put_table(self, name: str, table: bytes) -> None:
        """Keep a table under a name."""
        self._store.put(table_id(name), VERSION + table)

    def drop_table(self, name: str) -> bool:
        """Forget the table of a name; tell whether there was one."""
        is_there = self.table(name) is not None
        if is_there:
            self._store.delete(table_id(name))
        return is_there

    def flush(self, clocks: dict[str, int] | None = None) -> None:
        """Write every changed page, growing the group where it has become too full."""
        changed = [(n, page) for n, page in self._loaded.items() if page.is_changed]
        for number, page in changed:
            self._save(number, page)
        if changed:
            self._grow(2 * sum(page.size for _, page in changed) // PAGE_BYTES + _MORE_SPLITS)
        for name, timer_index in self.timer_indexes.items():
            if timer_index.is_changed:
                timer_index.flush((clocks or {}).get(name, NEVER))
        heads = {
            name: timer_index.head
            for name, timer_index in self.timer_indexes.items()
            if timer_index.head
        }
        state = (self.count, self.bytes, self.keys)
        more = (heads, self.clock) if self.clock else (heads,) if heads else ()
        head = VERSION + encode(state + more)
        if head != self._head_before and (self._head_before or self.bytes or more):
            self._store.put(_HEAD, head)
            self._head_before = head

    def scan(self) -> Iterator[tuple[bytes | None, Entry]]:
        """Yield each key with its entry, large ones included."""
        for number in range(self.count):
            yield from self.scan_page(number)

    def scan_page(self, number: int) -> Iterator[tuple[bytes | None, Entry]]:
        """Yield each key of one page with its entry."""
        page = self._loaded.get(number) or self._load(number)
        for key in list(page.entries):
            entry = self.entry(page, key)
            if entry:
                yield key, entry

    def _load(self, number: int) -> Page:
        blob = self._store.get(_page_id(number))
        if blob is None:
            page = Page({}, 0, False)
        else:
            entries, has_large = read(blob, "page")
            page = Page(entries, len(blob), has_large)
        self._loaded[number] = page
        return page

    def _save(self, number: int, page: Page) -> None:
        self._settle(page)
        entries: dict[bytes | None, Any] = page.entries
        if not all(entries.values()):
            entries = {key: entry for key, entry in entries.items() if entry}
        if page.has_large or page.large_before:
            entries = {key: self._spill_values(key, entry) for key, entry in entries.items()}
        # What a large key refers to is still in use, so it is counted before its names move out.
        in_use = set(_references(entries)) if page.has_large else set()
        blob = VERSION + encode((entries, page.has_large))
        if len(blob) > LARGE_BYTES:
            entries = {key: self._spill_key(page, key, entry) for key, entry in entries.items()}
            blob = VERSION + encode((entries, page.has_large))
        references = set(_references(entries)) if page.has_large else set()
        for gone in page.large_before - in_use - references:
            self._store.delete(gone)
        if entries:
            self._store.put(_page_id(number), blob)
        elif page.size:
            self._store.delete(_page_id(number))
        size = len(blob) if entries else 0
        self.bytes += size - page.size
        self.keys += len(entries) - page.keys_before
        page.entries, page.size, page.is_changed = entries, size, False
        page.keys_before = len(entries)
        page.large_before = references

    def _settle(self, page: Page) -> None:
        """Write the pages of names; the page keeps what refers to them."""
        for key, names in page.many.items():
            page.entries[key] = self._written(page, names)
        page.many = {}

    def _written(self, page: Page, names: Names) -> Any:
        """Write names; return what the page keeps of them."""
        entry = names.flush(LARGE_BYTES // 4)
        if type(entry) is dict and any(_references({None: entry})):
            page.has_large = True
        return entry

    def _spill_values(self, key: bytes | None, entry: Any) -> Any:
        if type(entry) is Ext:
            return entry
        return {name: self._spilled(key, name, value) for name, value in entry.items()}

    def _spilled(self, key: bytes | None, name: str | bytes, value: Any) -> Any:
        """Return a value, or what refers to it where it is large."""
        if value_size(value) <= LARGE_BYTES:
            return value
        blob_id = b"v" + digest(key, name)
        self._store.put(blob_id, VERSION + encode(value))
        return Ext(LARGE_VALUE, blob_id)

    def _spill_key(self, page: Page, key: bytes | None, entry: Any) -> Any:
        if type(entry) is Ext:
            return entry
        size = len(encode(entry))
        if size <= LARGE_BYTES:
            return entry
        names = self._names(key)
        names.fill(entry, size)
        return self._written(page, names)

    def _grow(self, most: int) -> None:
        """Split pages while there are too few, but at most so many: as a batch has written.

        So a group whose pages were larger once is divided little by little.
        """
        wanted = min(self.bytes // PAGE_BYTES + 1, self.count + most)
        splits = [(next_split(count), count) for count in range(self.count, wanted)]
        missing = {low for low, _ in splits if low < self.count and low not in self._loaded}
        self._store.fetch([_page_id(number) for number in sorted(missing)])
        touched: set[int] = set()
        for low, high in splits:
            page = self._loaded.get(low) or self._load(low)
            self._settle(page)
            new = self._loaded[high] = Page({}, 0, page.has_large)
            self.count += 1
            entries, page.entries = page.entries, {}
            for key, entry in entries.items():
                (page if self.number_of(key) == low else new).entries[key] = entry
            # Blobs of large values follow their keys; neither side may delete the other's.
            new.large_before = set(_references(new.entries)) if page.has_large else set()
            page.large_before -= new.large_before
            new.keys_before = len(new.entries)
            page.keys_before = len(page.entries)
            touched |= {low, high}
        for number in sorted(touched):
            self._save(number, self._loaded[number])
        if touched:  # which are a few bytes more now
            self._grow(most - len(splits))


def keys_of_page(pages: Pages, blob_id: bytes) -> Iterator[tuple[bytes | None, Entry]]:
    """Yield each key of the page that lies in a blob, with its entry."""
    return pages.scan_page(int.from_bytes(blob_id[1:], "big"))


def _page_id(number: int) -> bytes:
    return b"p" + number.to_bytes(4, "big")


def _references(entries: dict[bytes | None, Any]) -> Iterator[bytes]:
    for entry in entries.values():
        if type(entry) is Ext:
            if entry.code == LARGE_KEY:
                yield bytes(entry.data)
        else:
            for value in entry.values():
                if type(value) is Ext and value.code == LARGE_VALUE:
                    yield bytes(value.data)
