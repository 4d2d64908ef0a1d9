"""Small JSON documents on disk, with a checksum that tells when one was cut or changed.

Takes the content of a document; gives the bytes to write. Takes what is in a file; gives the
content, or a ValueError, whatever the bytes are.
"""

from __future__ import annotations

import json
import zlib
from math import isinf
from typing import Any

__all__ = ["is_json", "parsed", "sealed", "unsealed"]


def sealed(content: dict[str, Any], indent: int | None = None) -> bytes:
    """Return a document with its checksum."""
    return json.dumps({**content, "crc": _crc(content)}, indent=indent).encode()


def unsealed(text: str | bytes | None) -> dict[str, Any]:
    """Return the content of a document; one of an older version may have no checksum.

    Raises:
        ValueError: it is not a document, or not the one that was written.
    """
    content = parsed(text)
    if not isinstance(content, dict):
        msg = "it is empty" if not text else "it is no JSON object"
        raise ValueError(msg)
    crc = content.pop("crc", None)
    if crc is not None and crc != _crc(content):
        msg = "its checksum does not fit"
        raise ValueError(msg)
    return content


def parsed(text: str | bytes | None) -> Any:
    """Return what a JSON text says; None where there is none.

    Raises:
        ValueError: it is no JSON. Values that `json` takes and that nobody wrote are refused, too:
            lists in lists without end, numbers that no float holds.
    """
    try:
        return json.loads(text, parse_float=_finite) if text else None
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def is_json(text: str) -> bool:
    """Tell whether a text is JSON, or empty."""
    try:
        parsed(text)
    except ValueError:
        return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        msg = f"{text[:20]} is too large"
        raise ValueError(msg)
    return number


def _crc(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
