"""Values on their way from one stage to the next, or to the driver: any Python object.

Such bytes live as long as a batch, so the form needs no version. They are pickles, so they must
never come from a place where somebody else may write: they lie in memory, and in folders of this
run that only its user can open. The spool of a `ListSource` has pickles only where the program asks
for them. Not `marshal`: it writes whatever has a buffer (bytearray, NumPy numbers and arrays) as
plain bytes, without a word.
"""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import cloudpickle

from millpond.errors import SerializationError, shown

__all__ = ["copy_value", "decode", "encode", "pickled"]


def encode(value: Any) -> bytes:
    """Return the bytes of any value that can be pickled."""
    return pickled(value)


def decode(data: bytes) -> Any:
    """Return a fresh value from its bytes."""
    return pickle.loads(data)


def copy_value(value: Any) -> Any:
    """Return a copy of a value, deep enough that changing one never shows in the other."""
    return pickle.loads(pickled(value))


def pickled(value: Any) -> bytes:
    """Return a pickle of a value; classes of the user's main program go by value."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as plain:
        try:
            return bytes(cloudpickle.dumps(value, protocol=5))
        except Exception:
            raise _refusal(value, plain) from plain


def _refusal(value: Any, reason: Exception) -> SerializationError:
    """Return the error of what cannot be pickled: of a record, its value or its key."""
    culprit = next(filter(_fails, value), value) if isinstance(value, tuple) else value
    if inspect.iscoroutine(culprit):
        culprit.close()  # else Python warns that it was never awaited
        return SerializationError(
            "a function returned a coroutine, and functions are not awaited.\n"
            "Fix: return a value; call asynchronous code with asyncio.run(...)."
        )
    return SerializationError(
        f"a value of type {type(culprit).__name__} cannot move to another stage: "
        f"{shown(culprit)} ({reason}).\nFix: return plain data (dict, list, numbers, text)."
    )


def _fails(value: Any) -> bool:
    try:
        cloudpickle.dumps(value, protocol=5)
    except Exception:
        return True
    return False
