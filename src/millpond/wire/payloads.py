"""The records of a packed row as bytes: in the row itself, or in a file that the row names.

Takes Arrow batches, gives what a row carries of them, and reads it back. Spark copies the bytes of
a row half a dozen times between a worker and the next one. Where all processes are on one machine,
records are left in a file and the row says where they lie: a batch of half a million took 1.6 s
instead of 2. The driver removes the files after each batch (`folders`). On a cluster rows
carry everything.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.wire.packed_rows import records_schema

__all__ = ["Payloads", "read_payload"]

# Fewer bytes than this are cheaper to copy than to find again.
_INLINE = 8 * 1024

# What a reference starts with; a message of Arrow starts with 0xff.
_MARK = b"@"


class Payloads:
    """Writes the payloads of one task.

    Args:
        folder: Where files may be written; None: nowhere that others could read.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file = -1
        self._name = b""
        self._end = 0

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Return a batch as one Arrow message without its schema, or where that lies."""
        message = batch.serialize()
        if self._folder is not None and message.size >= _INLINE:
            try:
                return self._to_file(message)
            except OSError:  # the disk is full, or the folder was cleaned away: rows can carry it
                self._folder = None
        return message.to_pybytes()  # type: ignore[no-any-return]

    def _to_file(self, message: pa.Buffer) -> bytes:
        if self._file < 0:
            self._file, name = tempfile.mkstemp(dir=self._folder)
            self._name, self._end = os.fsencode(name), 0
        rest, place = memoryview(message), self._end
        while rest:
            written = os.pwrite(self._file, rest, place)
            rest, place = rest[written:], place + written
        start, self._end = self._end, place
        return _MARK + b"%d,%d,%s" % (start, message.size, self._name)

    def close(self) -> None:
        """Let go of the file; to be called at the end of a task."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_payload(payload: bytes | pa.Buffer, columns: int) -> pa.RecordBatch:
    """Return the batch of a payload that has the given optional columns."""
    message: Any = pa.py_buffer(payload)
    if message.size and message[0] == _MARK[0]:
        start, size, name = message[1:].to_pybytes().split(b",", 2)
        with pa.memory_map(os.fsdecode(name)) as file:
            file.seek(int(start))
            message = file.read_buffer(int(size))
    return pa.ipc.read_record_batch(message, records_schema(columns))
