"""Where the bytes of one key group are kept.

`Store` is what pages need: blobs by id. `MemoryStore` is the one of tests and of the local
engine; `spark.pipe.SparkStore` is the one of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

__all__ = ["MemoryStore", "Store"]


class Store(Protocol):
    """Blobs by id, for one key group."""

    def fetch(self, blob_ids: Sequence[bytes]) -> None:
        """Hear which blobs will be asked for next, each once."""

    def get(self, blob_id: bytes) -> bytes | None:
        """Return the blob, or None."""

    def put(self, blob_id: bytes, blob: bytes) -> None:
        """Keep the blob under the id, replacing what was there."""

    def delete(self, blob_id: bytes) -> None:
        """Forget the blob; no error where there is none."""


class MemoryStore:
    """A dict of blobs that counts what is asked of it.

    >>> store = MemoryStore()
    >>> store.put(b"p0", b"page")
    >>> store.get(b"p0"), store.get(b"p1")
    (b'page', None)
    """

    def __init__(self, blobs: dict[bytes, bytes] | None = None) -> None:
        self.blobs = dict(blobs or {})
        self.reads = 0
        self.writes = 0

    def fetch(self, blob_ids: Sequence[bytes]) -> None:
        pass

    def get(self, blob_id: bytes) -> bytes | None:
        self.reads += 1
        return self.blobs.get(blob_id)

    def put(self, blob_id: bytes, blob: bytes) -> None:
        self.writes += 1
        self.blobs[blob_id] = bytes(blob)

    def delete(self, blob_id: bytes) -> None:
        self.writes += 1
        self.blobs.pop(blob_id, None)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.blobs.items())

    def copy(self) -> MemoryStore:
        """Return a store with the same blobs; changes to one do not show in the other."""
        return MemoryStore(self.blobs)
