"""`commits/<batch>`: written when a batch is done.

Relies on: a first line `v1` or `v2`, then JSON, which names the state files of the batch. Without
    the file the batch counts as not done, and Spark runs it again with the same offsets.
For Spark 4.4: `CommitLog` and `CommitMetadata`. `CommitMetadataV3` is in 4.3 already; it is written
    where sources or sinks have names (`queryEvolution`), which is held at false.
"""

from __future__ import annotations

from millpond.documents import is_json

__all__ = ["FOLDER", "VERSIONS", "is_whole"]

FOLDER, VERSIONS = "commits", ("v1", "v2")


def is_whole(text: str) -> bool:
    """Tell whether a text is what Spark writes about a batch that is done."""
    return is_json(text.partition("\n")[2])
