"""The code of the documents runs: blocks of docs/**/*.md, and the docstrings of the package.

A block that begins with ```python is executed, all blocks of a file one after the other in one
namespace. A block that begins with ```python no-run needs Spark, never ends, or shows another
library; it is compiled.
"""

import doctest
import importlib
import logging
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
PACKAGE = ROOT / "src" / "millpond"
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if "spark" not in path.relative_to(PACKAGE).parts and path.name != "__main__.py"
)

BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(document: Path) -> str:
    """Return the name of a page, such as how-to/enrich."""
    return str(document.relative_to(ROOT / "docs").with_suffix(""))


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return (mark, code) of each block; lines have the numbers they have in the document."""
    text = document.read_text()
    return [
        (found["mark"].strip(), "\n" * text[: found.start("code")].count("\n") + found["code"])
        for found in BLOCK.finditer(text)
    ]


@pytest.fixture
def logging_untouched():
    """Applications set up the logger; other tests must not see it."""
    logger = logging.getLogger("millpond")
    before = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.level, logger.handlers[:], logger.propagate = before


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_code_of_a_document_runs(document, tmp_path, monkeypatch, logging_untouched):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": document.stem}

    for mark, code in blocks(document):
        assert mark in ("", "no-run"), f"{document.name} has a block marked {mark!r}"
        compiled = compile(code, document.name, "exec")
        if not mark:
            exec(compiled, names)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name, tmp_path, monkeypatch, logging_untouched):
    monkeypatch.chdir(tmp_path)

    result = doctest.testmod(importlib.import_module(name))

    assert result.failed == 0
