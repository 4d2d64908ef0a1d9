"""`metadata`: the id of a query. Nothing depends on which one it is.

Relies on: one line of JSON, `{"id": "<uuid>"}`, without a version before it.
For Spark 4.4: `StreamMetadata`.
"""

from __future__ import annotations

import json
from uuid import uuid4

from millpond.documents import is_json as is_whole

__all__ = ["FILE", "is_whole", "new_id"]

FILE = "metadata"


def new_id() -> bytes:
    """Return the file of a new query."""
    return json.dumps({"id": str(uuid4())}).encode()
