"""Values on their way from one stage to the next, or to the driver: any Python object.

Such bytes live as long as a batch, so the form needs no version. The exception is the spool of a
`ListSource`, which holds pickles of what state cannot keep. Not `marshal`: it writes whatever has a
buffer (bytearray, NumPy numbers and arrays) as plain bytes, without a word.
"""

from __future__ import annotations

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
            msg = (
                f"a value of type {type(value).__name__} cannot move to another stage: "
                f"{shown(value)} ({plain}).\nFix: return plain data (dict, list, numbers, text)."
            )
            raise SerializationError(msg) from plain
