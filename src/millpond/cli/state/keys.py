"""What a key or a value on the command line may mean: text, or the JSON that it reads like."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from millpond import admin
from millpond.errors import ConfigError

__all__ = ["by_key", "key_of", "value_of"]


def _keys(text: str) -> list[Any]:
    """Return what a key on the command line may mean: text, or the value that it reads like."""
    with suppress(ValueError):
        value = json.loads(text)
        return [text, value] if not isinstance(value, str) else [value, text]
    return [text]


def key_of(opened: admin.Admin, text: str, store: str | None) -> Any:
    """Return the key that there is; where there is none yet, the first that there could be."""
    possible = []
    for key in _keys(text):
        with suppress(ConfigError):
            if opened.items(key, store):
                return key
            possible.append(key)
    return possible[0] if possible else text


def by_key(text: str, find: Callable[[Any], Any]) -> Any:
    """Look for a key as text; where there is none, as the number or value that it reads like."""
    keys = _keys(text)
    error: ConfigError | None = None
    found: Any = None
    for key in keys:
        try:
            found = find(key)
        except ConfigError as other:
            error = other
            continue
        if found:
            return found
    if found is None and error is not None:
        raise error
    return found


def value_of(text: str) -> Any:
    """Return the value that a text reads like, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
