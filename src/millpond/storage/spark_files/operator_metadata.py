"""`state/<operator>/_metadata/v2/<batch>` and `_stateSchema`: what a stateful operator is.

Relies on: a first line `v2`, then JSON that names the file of the schema by its whole path. A
    description is written at the first batch, and where it changes; it depends only on the number
    of operators and the schema of their state, so it can be copied from another checkpoint.
For Spark 4.4: `OperatorStateMetadataV2` and `StateSchemaV3File`;
    `spark.sql.streaming.transformWithState.stateSchemaVersion` is held at 3.
"""

from __future__ import annotations

import re

from millpond.documents import is_json
from millpond.storage.files import Location

__all__ = [
    "FOLDER",
    "SCHEMAS",
    "VERSION",
    "VERSIONS",
    "folder_of",
    "is_description",
    "is_shape",
    "is_whole",
    "relocated",
    "schemas_in",
]

FOLDER, SCHEMAS = "_metadata", "_stateSchema"

VERSION, VERSIONS = "v2", ("v2",)

OTHERS = ("v1",)
"""Folders of other versions that Spark 4.3 makes beside that of its own."""


def folder_of(operator: Location) -> Location:
    """Return where the descriptions of an operator are."""
    return operator / FOLDER / VERSION


def is_description(relative: str) -> bool:
    """Tell whether a file of a checkpoint, or its checksum, belongs to a description."""
    return f"/{FOLDER}/" in f"/{relative}"


def is_shape(relative: str) -> bool:
    """Tell whether a file of a checkpoint describes an operator or the schema of its state."""
    return f"/{FOLDER}/{VERSION}/" in relative or f"/{SCHEMAS}/" in relative


def is_whole(text: str) -> bool:
    """Tell whether a text is what Spark writes about an operator."""
    return is_json(text.partition("\n")[2])


def schemas_in(text: str) -> list[str]:
    """Return the files of the schema that a description names, below `_stateSchema`."""
    return re.findall(rf"/{SCHEMAS}/([^\"]*)", text)


def relocated(text: str, folder: Location) -> str:
    """Return the description of an operator with its schema file in another checkpoint."""
    home = folder.path if not folder.is_local else f"file:{folder.path}"
    return re.sub(rf'"[^"]*?(/state/\d+/{SCHEMAS}/[^"]*)"', rf'"{home}\1"', text)
