"""Dead letters that are too large for their topic, cut so that they can be written.

Takes the dead letters of a batch and the largest record that the topic takes; gives the same
records, with a header at each that had to be cut. The whole record is still where it came from.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.connectors.headers import decode_headers, encode_headers
from millpond.record import Headers

__all__ = ["CUT", "cut_to_fit"]

# The header of a dead letter that was cut: what was left out.
CUT = "millpond.cut"

# The headers that say what happened and where are the last ones.
_FACTS = 7

# What a broker adds to a record and its batch, and room for the header CUT (bytes).
_OVERHEAD = 1024

# What it adds to each header: its lengths (bytes). None of our names is longer than this.
_PER_HEADER, _LONGEST_NAME = 10, 20


def cut_to_fit(batch: pa.RecordBatch, largest: int) -> pa.RecordBatch:
    """Return dead letters of which none is larger than a topic takes.

    Args:
        batch: Dead letters, with headers.
        largest: The bytes of the largest record.
    """
    records = batch.select(["key", "value", "headers"]).to_pylist()
    cut = [_cut(r["key"], r["value"], r["headers"], largest - _OVERHEAD) for r in records]
    if not any(cut):
        return batch
    found = {name: batch.column(name) for name in batch.schema.names}
    for place, name in enumerate(("key", "value", "headers")):
        whole = (record[name] for record in records)
        kept = [w if c is None else c[place] for w, c in zip(whole, cut, strict=True)]
        found[name] = pa.array(kept, pa.binary())
    return pa.RecordBatch.from_arrays(list(found.values()), schema=batch.schema)


def _cut(
    key: bytes | None, value: bytes | None, packed: bytes | None, room: int
) -> tuple[bytes | None, bytes | None, bytes | None] | None:
    """Return key, value and headers that fit; None where they do as they are."""
    headers = decode_headers(packed) or []
    if len(key or b"") + len(value or b"") + _size(headers) <= room:
        return None
    room, left_out = max(0, room), []
    if _size(headers) > room // 2 and len(headers) > _FACTS:
        left_out.append(f"{len(headers) - _FACTS} headers of the record")
        headers = headers[-_FACTS:]
    if _size(headers) > room // 2:
        left_out.append("parts of these headers")
        each = max(0, room // 2 // len(headers) - _LONGEST_NAME - _PER_HEADER)
        headers = [(name, (value or b"")[:each]) for name, value in headers]
    room -= _size(headers)
    if key is not None and len(key) > room // 2:
        left_out.append(f"the key from byte {room // 2} of {len(key)} on")
        key = key[: room // 2]
    room -= len(key or b"")
    if value is not None and len(value) > room:
        left_out.append(f"the value from byte {max(0, room)} of {len(value)} on")
        value = value[: max(0, room)]
    return key, value, encode_headers([*headers, (CUT, "; ".join(left_out))])


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") + _PER_HEADER for name, value in headers)
