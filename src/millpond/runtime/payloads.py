"""The records of a packed row as bytes: in the row itself, or in a file that the row names.

Takes Arrow batches, gives what a row carries of them, and reads it back. Spark copies the bytes of
a row half a dozen times between a worker and the next one. Where all processes are on one machine,
records are left in a file and the row says where they lie: a batch of half a million took 1.6 s
instead of 2. The driver removes the files behind each batch. On a cluster rows carry everything.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from millpond.runtime.batch import records_schema

__all__ = ["PayloadFolder", "Payloads", "read_payload"]

# Fewer bytes than this are cheaper to copy than to find again.
_INLINE = 8 * 1024

# What a reference starts with; a message of Arrow starts with 0xff.
_MARK = b"@"


class PayloadFolder:
    """Where the payloads of one run lie. On the driver."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="millpond-rows-")

    def clear(self) -> None:
        """Remove what a batch has left; what is read of it stays readable."""
        for file in Path(self.path).iterdir():
            with suppress(FileNotFoundError):
                file.unlink()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


class Payloads:
    """Writes the payloads of one task.

    Args:
        folder: Where files may be written; None: nowhere that others could read.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._name = b""
        self._end = 0

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Return a batch as one Arrow message without its schema, or where that lies."""
        message = batch.serialize()
        if self._folder is None or message.size < _INLINE:
            return message.to_pybytes()  # type: ignore[no-any-return]
        if self._file is None:
            descriptor, name = tempfile.mkstemp(dir=self._folder)
            self._file, self._name, self._end = os.fdopen(descriptor, "wb"), os.fsencode(name), 0
        self._file.write(message)
        self._file.flush()
        start, self._end = self._end, self._end + message.size
        return _MARK + b"%d,%d,%s" % (start, message.size, self._name)

    def close(self) -> None:
        """Let go of the file; to be called at the end of a task."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_payload(payload: bytes | pa.Buffer, columns: int) -> pa.RecordBatch:
    """Return the batch of a payload that has the given optional columns."""
    message: Any = pa.py_buffer(payload)
    if message.size and message[0] == _MARK[0]:
        start, size, name = message[1:].to_pybytes().split(b",", 2)
        with pa.memory_map(os.fsdecode(name)) as file:
            file.seek(int(start))
            message = file.read_buffer(int(size))
    return pa.ipc.read_record_batch(message, records_schema(columns))
