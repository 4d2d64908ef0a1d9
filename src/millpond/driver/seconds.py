"""Times that are seconds where milliseconds are expected.

Takes the largest timestamp that a batch saw at a place where time is read, and warns once for each
source. As milliseconds, seconds of our days are in January and February 1970.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

__all__ = ["log_seconds"]

logger = logging.getLogger("millpond")

# From 2001 to 2096, in seconds.
_EARLIEST, _LATEST = 1_000_000_000, 4_000_000_000


def log_seconds(name: str, sources: Collection[str], timestamp: int, warned: set[str]) -> None:
    """Warn if a timestamp looks like seconds.

    Args:
        name: The place where time is read: a source, or a step that sets it.
        sources: The sources whose records pass it.
        timestamp: The largest timestamp of a batch.
        warned: The sources that were warned of already; those in hand are added.
    """
    if _EARLIEST <= timestamp < _LATEST and not warned.issuperset(sources):
        warned.update(sources)
        logger.warning(
            "times of %r look like seconds, not milliseconds: %s ms is in January or February "
            "1970, and so are the windows.\nFix: give milliseconds, int(seconds * 1000): from the "
            "timestamp_extractor, from set_timestamp, or with watermark(on=...).",
            *(name, timestamp),
        )
