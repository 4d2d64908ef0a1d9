"""The names of one key that has very many of them, in pages of their own.

Takes a `Store` and what the key's page keeps of it (a head), is the entry of the key: a mapping of
names to stored values, in the order in which they were first set. A page of names is read when one
of its names is asked for, so reading one name of a million does not read them all, and writing one
writes one page.

Blobs: `n` + digest of the key + number, each {name: [place in the order, value]}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NamedTuple
from zlib import crc32

from msgspec.msgpack import Ext

from millpond.errors import DamagedStateError
from millpond.state.blobs import (
    LARGE_VALUE,
    MANY_NAMES,
    REPAIR,
    VERSION,
    decode,
    digest,
    encode,
    next_split,
    page_number,
    read,
)
from millpond.state.store import Store

__all__ = ["Names", "Taken"]

Spill = Callable[[str | bytes, Any], Any]
"""Gives a large value a blob of its own and returns the reference; other values as they are."""


class Taken(NamedTuple):
    """A value that was removed, and its place in the order."""

    place: int
    value: Any


class _Page:
    """Some of the names."""

    __slots__ = ("is_changed", "large_before", "names", "size")

    def __init__(self, names: dict[str | bytes, list[Any]], size: int) -> None:
        self.names = names
        self.size = size
        self.is_changed = False
        self.large_before = set(_references(names))


class Names(MutableMapping[str | bytes, Any]):
    """The names of one key; see the module.

    Args:
        store: Where the blobs are.
        key: Whose names they are.
        spill: What gives large values blobs of their own.
        page_bytes: How many bytes a page of names has on average.
        head: What `flush` returned; None: there are no names yet.
    """

    def __init__(
        self, store: Store, key: bytes | None, spill: Spill, page_bytes: int, head: Ext | None
    ) -> None:
        self._store = store
        self._id = b"n" + digest(key, "")
        self._spill = spill
        self._page_bytes = page_bytes
        self._loaded: dict[int, _Page] = {}
        found = (1, 0, 0, 0, 0) if head is None else decode(head.data)
        self._pages: int
        self._length: int
        self._next: int
        self._changes: int
        self.size: int
        """Bytes of all pages."""
        self._pages, self.size, self._length, self._next, self._changes = found

    def fill(self, entry: dict[str | bytes, Any], size: int) -> None:
        """Take the names of a key that had few until now."""
        self._pages = size // self._page_bytes + 1
        self._loaded = {number: _Page({}, 0) for number in range(self._pages)}
        for page in self._loaded.values():
            page.is_changed = True  # an empty page is written, too: one that is missing is damage
        for name, value in entry.items():
            self[name] = value

    # --- a mapping ----------------------------------------------------------------------------

    def _page_of(self, name: str | bytes) -> _Page:
        number = self._number_of(name)
        return self._loaded.get(number) or self._load(number)

    def _number_of(self, name: str | bytes) -> int:
        return page_number(crc32(name if type(name) is bytes else name.encode()), self._pages)  # type: ignore[union-attr]

    def __getitem__(self, name: str | bytes) -> Any:
        return self._page_of(name).names[name][1]

    def get(self, name: str | bytes, default: Any = None) -> Any:
        found = self._page_of(name).names.get(name)
        return default if found is None else found[1]

    def __contains__(self, name: object) -> bool:
        return name in self._page_of(name).names  # type: ignore[arg-type]

    def __setitem__(self, name: str | bytes, value: Any) -> None:
        page = self._page_of(name)
        found = page.names.get(name)
        if found is None:
            page.names[name] = [self._next, value]
            self._next += 1
            self._length += 1
        else:
            found[1] = value
        page.is_changed = True

    def __delitem__(self, name: str | bytes) -> None:
        self.take(name)

    def take(self, name: str | bytes) -> Taken:
        """Remove a name; return what `give_back` takes."""
        page = self._page_of(name)
        taken = Taken(*page.names.pop(name))
        page.is_changed = True
        self._length -= 1
        return taken

    def give_back(self, name: str | bytes, taken: Taken) -> None:
        """Put a name back in its place of the order."""
        page = self._page_of(name)
        self._length += name not in page.names
        page.names[name] = list(taken)
        page.is_changed = True

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str | bytes]:
        return iter(self._in_order())

    def items(self) -> Any:
        return self._in_order().items()

    def _in_order(self) -> dict[str | bytes, Any]:
        """Return all names, in the order in which they were first set."""
        missing = [number for number in range(self._pages) if number not in self._loaded]
        self._store.fetch([self._blob_id(number) for number in missing])
        for number in missing:
            self._load(number)
        every = [item for page in self._loaded.values() for item in page.names.items()]
        if len(every) != self._length:
            msg = f"a key has {self._length} names, and {len(every)} of them are in the state."
            raise DamagedStateError(msg + REPAIR)
        every.sort(key=_place)
        return {name: value for name, (_, value) in every}

    # --- pages --------------------------------------------------------------------------------

    def _blob_id(self, number: int) -> bytes:
        return self._id + number.to_bytes(4, "big")

    def _load(self, number: int) -> _Page:
        blob_id = self._blob_id(number)
        blob = self._store.get(blob_id)
        if blob is None:
            msg = f"names of a key are missing from the state (blob {blob_id.hex()})."
            raise DamagedStateError(msg + REPAIR)
        page = self._loaded[number] = _Page(read(blob, "page of names"), len(blob))
        return page

    def flush(self, small: int) -> Ext | dict[str | bytes, Any]:
        """Write what changed; return what the key's page keeps.

        That is the names themselves, and no blob is left, where they take less than `small` bytes.
        """
        changed = [n for n, page in self._loaded.items() if page.is_changed]
        for number in changed:
            self._save(number, self._loaded[number])
        if self.size - self._pages * len(_EMPTY) < small:
            entry = self._in_order()
            for number in range(self._pages):
                self._store.delete(self._blob_id(number))
            return entry
        self._grow()
        # Counted, so that the key's page differs too: whoever follows changes looks at key pages.
        self._changes += bool(changed)
        head = (self._pages, self.size, self._length, self._next, self._changes)
        return Ext(MANY_NAMES, encode(head))

    def _save(self, number: int, page: _Page) -> None:
        for name, found in page.names.items():
            found[1] = self._spill(name, found[1])
        references = set(_references(page.names))
        for gone in page.large_before - references:
            self._store.delete(gone)
        blob = VERSION + encode(page.names)
        self._store.put(self._blob_id(number), blob)
        self.size += len(blob) - page.size
        page.size, page.large_before, page.is_changed = len(blob), references, False

    def _grow(self) -> None:
        touched: set[int] = set()
        while self._pages < self.size // self._page_bytes + 1:
            number = next_split(self._pages)
            page = self._loaded.get(number) or self._load(number)
            new = self._loaded[self._pages] = _Page({}, 0)
            touched |= {number, self._pages}
            self._pages += 1
            names, page.names = page.names, {}
            for name, found in names.items():
                (page if self._number_of(name) == number else new).names[name] = found
            # Blobs of large values follow their names; neither side may delete the other's.
            new.large_before = set(_references(new.names))
            page.large_before -= new.large_before
        for number in sorted(touched):
            self._save(number, self._loaded[number])


_EMPTY = VERSION + encode({})


def _place(item: tuple[str | bytes, list[Any]]) -> int:
    return item[1][0]  # type: ignore[no-any-return]


def _references(names: dict[str | bytes, list[Any]]) -> Iterator[bytes]:
    for _, value in names.values():
        if type(value) is Ext and value.code == LARGE_VALUE:
            yield bytes(value.data)
