"""Docstrings for the site: examples as blocks of code, and no constructors that nobody calls.

Markdown takes `>>>` for a quotation. A class that says "Made by ..." is not constructed by users.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^.+\n?)*)(?:\n(?=>>> )(?:^.+\n?)+)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Puts fences around the examples of each docstring, and removes such constructors."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, a class, a function or an attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Remove the constructor of a class that a method makes."""
        if cls.docstring is not None and re.search(r"\b(Made|Returned) by\b", cls.docstring.value):
            cls.members.pop("__init__", None)


def fenced(text: str) -> str:
    """Return text with a fence around each example; options of doctest are left out."""
    text = re.sub(r"[ ]*# doctest: .*$", "", text, flags=re.MULTILINE)
    # A line without text ends an example, unless more of it follows.
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text + "\n").rstrip()
