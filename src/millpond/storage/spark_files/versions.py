"""The first line of a file says in which version of its format it is.

Relies on: `v1`, `v2` and so on, alone on the line. Each kind of file knows its own `VERSIONS`.
For Spark 4.4: `MetadataVersionUtil`.
"""

from __future__ import annotations

import re

from millpond.errors import UnsupportedCheckpointError
from millpond.storage.files import Location
from millpond.storage.spark_files.checksums import checksum_fits

__all__ = ["check_version", "unsupported"]


def check_version(file: Location, known: tuple[str, ...], text: str) -> None:
    """Refuse a file that is whole, and of a version that is not known here."""
    version = text.partition("\n")[0]
    is_version = re.fullmatch(r"v\d+", version) is not None
    if is_version and version not in known and checksum_fits(file):
        raise unsupported(file, version)


def unsupported(file: Location, version: str) -> UnsupportedCheckpointError:
    """Return the error for a file that another version of Spark wrote."""
    msg = (
        f"{file} is in the form {version}, which Spark 4.3 does not write with the settings of "
        "Millpond. Another version of Spark or Millpond wrote it; it is not damaged.\n"
        "Fix: run the application with the versions of pyspark and millpond that wrote it."
    )
    return UnsupportedCheckpointError(msg)
