"""The formats of documents on disk, by number: one that is not known is refused, never damaged."""

from __future__ import annotations

from typing import Any

from millpond.errors import StateError

__all__ = ["check_format"]


def check_format(content: dict[str, Any], known: int, file: object) -> None:
    """Refuse a document that a newer version wrote; one without a number is of the first format."""
    if content.get("format", 1) > known:
        msg = (
            f"{file} has format {content['format']}; this version of Millpond reads up to "
            f"{known}.\nFix: run the version that wrote it, or a newer one."
        )
        raise StateError(msg)
