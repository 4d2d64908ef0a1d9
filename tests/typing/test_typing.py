"""What type checkers say of programs that use the package as users have it installed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import millpond

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".mypy_cache" / "typing"
RIGHT, WRONG = HERE / "shop.py", HERE / "wrong.py"


def mypy():
    """The errors that mypy finds: (file, line) to message."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}"]
    done = subprocess.run([*command, RIGHT, WRONG], capture_output=True, text=True, cwd=HERE)
    found = re.findall(r"^(\w+)\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert done.returncode == 1, done.stdout + done.stderr
    return {(name, int(line)): message for name, line, message in found}


def pyright(tmp_path):
    """The places where pyright finds errors: (file, line)."""
    settings = {"typeCheckingMode": "strict", "include": [str(HERE)], "exclude": [__file__]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", tmp_path], capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {
        (Path(one["file"]).stem, one["range"]["start"]["line"] + 1)
        for one in found
        if one["severity"] == "error"
    }


def marked():
    """The lines that have a mistake, and what is said of it."""
    lines = enumerate(WRONG.read_text().splitlines(), 1)
    return {("wrong", n): line.split("# E: ")[1] for n, line in lines if "# E: " in line}


def test_the_package_says_that_it_is_typed():
    assert Path(millpond.__file__).with_name("py.typed").exists()


def test_mypy_accepts_a_right_program_and_finds_each_mistake_of_a_wrong_one():
    found = mypy()

    assert found.keys() == marked().keys()
    assert [text for place, text in marked().items() if text not in found[place]] == []


def test_pyright_accepts_a_right_program_and_finds_each_mistake_of_a_wrong_one(tmp_path):
    assert pyright(tmp_path) == marked().keys()
