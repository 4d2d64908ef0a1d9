"""What all blobs of state have in common: how they are written, read and divided into pages.

Takes values of MessagePack, gives bytes that start with a version. `layout` has the pages of a key
group, `names` those of one key that has very many names.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from millpond.errors import DamagedStateError, StateError

__all__ = [
    "CONTAINER",
    "EXPIRING",
    "FORMAT",
    "LARGE_KEY",
    "LARGE_VALUE",
    "MANY_NAMES",
    "VERSION",
    "digest",
    "encode",
    "hash_key",
    "next_split",
    "page_number",
    "read",
    "value_size",
]

# The version byte of every blob. A change of layout raises it and keeps the old reader: 1 had all
# the names of a large key in one blob.
FORMAT = 2
VERSION = bytes([FORMAT])

# Extension types of values at the level of an entry; the codec's own types lie inside CONTAINER.
# EXPIRING is eight bytes of a moment, four that tell the clock it goes by, then the value.
# LARGE_KEY, all the names of a key in one blob, is of format 1.
CONTAINER, LARGE_VALUE, LARGE_KEY, EXPIRING, MANY_NAMES = 1, 2, 3, 4, 5

REPAIR = "\nFix: millpond state repair APP.py goes back to the last batch that is whole."

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


def read(blob: bytes, what: str) -> Any:
    """Return what is written in a blob."""
    if blob and not 1 <= blob[0] <= FORMAT:
        msg = (
            f"a {what} of the state has format {blob[0]}; this version of Millpond reads formats "
            f"up to {FORMAT}.\nFix: run the version that wrote it, or a newer one."
        )
        raise StateError(msg)
    try:
        return decode(memoryview(blob)[1:])
    except (msgspec.DecodeError, ValueError) as error:
        msg = f"a {what} of the state is damaged: {error}."
        raise DamagedStateError(msg + REPAIR) from error


def hash_key(key: bytes | None) -> int:
    """Return the hash that decides key group and page. Stable forever: state depends on it."""
    return crc32(key) if key is not None else 0


def page_number(hashed: int, count: int) -> int:
    """Return the page of a hash among so many (linear hashing: one more page splits one)."""
    level = _level(count)
    number = hashed & (2 * level - 1)
    return number if number < count else hashed & (level - 1)


def next_split(count: int) -> int:
    """Return the page that is split when so many pages become one more."""
    return count - _level(count)


def _level(count: int) -> int:
    return 1 << (count.bit_length() - 1)


def digest(key: bytes | None, name: str | bytes) -> bytes:
    """Return what stands for a name of a key, or for a key, in the id of a blob."""
    return blake2b(encode((key, name)), digest_size=16).digest()


def value_size(value: Any) -> int:
    """Return about how many bytes a stored value takes, where it may be large."""
    kind = type(value)
    if kind is Ext:
        return len(value.data)
    # A character takes one to four bytes; the bound is exact enough for a threshold.
    return len(value) if kind is bytes or kind is str else 0
