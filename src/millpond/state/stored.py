"""How names and values of a key are stored in its entry.

An entry is a dict of a page. It has the names of all stores of the key, the timers, the moments it
is registered for, and the versions of its values. This module alone knows how they differ,
and how a value that expires has its end with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.msgpack import Ext

from millpond.state.blobs import CONTAINER, EXPIRING, LARGE_VALUE
from millpond.state.codec import Codec
from millpond.state.layout import Entry, Pages
from millpond.state.timers import Timer

__all__ = [
    "DEFAULT_STORE",
    "INT_MAX",
    "INT_MIN",
    "TIMERS",
    "TIMER_AT",
    "StoreNames",
    "StoredItem",
    "expiring",
    "expiry_of",
    "is_atom",
    "is_version",
    "kept_value",
    "name_bytes",
    "pack_timers",
    "replaced",
    "store_of",
    "stored_items",
    "stored_name",
    "stored_timers",
    "stored_value",
    "tag_of",
    "unpack_timers",
    "version_name",
]

DEFAULT_STORE = "default"

# Names of other stores, and names of the default store that begin with this mark, are written
# as mark + store + mark + name. So the common case costs nothing. Names that are not text are
# their encoding; there the store goes before it, after a byte no encoding begins with.
_MARK = "\x1f"

# Names that belong to no store, so they have one mark only: the timers of a key, for each clock the
# moment of its timer, and for each store the version of its values.
TIMERS = _MARK + "t"
TIMER_AT = _MARK + "h"
_VERSION = _MARK + "m"
_BYTE_MARK = b"\xc1"

# The integers that an entry has as they are.
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

# Names whose stored form is remembered; the number only bounds memory.
_REMEMBERED = 1_000

# A value that expires: when it is gone, the tag of its clock, and the codec's form of it (bytes).
_MOMENT_END, _TAG_END = 8, 12

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


# --- values ---------------------------------------------------------------------------------


def is_atom(value: Any) -> bool:
    """Tell whether an entry has a value as it is, whatever its size."""
    kind = type(value)
    if kind is int:
        return bool(INT_MIN <= value <= INT_MAX)
    return kind is float or kind is bool or value is None


def expiring(expires: int, tag: bytes, value: Any) -> Ext:
    """Return the stored form of a value with the moment at which it is gone."""
    return Ext(EXPIRING, expires.to_bytes(_MOMENT_END, "big", signed=True) + tag + _pack(value))


def expiry_of(value: Ext) -> int:
    """Return when an expiring value is gone."""
    return int.from_bytes(memoryview(value.data)[:_MOMENT_END], "big", signed=True)


def tag_of(value: Ext) -> bytes:
    """Return the tag of the clock by which an expiring value goes."""
    return bytes(memoryview(value.data)[_MOMENT_END:_TAG_END])


def kept_value(value: Ext) -> Any:
    """Return what an expiring value is without its end."""
    return _unpack(memoryview(value.data)[_TAG_END:])


def replaced(before: Ext, value: Any) -> Ext:
    """Return another value that goes when the expiring one before would have gone."""
    return Ext(EXPIRING, bytes(memoryview(before.data)[:_TAG_END]) + _pack(value))


# --- names ----------------------------------------------------------------------------------


class StoreNames:
    """The names of one store, as an entry has them."""

    __slots__ = ("_byte_prefix", "_codec", "_prefix", "known")

    def __init__(self, store: str, codec: Codec) -> None:
        is_default = store == DEFAULT_STORE
        self._codec = codec
        self._prefix = "" if is_default else f"{_MARK}{store}{_MARK}"
        self._byte_prefix = b"" if is_default else _BYTE_MARK + f"{store}{_MARK}".encode()
        self.known: dict[str, str] = {}
        """The stored form of names of text that were asked for before."""

    def stored(self, key: Any) -> str | bytes:
        """Return the stored form of a name; those of text are remembered."""
        if type(key) is not str:
            # A number or a tuple is its encoding, so 1, True and "1" stay apart.
            return self._byte_prefix + self._codec.encode(key)
        if not key.isascii():
            self._codec.encode(key)
        name = self._prefix + key
        if not self._prefix and key[:1] == _MARK:
            name = f"{_MARK}{_MARK}{key}"
        if len(self.known) < _REMEMBERED:
            self.known[key] = name
        return name

    def own(self, name: str | bytes) -> list[Any]:
        """Return the name that a stored one is, if it is of this store; else nothing."""
        if isinstance(name, bytes):
            is_own = name.startswith(self._byte_prefix or _BYTE_MARK) is bool(self._byte_prefix)
            return [self._codec.decode(name[len(self._byte_prefix) :])] if is_own else []
        if self._prefix:
            return [name[len(self._prefix) :]] if name.startswith(self._prefix) else []
        if name[:1] != _MARK:
            return [name]
        return [name[2:]] if name[:2] == _MARK + _MARK else []


def pack_timers(timers: dict[str, dict[str, tuple[int, str]]]) -> Ext:
    """Return the stored form of the timers of a key, by the step that set them."""
    return Ext(CONTAINER, _pack(timers))


def unpack_timers(stored: Ext | None) -> dict[str, dict[str, tuple[int, str]]]:
    """Return timers from their stored form."""
    return {} if stored is None else _unpack(stored.data)


def is_version(name: str | bytes) -> bool:
    """Tell whether a name is that of a version."""
    return type(name) is str and name.startswith(_VERSION)


def version_name(store: str) -> str:
    """Return the name under which a key keeps the version of its values in a store."""
    return _VERSION + store


class StoredItem(NamedTuple):
    """One value of a key in its stored form: name and value are bytes of the codec."""

    store: str
    name: bytes
    value: bytes
    expires: int | None
    """When it is gone, in milliseconds since 1970; None: never."""


def stored_items(pages: Pages, entry: Entry) -> Iterator[StoredItem]:
    """Yield what an entry holds for its key: not what we keep there for ourselves."""
    for name, value in entry.items():
        if not _is_ours(name):
            plain_name = name_bytes(name)
            yield StoredItem(_store_of(name), plain_name, *_value_bytes(pages, value))


def stored_timers(entry: Entry) -> Iterator[tuple[str, Timer]]:
    """Yield the timers of a key, each with the step that set it."""
    for step, timers in unpack_timers(entry.get(TIMERS)).items():
        for name, (at, clock) in timers.items():
            yield step, Timer(name, at, clock)  # type: ignore[arg-type]


def name_bytes(name: str | bytes) -> bytes:
    """Return the codec's form of a name, without the store."""
    store = _store_of(name)
    if isinstance(name, bytes):
        return name if store == DEFAULT_STORE else name[len(store.encode()) + 2 :]
    if store != DEFAULT_STORE:
        return _pack(name[len(store) + 2 :])
    return _pack(name[2:] if name[:2] == _MARK + _MARK else name)


def stored_name(store: str, name: bytes) -> str | bytes:
    """Return how an entry calls a name of a store, from the codec's form of the name."""
    plain = _unpack(name)
    if type(plain) is not str:
        is_default = store == DEFAULT_STORE
        return name if is_default else _BYTE_MARK + f"{store}{_MARK}".encode() + name
    if store != DEFAULT_STORE:
        return f"{_MARK}{store}{_MARK}{plain}"
    return f"{_MARK}{_MARK}{plain}" if plain[:1] == _MARK else plain


def stored_value(value: bytes) -> Any:
    """Return how an entry keeps a value, from the codec's form of it."""
    plain = _unpack(value)
    return plain if is_atom(plain) or type(plain) in (str, bytes) else Ext(CONTAINER, value)


def store_of(name: str | bytes) -> str | None:
    """Return the store that a name of an entry belongs to; None: it is none of a store's."""
    return None if _is_ours(name) else _store_of(name)


def _value_bytes(pages: Pages, value: Any) -> tuple[bytes, int | None]:
    """Return the codec's form of a stored value, and when it expires."""
    if type(value) is not Ext:
        return _pack(value), None
    if value.code == LARGE_VALUE:
        return _value_bytes(pages, pages.large_value(value))
    if value.code == EXPIRING:
        inner, _ = _value_bytes(pages, kept_value(value))
        return inner, expiry_of(value)
    return bytes(value.data), None


def _is_ours(name: str | bytes) -> bool:
    """Tell whether a name is none of a store's: a registered moment, the timers, a version."""
    return isinstance(name, str) and name[:1] == _MARK and _MARK not in name[1:]


def _store_of(name: str | bytes) -> str:
    if isinstance(name, bytes):
        is_marked = name[:1] == _BYTE_MARK
        return name[1:].partition(_MARK.encode())[0].decode() if is_marked else DEFAULT_STORE
    if name[:1] != _MARK:
        return DEFAULT_STORE
    return name[1:].partition(_MARK)[0] or DEFAULT_STORE
