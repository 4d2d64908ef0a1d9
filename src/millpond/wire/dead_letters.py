"""Dead letters as their topic takes them.

Takes failures and records; gives the headers of dead letters, and those of outputs that a topic
refuses. Takes the dead letters of a batch and what their topic takes; gives the same records, cut
where they are too large and with another time where theirs is refused, and headers that say so.
The whole record is still where it came from.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import Failure
from millpond.record import Headers
from millpond.wire.headers import decode_headers, encode_headers
from millpond.wire.packed_rows import HEADERS, PATH, records_schema

__all__ = ["CUT", "TIME", "cut_to_fit", "letters_of", "timed_to_fit", "with_facts"]

# The headers of a dead letter that was cut, or has another time: what was left out, and the time.
CUT, TIME = "millpond.cut", "millpond.timestamp"

# The headers that say what happened and where are the last ones, in front of these two.
_FACTS = 7

# What a broker adds to a record and its batch, and room for the header CUT (bytes).
_OVERHEAD = 1024

# What it adds to each header: its lengths (bytes). None of our names is longer than this.
_PER_HEADER, _LONGEST_NAME = 10, 20


def with_facts(own: Headers | None, failure: Failure) -> bytes | None:
    """Return the headers of a dead letter: the record's own, and what happened and where."""
    facts = {
        "error": failure.error,
        "traceback": failure.traceback,
        "step": failure.step,
        "call_site": failure.call_site,
        "topic": failure.topic,
        "partition": str(failure.partition),
        "offset": str(failure.offset),
    }
    added = [(f"millpond.{name}", text.encode("utf-8", "replace")) for name, text in facts.items()]
    return encode_headers([*(own or []), *added])


def letters_of(batch: pa.RecordBatch, failures: dict[int, Failure]) -> pa.RecordBatch:
    """Return the dead letters of outputs that a topic refuses.

    Args:
        batch: Outputs of a step.
        failures: What is said of each row that is refused.
    """
    rows = pa.array(list(failures), pa.int64())
    taken = batch.take(rows)
    found = {name: taken.column(name) for name in taken.schema.names}
    packed = found["headers"].to_pylist() if "headers" in found else [None] * len(rows)
    headers = map(with_facts, map(decode_headers, packed), failures.values())
    found["headers"] = pa.array(list(headers), pa.binary())
    schema = records_schema(HEADERS | (PATH if "path" in found else 0))
    return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


def timed_to_fit(batch: pa.RecordBatch, low: int, high: int, now: int) -> pa.RecordBatch:
    """Return dead letters whose times their topic takes.

    Args:
        batch: Dead letters, with headers.
        low: The first time that the topic takes.
        high: The last one.
        now: The time of the batch, which others get.
    """
    times = batch.column("timestamp")
    if not pc.any(pc.or_(pc.less(times, low), pc.greater(times, high))).as_py():
        return batch
    moments, headers = times.to_pylist(), batch.column("headers").to_pylist()
    for row, moment in enumerate(moments):
        if not low <= moment <= high:
            own = decode_headers(headers[row]) or []
            headers[row] = encode_headers([*own, (TIME, str(moment))])
            moments[row] = min(max(now, low), high)
    found = {name: batch.column(name) for name in batch.schema.names}
    found["timestamp"] = pa.array(moments, pa.int64())
    found["headers"] = pa.array(headers, pa.binary())
    return pa.RecordBatch.from_arrays(list(found.values()), schema=batch.schema)


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
