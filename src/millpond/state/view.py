"""What a user's function sees: the state of one key.

Takes the pages of a key group; the loop binds one `State` per store to each record's key in
turn. Values go in and come out as copies. Writes of the current record can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec.msgpack import Ext

from millpond.errors import ValueTypeError, shown
from millpond.state.codec import Codec
from millpond.state.layout import CONTAINER, LARGE_BYTES, LARGE_VALUE, Entry, Page, Pages
from millpond.state.store import Store

__all__ = ["DEFAULT_STORE", "KeyScope", "Place", "State", "StateItem", "scan_items"]

DEFAULT_STORE = "default"

# Names of other stores, and names of the default store that begin with this mark, are written
# as mark + store + mark + name. So the common case costs nothing. Names that are not text are
# their encoding; there the store goes before it, after a byte no encoding begins with.
_MARK = "\x1f"
_BYTE_MARK = b"\xc1"
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MISSING = object()

# Names whose stored form is remembered; the number only bounds memory.
_REMEMBERED = 1_000


class Place:
    """Where the state of one key lies: its page, and its entry once it has one."""

    __slots__ = ("entry", "key", "page")

    def __init__(self, key: bytes | None, page: Page, entry: Entry | None) -> None:
        self.key = key
        self.page = page
        self.entry = entry


class KeyScope:
    """The key whose state is in view, shared by the states of all stores of a stage."""

    __slots__ = ("codec", "journal", "pages", "place", "places")

    def __init__(self, codec: Codec, *, undo: bool) -> None:
        self.codec = codec
        self.pages: Pages
        self.place: Place
        """The place in view; the loop over records sets it."""
        self.places: dict[bytes | None, Place] = {}
        self.journal: list[tuple[Entry, Any, Any]] | None = [] if undo else None
        """(entry, name, value before); for a delete all names, because their order counts."""

    def open(self, pages: Pages) -> None:
        """Look at another group, or at the same one after its pages were written."""
        self.pages = pages
        self.places = {}

    def find(self, key: bytes | None) -> Place:
        """Return the place of a key that `places` does not know yet."""
        page = self.pages.page_of(key)
        place = self.places[key] = Place(key, page, self.pages.entry(page, key))
        return place

    def bind(self, key: bytes | None) -> None:
        """Bring the state of a key into view."""
        self.place = self.places.get(key) or self.find(key)

    def put(self, name: str | bytes, value: Any) -> None:
        place = self.place
        entry = place.entry
        if entry is None:
            entry = place.entry = place.page.entries[place.key] = {}
        if self.journal is not None:
            self.journal.append((entry, name, entry.get(name, _MISSING)))
        entry[name] = value
        place.page.is_changed = True

    def remove(self, name: str | bytes) -> None:
        entry = self.place.entry
        if entry is not None and name in entry:
            if self.journal is not None:
                self.journal.append((entry, tuple(entry), entry[name]))
            del entry[name]
            self.place.page.is_changed = True

    def undo(self) -> None:
        """Take back every write since `keep`, newest first."""
        while self.journal:
            entry, name, before = self.journal.pop()
            if type(name) is tuple:  # names as they were before one was deleted
                entry.update({other: entry.pop(other, before) for other in name})
            elif before is _MISSING:
                entry.pop(name, None)
            else:
                entry[name] = before

    def keep(self) -> None:
        """Make the writes of the record final."""
        if self.journal:
            self.journal.clear()


class State:
    """The state of the current record's key: names and values.

    Values go in and come out as copies: changing one without `set` changes nothing.
    """

    __slots__ = ("_byte_prefix", "_names", "_prefix", "_scope")

    def __init__(self, scope: KeyScope, store: str = DEFAULT_STORE) -> None:
        self._scope = scope
        self._names: dict[str, str] = {}
        is_default = store == DEFAULT_STORE
        self._prefix = "" if is_default else f"{_MARK}{store}{_MARK}"
        self._byte_prefix = b"" if is_default else _BYTE_MARK + f"{store}{_MARK}".encode()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value kept under a name, or the default."""
        entry = self._scope.place.entry
        if entry is None:
            return default
        name = self._names.get(key) if type(key) is str else None
        value = entry.get(name if name is not None else self._name(key), _MISSING)
        if value is _MISSING:
            return default
        return self._out(value) if type(value) is Ext else value

    def set(self, key: Any, value: Any) -> None:
        """Keep a value under a name.

        Raises:
            ValueTypeError: for a value of a type that state cannot keep; nothing has changed.
        """
        kind = type(value)
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                value = Ext(CONTAINER, self._scope.codec.encode(value))
        elif kind is not float and kind is not bool and value is not None:
            value = self._in(value)
        name: Any = self._names.get(key) if type(key) is str else None
        if name is None:
            name = self._name(key)
        scope = self._scope
        place = scope.place
        if place.entry is None or scope.journal is not None:
            scope.put(name, value)
        else:  # the common case of `put`, without the call
            place.entry[name] = value
            place.page.is_changed = True

    def delete(self, key: Any) -> None:
        """Forget a name; no error where it is not there."""
        self._scope.remove(self._name(key))

    def exists(self, key: Any) -> bool:
        """Tell whether a value is kept under a name (it may be None)."""
        entry = self._scope.place.entry
        return entry is not None and self._name(key) in entry

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the bytes kept under a name, or the default."""
        value = self.get(key, default)
        if value is not None and type(value) is not bytes:
            msg = (
                f"get_bytes({key!r}) found a value of type {type(value).__name__}.\n"
                "Fix: read it with get(), or write it with set_bytes()."
            )
            raise ValueTypeError(msg)
        return value

    def set_bytes(self, key: Any, value: bytes) -> None:
        """Keep bytes under a name, as they are."""
        if type(value) is not bytes:
            msg = f"set_bytes() takes bytes, got {shown(value)}.\nFix: use set() for other types."
            raise ValueTypeError(msg)
        self.set(key, value)

    def keys(self) -> list[Any]:
        """Return the names this store keeps for the key, in the order they were first set."""
        names = [self._own_name(name) for name in self._scope.place.entry or ()]
        return [name for name in names if name is not _MISSING]

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.exists(key):
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: Any) -> bool:
        return self.exists(key)

    def __iter__(self) -> Any:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"State({ {name: shown(self.get(name)) for name in self.keys()} })"

    def _out(self, value: Ext) -> Any:
        if value.code == LARGE_VALUE:
            stored = self._scope.pages.large_value(value)
            return self._out(stored) if type(stored) is Ext else stored
        return self._scope.codec.decode(bytes(value.data))

    def _in(self, value: Any) -> Any:
        """Return the stored form of a value: text and bytes as they are, the rest encoded."""
        if type(value) is bytes:
            size = len(value)
        elif type(value) is str:
            size = len(value) if value.isascii() else len(self._scope.codec.encode(value))
        else:
            value = Ext(CONTAINER, self._scope.codec.encode(value))
            size = len(value.data)
        if size > LARGE_BYTES:
            # The page exists before the entry does, so the mark is never lost.
            self._scope.place.page.has_large = True
        return value

    def _name(self, key: Any) -> str | bytes:
        """Return the stored form of a name; those of text are remembered."""
        if type(key) is not str:
            # A number or a tuple is its encoding, so 1, True and "1" stay apart.
            return self._byte_prefix + self._scope.codec.encode(key)
        if not key.isascii():
            self._scope.codec.encode(key)
        name = self._prefix + key
        if not self._prefix and key[:1] == _MARK:
            name = f"{_MARK}{_MARK}{key}"
        if len(self._names) < _REMEMBERED:
            self._names[key] = name
        return name

    def _own_name(self, name: str | bytes) -> Any:
        if isinstance(name, bytes):
            is_own = name.startswith(self._byte_prefix or _BYTE_MARK) is bool(self._byte_prefix)
            return self._scope.codec.decode(name[len(self._byte_prefix) :]) if is_own else _MISSING
        if self._prefix:
            return name[len(self._prefix) :] if name.startswith(self._prefix) else _MISSING
        if name[:1] != _MARK:
            return name
        return name[2:] if name[:2] == _MARK + _MARK else _MISSING


class StateItem(NamedTuple):
    """One value of state, and where it lies."""

    scope: str
    key: Any
    store: str
    name: Any
    value: Any


def scan_items(
    store: Store, scope: str, groups: int, codec: Codec, decode_key: Callable[[bytes], Any]
) -> Iterator[StateItem]:
    """Yield every value that a key group's store holds."""
    pages = Pages(store, codec, groups)
    view = KeyScope(codec, undo=False)
    view.open(pages)
    for key, entry in pages.scan():
        view.bind(key)
        shown_key = None if key is None else decode_key(key)
        for name in dict.fromkeys(map(_store_of, entry)):
            state = State(view, name)
            for item in state.keys():  # noqa: SIM118 - not a dict
                yield StateItem(scope, shown_key, name, item, state.get(item))


def _store_of(name: str | bytes) -> str:
    if isinstance(name, bytes):
        is_marked = name[:1] == _BYTE_MARK
        return name[1:].partition(_MARK.encode())[0].decode() if is_marked else DEFAULT_STORE
    if name[:1] != _MARK:
        return DEFAULT_STORE
    return name[1:].partition(_MARK)[0] or DEFAULT_STORE
