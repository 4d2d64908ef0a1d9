"""Who may import whom, checked on the source."""

import ast
import importlib
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


# What a part may know, from the lowest to the highest: a part imports only parts above it here.
ORDER = [
    "errors",
    "folders",
    "documents",
    "arguments",
    "resource",
    "record",
    "column",
    "aggregations",
    "state",
    "wire",
    "connectors",
    "program",
    "options",
    "config",
    "windowed",
    "frame",
    "joined",
    "table",
    "worker",
    "driver",
    "storage",
    "testing",
    "spark",
    "operations",
    "app",
    "admin",
    "cli",
]

# Imports that go up the list, each inside of a method or for a type.
UPWARDS = {("windowed", "frame"), ("frame", "joined"), ("frame", "table"), ("frame", "testing")}

# Code of different processes that may not know each other, wherever it is in the list.
APART = {
    "program": {"worker", "driver", "storage", "spark"},
    "wire": {"worker", "driver", "storage", "program", "connectors"},
    "worker": {"driver", "storage", "spark", "frame"},
    "driver": {"worker", "storage", "spark"},
    "storage": {"worker", "driver", "spark"},
    "testing": {"spark"},
}

TABLE = ROOT.parents[1] / "ARCHITECTURE.md"
HEAD = "| part | imports |\n| --- | --- |\n"


def graph():
    """For each part, the parts it imports, inside of functions and for types, too."""
    found = {}
    for path in MODULES:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            found.setdefault(part, set()).update(map(part_of, imported(path)))
    return {part: uses - {None, part, "__version__"} for part, uses in found.items()}


def table():
    """The table of imports in ARCHITECTURE.md, as it should be."""
    found = graph()
    rows = (
        f"| `{part}` | {', '.join(f'`{name}`' for name in ORDER if name in found[part]) or '-'} |"
        for part in ORDER
    )
    return HEAD + "\n".join(rows) + "\n"


def test_every_part_has_its_place_in_the_order():
    assert sorted(graph()) == sorted(ORDER)


@pytest.mark.parametrize("part", ORDER)
def test_a_part_imports_only_what_lies_below_it(part):
    below = set(ORDER[: ORDER.index(part)]) | {high for low, high in UPWARDS if low == part}

    assert graph()[part] <= below
    assert not graph()[part] & APART.get(part, set())


def test_the_table_of_imports_is_true():
    """`python tests/unit/test_imports.py` writes it."""
    assert table() in TABLE.read_text()


@pytest.mark.parametrize(
    "path", [p for p in MODULES if not p.is_relative_to(ROOT / "spark")], ids=name_of
)
def test_spark_is_imported_only_where_it_is_needed(path):
    at_top = {part_of(name) for name in imported(path, top_level_only=True)}

    assert "spark" not in at_top
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part not in ("app", "cli", "operations"):
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


@pytest.mark.parametrize(
    "path",
    [*(ROOT.parents[1] / "benchmarks").glob("*.py"), *(ROOT.parents[1] / "website").glob("*.py")],
    ids=lambda path: path.stem,
)
def test_programs_outside_of_the_package_import_what_is_there(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millpond"):
            found = importlib.import_module(node.module)
            lacks = [n.name for n in node.names if not hasattr(found, n.name)]
            modules = {path.stem for path in Path(found.__file__).parent.glob("*.py")}
            assert set(lacks) - modules == set()


if __name__ == "__main__":
    text = TABLE.read_text()
    before, _, after = text.partition(HEAD)
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    TABLE.write_text(before + table() + "".join(rest))
