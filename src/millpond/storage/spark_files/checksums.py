"""`.<name>.crc` and `<name>.crc`: the checksums beside the files of a checkpoint.

Relies on: Hadoop's, on a local disk: `crc` and a zero byte, the size of a piece in four bytes, then
    a CRC32 for each piece. Spark's, in every store, for files of state: JSON with `mainFileSize`
    and `value`, a CRC32C with its sign. Both lie beside the file.
For Spark 4.4: `ChecksumCheckpointFileManager` (the algorithm is not written down in the file), and
    Hadoop's `ChecksumFileSystem`. `spark.sql.streaming.checkpoint.fileChecksum.enabled` is held at
    true.
"""

from __future__ import annotations

import zlib

from millpond.documents import parsed
from millpond.storage.files import Location

__all__ = ["checksum_fits", "sums_of"]


def sums_of(file: Location) -> tuple[Location, Location]:
    """Return where checksums of a file may lie.

    On a disk Hadoop puts some beside every file; elsewhere there are those of Spark, which it has
    for the files of state.
    """
    return file.beside(f".{file.name}.crc"), file.beside(f"{file.name}.crc")


def checksum_fits(file: Location) -> bool:
    """Tell whether a file is as it was written, by the checksums that lie beside it."""
    of_hadoop, of_spark = sums_of(file)
    sums = of_hadoop.read()
    if sums is None:
        return _fits_spark(file, of_spark.text())
    data = file.read()
    if data is None or sums[:4] != b"crc\x00":
        return False
    step = int.from_bytes(sums[4:8], "big")
    pieces = [data[low : low + step] for low in range(0, len(data), step)] if step else []
    return sums[8:] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)


def _fits_spark(file: Location, written: str | None) -> bool:
    """Tell whether a file is what Spark wrote down when it made it."""
    if written is None:
        return True
    try:
        about = parsed(written)
        size, found = file.measured()
        return size == about["mainFileSize"] and found in (None, about["value"] & 0xFFFFFFFF)
    except (ValueError, KeyError, TypeError):
        return False
