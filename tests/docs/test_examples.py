"""Every example prints what its docstring says."""

import ast
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# The demo shows live progress and numbers that differ from run to run.
EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").glob("*.py") if path.stem != "demo"
)

# These are run as a user runs them, and must be silent on standard error.
ON_ITS_OWN = ("quickstart",)


def promised(example: Path) -> str:
    """Return the block after `Prints:`, with which the docstring of an example ends."""
    text = ast.get_docstring(ast.parse(example.read_text()), clean=True)
    assert text, f"{example.name} has no docstring"
    _, found, block = text.partition("Prints:\n\n")
    assert found, f"the docstring of {example.name} does not say what it prints"
    return textwrap.dedent(block).strip("\n") + "\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_says_what_it_prints(example):
    assert promised(example).strip()


@pytest.mark.spark
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_what_its_docstring_says(example, spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # from any folder
    if example.stem in ON_ITS_OWN:
        command = [sys.executable, str(example)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        printed = done.stdout
    else:
        # In this process, where Spark is up already: it is the same program.
        runpy.run_path(str(example), run_name="__main__")
        printed = capsys.readouterr().out

    assert printed == promised(example)
