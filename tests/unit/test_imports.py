"""Who may import whom, checked on the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import millpond

ROOT = Path(millpond.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def imported(path, *, top_level_only=False):
    """The modules a file imports, as dotted names."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part_of(name):
    """The part of the package a dotted name belongs to: `millpond.state.codec` -> `state`."""
    return name.split(".")[1] if name.startswith("millpond.") else None


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_spark_part_imports_pyspark(path):
    uses = {name for name in imported(path) if name.split(".")[0] in ("pyspark", "py4j")}

    assert not uses or path.is_relative_to(ROOT / "spark")


STATE = {"errors", "duration", "record", "state"}
CONNECTORS = STATE | {
    "connectors",
    "callsite",
    "windows",
    "hints",
    "quix",
    "async_functions",
    "folders",
    "documents",
}
STEPS = CONNECTORS | {"steps", "adapted", "aggregations", "column"}
ALLOWED = {
    "documents": set(),
    "windows": {"duration"},
    "duration": {"errors"},
    "async_functions": {"callsite", "errors"},
    "usercode": {"callsite", "folders", "guard"},
    "changed": set(),
    "functions": {"callsite", "errors", "steps", "usercode"},
    "resource": {"async_functions", "callsite", "errors"},
    "aggregations": {"errors", "column", "async_functions"},
    "adapted": {"errors", "aggregations", "async_functions"},
    "state": STATE,
    "connectors": CONNECTORS,
    "options": CONNECTORS | {"options"},
    "steps": STEPS,
    "plan": STEPS | {"plan"},
    "runtime": STEPS | {"plan", "runtime"},
    "claims": {"plan"},
    "rename_guess": {"plan", "steps"},
    "compare": {"plan", "rename_guess", "errors"},
    "succession": {"claims", "compare", "directory", "errors", "plan", "state"},
}


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_lies_below_it(part):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else (ROOT / part).rglob("*.py")
    for path in files:
        parts = {part_of(name) for name in imported(path)} - {None}
        assert parts <= ALLOWED[part], f"{name_of(path)} imports {parts - ALLOWED[part]}"


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("errors", set()),
        ("callsite", set()),
        ("folders", set()),
        ("files", {"errors", "folders"}),
        ("record", {"errors", "hints"}),
        ("hints", {"callsite"}),
        ("quix", {"callsite"}),
        ("column", {"async_functions", "errors", "hints"}),
    ],
)
def test_the_smallest_modules_import_next_to_nothing(name, below):
    parts = {part_of(found) for found in imported(ROOT / f"{name}.py")} - {None}

    assert parts <= below


@pytest.mark.parametrize(
    "path", [p for p in MODULES if not p.is_relative_to(ROOT / "spark")], ids=name_of
)
def test_spark_is_imported_only_where_it_is_needed(path):
    at_top = {part_of(name) for name in imported(path, top_level_only=True)}

    assert "spark" not in at_top
    if path.name not in ("app.py", "cli/main.py", "cli/warmup.py") and "admin" not in path.parts:
        assert "spark" not in {part_of(name) for name in imported(path)}


def test_the_modules_make_no_circle():
    graph = {}
    for path in MODULES:
        name = "millpond." + name_of(path).removesuffix(".py").replace("/", ".").removesuffix(
            ".__init__"
        )
        graph[name] = imported(path, top_level_only=True)
    resolved = {
        name: {m for m in graph if any(u == m or u.rpartition(".")[0] == m for u in uses)} - {name}
        for name, uses in graph.items()
    }
    while True:
        leaves = {name for name, uses in resolved.items() if not uses}
        if not leaves:
            break
        resolved = {n: uses - leaves for n, uses in resolved.items() if n not in leaves}

    assert resolved == {}


def loaded_by(code, *names):
    """Which of the modules are there after the code ran in a fresh process."""
    asked = f"import sys; {code}; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["millpond", "millpond.testing"])
def test_importing_loads_neither_pyspark_nor_pandas(module):
    assert loaded_by(f"import {module}", "pyspark", "pandas", "py4j") == "[]"


def test_running_locally_loads_no_pyspark():
    code = (
        "from millpond.testing import *; sdf = frame().group_by(str); "
        "run_local(sdf.apply(lambda value, state: value, stateful=True), [1])"
    )

    assert loaded_by(code, "pyspark", "py4j") == "[]"
