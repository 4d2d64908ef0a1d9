"""Tests that the documentation names exist, and every row of a table of faults names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])


def defined():
    """The functions of all test files."""
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_test_that_a_page_names_exists(page):
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))

    assert named <= defined()


def test_every_file_of_tests_that_a_page_names_exists():
    named = {name for page in PAGES for name in re.findall(r"`(tests/[\w./]+)`", page.read_text())}

    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_fault_in_the_guarantees_names_its_test():
    text = (ROOT / "docs" / "guarantees.md").read_text()
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    rows = [
        row
        for table in tables
        for row in table.splitlines()[2:]
        if table.splitlines()[0].rstrip("| ").endswith("test")
    ]

    assert len(rows) >= 25
    assert [row for row in rows if not re.search(r"`test_\w+`", row)] == []
