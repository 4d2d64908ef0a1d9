"""Where in the user's program a step was written.

Takes nothing but the stack; gives a `CallSite` (file and line) and readable names of functions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PACKAGE", "CallSite", "function_name", "here"]

PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True, slots=True)
class CallSite:
    """A file and a line of the user's program."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line}"


def here() -> CallSite:
    """Return the innermost call site outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


def function_name(function: Callable[..., Any]) -> str:
    """Return a short name for a user's function, as plans and errors show it."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return "lambda" if name == "<lambda>" else str(name)
