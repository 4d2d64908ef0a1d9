"""`apply` with `expand=True`: a function that gives several values of one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millpond.errors import MillpondError, shown
from millpond.program.steps import Map
from millpond.state.cursor import Cursor
from millpond.state.layout import MOST_BYTES
from millpond.worker.apply import Call
from millpond.worker.emit import Push, StepFailure, failed

__all__ = ["expand"]


# The number of items of one record after which their bytes are counted first; then after twice as
# many, and so on.
_FIRST_LOOK = 512


def expand(step: Map, call: Call, give: Push, cursor: Cursor, weigh: Callable[[], int]) -> Push:
    def expand(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            results = _items(call(value, key, timestamp, headers))
        except Exception as error:
            failed(step, error)
            return
        # As `Cursor.children`, in place: a generator took a tenth of an expansion to two items.
        before = cursor.path
        number, look = 0, _FIRST_LOOK
        while True:
            try:
                item = next(results)
            except StopIteration:
                break
            except Exception as error:
                failed(step, error)
                break
            cursor.path = (before or b"") + number.to_bytes(5, "big")
            give(item, key, timestamp, headers)
            number += 1
            if number == look:
                look *= 2
                if (found := weigh()) > MOST_BYTES:
                    raise StepFailure(step, _too_much(number, found))
        cursor.path = before

    return expand


def _too_much(items: int, found: int) -> MillpondError:
    return MillpondError(
        f"one record gave {items:,} items or more, which take {found:,} bytes with its key and "
        f"headers; {MOST_BYTES:,} bytes are the most.\n"
        "Fix: give fewer items, or make the key and the headers of the record smaller before."
    )


def _items(results: Any) -> Iterator[Any]:
    if not isinstance(results, Iterable):
        msg = f"with expand=True the function must return several values, got {shown(results)}."
        raise MillpondError(msg + "\nFix: return a list of them.")
    return iter(results)
