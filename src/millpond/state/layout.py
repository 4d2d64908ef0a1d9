"""Where bytes live: the pages of one key group.

Takes a `Store` of blobs and gives the entries (name -> value) of a key. A page holds the
entries of many keys, so a batch reads each touched page once and writes each changed page once.
Pages multiply by linear hashing: one page splits for every `PAGE_BYTES` the group grows, so the
cost of a batch follows the keys it touches, not the keys that exist. What is large (a value, or
all the names of a key) has a blob of its own and its page keeps a reference.

Blobs, by first letter of their id: `h` the head of the group, `p` + number a page, `v` + hash a
large value, `k` + hash a large key, `a` a part of an agenda, `u` + name a table. Each blob starts
with a version byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from millpond.errors import DamagedStateError, StateError
from millpond.state.agenda import NEVER, Agenda
from millpond.state.codec import Codec
from millpond.state.store import Store

__all__ = ["FORMAT", "Entry", "Pages", "hash_key", "keys_of_page", "value_size"]

# The version byte of every blob. A change of layout raises it and keeps the old reader.
FORMAT = 1
_VERSION = bytes([FORMAT])

# A group splits a page whenever its pages hold more than this on average (bytes).
PAGE_BYTES = 16 * 1024

# A value, or all names of a key together, above this size (bytes) gets a blob of its own.
LARGE_BYTES = 32 * 1024

# Extension types of values at the level of an entry; the codec's own types lie inside CONTAINER.
# EXPIRING is eight bytes of a moment, four that tell the clock it goes by, then the value.
CONTAINER, LARGE_VALUE, LARGE_KEY, EXPIRING = 1, 2, 3, 4

_REPAIR = "\nFix: millpond state repair APP.py goes back to the last batch that is whole."

_HEAD = b"h"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Entry = dict[str | bytes, Any]
"""The names of one key. Values: atoms as they are, everything else encoded in an `Ext`."""


def hash_key(key: bytes | None) -> int:
    """Return the hash that decides key group and page. Stable for ever: state depends on it."""
    return crc32(key) if key is not None else 0


class Page:
    """The entries of the keys that hash to one page."""

    __slots__ = ("entries", "has_large", "is_changed", "keys_before", "large_before", "size")

    def __init__(self, entries: dict[bytes | None, Entry], size: int, has_large: bool) -> None:
        self.entries = entries
        self.size = size
        self.has_large = has_large
        self.is_changed = False
        self.keys_before = len(entries)
        self.large_before = set(_references(entries)) if has_large else set()


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
        self.count, self.bytes, self.keys, *more = _read(head, "head") if head else (1, 0, 0)
        heads = more[0] if more else {}
        self.agendas = {name: Agenda(store, name.encode(), head) for name, head in heads.items()}
        """By the name of the clock that they go by."""
        self.clock: bytes = more[1] if len(more) > 1 else b""
        """What the clocks showed when somebody last said so; see `runtime.clock`."""
        self._aim()

    def _aim(self) -> None:
        self._level: int = 1 << (self.count.bit_length() - 1)

    def number_of(self, key: bytes | None) -> int:
        """Return the page of a key (linear hashing)."""
        hashed = hash_key(key) // self._groups
        number = hashed & (2 * self._level - 1)
        return number if number < self.count else hashed & (self._level - 1)

    def page_of(self, key: bytes | None) -> Page:
        """Return the page of a key, loading it where this batch has not touched it yet."""
        number = self.number_of(key)
        return self._loaded.get(number) or self._load(number)

    def entry(self, page: Page, key: bytes | None) -> Entry | None:
        """Return the entry of a key, or None; a large key's own blob is read here."""
        entry: Any = page.entries.get(key)
        if type(entry) is Ext:
            blob = self._blob(entry, "the names of a large key")
            entry = page.entries[key] = _read(blob, "large key")
            page.large_before.update(_references({key: entry}))
        return entry  # type: ignore[no-any-return]

    def large_value(self, reference: Ext) -> Any:
        """Return the stored form of a large value."""
        return _read(self._blob(reference, "a large value"), "large value")

    def _blob(self, reference: Ext, what: str) -> bytes:
        blob_id = bytes(reference.data)
        blob = self._store.get(blob_id)
        if blob is None:
            msg = f"{what} is missing from the state (blob {blob_id.hex()})."
            raise DamagedStateError(msg + _REPAIR)
        return blob

    def agenda(self, clock: str) -> Agenda:
        """Return the agenda of a clock."""
        if clock not in self.agendas:
            self.agendas[clock] = Agenda(self._store, clock.encode())
        return self.agendas[clock]

    def table(self, name: str) -> bytes | None:
        """Return the table of a name, as it was written."""
        blob = self._store.get(table_id(name))
        return None if blob is None else blob[1:]

    def put_table(self, name: str, table: bytes) -> None:
        """Keep a table under a name."""
        self._store.put(table_id(name), _VERSION + table)

    def flush(self, clocks: dict[str, int] | None = None) -> None:
        """Write every changed page, growing the group where it has become too full."""
        for number, page in [(n, page) for n, page in self._loaded.items() if page.is_changed]:
            self._save(number, page)
        self._grow()
        for name, agenda in self.agendas.items():
            if agenda.is_changed:
                agenda.flush((clocks or {}).get(name, NEVER))
        heads = {name: agenda.head for name, agenda in self.agendas.items() if agenda.head}
        state = (self.count, self.bytes, self.keys)
        more = (heads, self.clock) if self.clock else (heads,) if heads else ()
        head = _VERSION + _encode(state + more)
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
            entries, has_large = _read(blob, "page")
            page = Page(entries, len(blob), has_large)
        self._loaded[number] = page
        return page

    def _save(self, number: int, page: Page) -> None:
        entries = {key: entry for key, entry in page.entries.items() if entry}
        if page.has_large or page.large_before:
            entries = {key: self._spill_values(key, entry) for key, entry in entries.items()}
        # What a large key refers to is still in use, so it is counted before its names move out.
        in_use = set(_references(entries)) if page.has_large else set()
        blob = _VERSION + _encode((entries, page.has_large))
        if len(blob) > LARGE_BYTES:
            entries = {key: self._spill_key(page, key, entry) for key, entry in entries.items()}
            blob = _VERSION + _encode((entries, page.has_large))
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

    def _spill_values(self, key: bytes | None, entry: Any) -> Any:
        if type(entry) is Ext:
            return entry
        spilled = dict(entry)
        for name, value in entry.items():
            if value_size(value) > LARGE_BYTES:
                blob_id = b"v" + _digest(key, name)
                self._store.put(blob_id, _VERSION + _encode(value))
                spilled[name] = Ext(LARGE_VALUE, blob_id)
        return spilled

    def _spill_key(self, page: Page, key: bytes | None, entry: Any) -> Any:
        if type(entry) is Ext:
            return entry
        blob = _VERSION + _encode(entry)
        if len(blob) <= LARGE_BYTES:
            return entry
        page.has_large = True
        blob_id = b"k" + _digest(key, "")
        self._store.put(blob_id, blob)
        return Ext(LARGE_KEY, blob_id)

    def _grow(self) -> None:
        wanted = self.bytes // PAGE_BYTES + 1
        touched: set[int] = set()
        while self.count < wanted:
            low, high = self.count - self._level, self.count
            page = self._loaded.get(low) or self._load(low)
            new = self._loaded[high] = Page({}, 0, page.has_large)
            self.count += 1
            self._aim()
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


def keys_of_page(pages: Pages, blob_id: bytes) -> Iterator[tuple[bytes | None, Entry]]:
    """Yield each key of the page that lies in a blob, with its entry."""
    return pages.scan_page(int.from_bytes(blob_id[1:], "big"))


def _page_id(number: int) -> bytes:
    return b"p" + number.to_bytes(4, "big")


def _digest(key: bytes | None, name: str | bytes) -> bytes:
    return blake2b(_encode((key, name)), digest_size=16).digest()


def value_size(value: Any) -> int:
    """Return about how many bytes a stored value takes, where it may be large."""
    kind = type(value)
    if kind is Ext:
        return len(value.data)
    # A character takes one to four bytes; the bound is exact enough for a threshold.
    return len(value) if kind is bytes or kind is str else 0


def _references(entries: dict[bytes | None, Any]) -> Iterator[bytes]:
    for entry in entries.values():
        if type(entry) is Ext:
            yield bytes(entry.data)
        else:
            for value in entry.values():
                if type(value) is Ext and value.code == LARGE_VALUE:
                    yield bytes(value.data)


def _read(blob: bytes, what: str) -> Any:
    if blob and blob[0] != FORMAT:
        msg = (
            f"a {what} of the state has format {blob[0]}; this version of Millpond reads format "
            f"{FORMAT}.\nFix: run the version that wrote it, or a newer one."
        )
        raise StateError(msg)
    try:
        return _decode(memoryview(blob)[1:])
    except (msgspec.DecodeError, ValueError) as error:
        msg = f"a {what} of the state is damaged: {error}."
        raise DamagedStateError(msg + _REPAIR) from error
