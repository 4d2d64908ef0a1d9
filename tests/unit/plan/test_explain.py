"""Golden files: `plans/<name>.py` is a program, `plans/<name>.txt` what explain says of it."""

import importlib.util
from pathlib import Path

import pytest

from millpond import Application

PLANS = Path(__file__).parent / "plans"


@pytest.mark.parametrize("name", sorted(file.stem for file in PLANS.glob("*.py")))
def test_the_plan_of_a_program_is_the_one_on_file(tmp_path, name):
    spec = importlib.util.spec_from_file_location(f"plan_{name}", PLANS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = Application(topics_dir=tmp_path, state_dir=tmp_path, loglevel=None)
    module.program(app)

    text = app.explain()

    assert text == (PLANS / f"{name}.txt").read_text()
