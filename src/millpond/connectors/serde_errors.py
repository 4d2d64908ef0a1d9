"""What a serializer or a deserializer raises: the value, the reason, and a fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.connectors.registry import shorter
from millpond.errors import MillpondError, SerializationError, shown

__all__ = ["attempt", "failed", "fix_of"]


def fix_of(given: Any) -> str:
    """Return what to do about a value that does not fit its topic."""
    return "choose the (de)serializer that fits this topic, or fix the producer"


def attempt(
    action: str,
    function: Callable[[Any], Any],
    given: Any,
    fix: Callable[[Any], str] = fix_of,
) -> Any:
    """Call a function of another library; whatever it raises is about the value it was given."""
    try:
        return function(given)
    except MillpondError:
        raise
    except Exception as error:
        raise SerializationError(failed(action, given, error, fix(given))) from error


def failed(action: str, value: object, reason: object, fix: str = "") -> str:
    """Return the text of an error."""
    return f"cannot {action}: {shown(value)} ({shorter(reason)}).\nFix: {fix or fix_of(value)}."
