"""Records that are set aside: as they entered the stage, with what happened in their headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.connectors.file_rows import RowError
from millpond.errors import Failure
from millpond.wire.dead_letters import with_facts
from millpond.wire.headers import decode_headers
from millpond.wire.packed_rows import HEADERS, PATH, records_schema
from millpond.worker.changed_fields import as_json, plain_key
from millpond.worker.entry import Entry

__all__ = ["DeadLetters"]


class DeadLetters:
    """Records on which a step failed, as they entered the stage, with what happened in headers."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was set aside."""
        self._rows: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes | None] = []
        self._recent = 0

    def __len__(self) -> int:
        return len(self._rows)

    def recent_bytes(self) -> int:
        """Return how many bytes were added since this was asked last."""
        recent, self._recent = self._recent, 0
        return recent

    def add(
        self,
        row: int,
        record: pa.RecordBatch,
        entry: Entry,
        failure: Failure,
        *,
        is_record: bool = True,
    ) -> None:
        """Put a record aside: a producer's bytes as they are, anything else as JSON.

        A timer that failed before a record has the record's key, and no value.
        """
        value, key = (record.column(name)[0].as_py() for name in ("value", "key"))
        value = value if is_record else None
        if value is not None and not entry.is_raw_value:
            value = _readable(value, entry.decode_value, as_json)
        if key is not None and not entry.is_raw_key:
            key = _readable(key, entry.decode_key, plain_key)
        self._rows.append(row)
        self._values.append(value)
        self._keys.append(key)
        own = None
        if "headers" in record.schema.names:
            own = decode_headers(record.column("headers")[0].as_py())
        headers = with_facts(own, failure)
        self._headers.append(headers)
        self._recent += sum(len(part or b"") for part in (key, value, headers))

    def take(self, entered: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the dead letters, and begin again."""
        kept = [n for n in entered.schema.names if n not in ("key", "value", "headers")]
        taken = entered.select(kept).take(pa.array(self._rows, pa.int64()))
        found = {name: taken.column(name) for name in kept}
        found["key"] = pa.array(self._keys, pa.binary())
        found["value"] = pa.array(self._values, pa.binary())
        found["headers"] = pa.array(self._headers, pa.binary())
        flags = HEADERS | (PATH if "path" in found else 0)
        schema = records_schema(flags)
        self.clear()
        return pa.RecordBatch.from_arrays([found[n] for n in schema.names], schema=schema), flags


def _readable(data: bytes, decode: Callable[[bytes], Any], write: Callable[[Any], Any]) -> Any:
    """Return a field for people; bytes that cannot be read stay as they are."""
    try:
        return write(decode(data))
    except RowError as error:
        return error.row
    except Exception:
        return data
