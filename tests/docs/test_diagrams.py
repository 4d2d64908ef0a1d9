"""The diagrams of the documentation are as their program draws them."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_diagrams_are_as_their_program_draws_them():
    sys.path.insert(0, str(ROOT / "website"))
    try:
        diagrams = importlib.import_module("diagrams")
    finally:
        sys.path.remove(str(ROOT / "website"))

    drawn = dict(diagrams.drawings())
    assert {path: path.read_text() for path in diagrams.FOLDER.glob("*.svg")} == drawn
